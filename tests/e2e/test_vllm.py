"""The recipe that launches real vLLM servers, beside the same on the embedded server."""

import json
import os

import numpy as np
import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.e2e.runs import ROOT, frames, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.vllm,
    pytest.mark.timeout(1500),
]

N = 40
NAMES = {"novice", "apprentice", "expert", "judge"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Both runs over the same items: output and run directory."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for name, kind in (("vllm", "pairwise_ranking_vllm"), ("embedded", "pairwise_ranking")):
        result = run(
            ROOT / "recipes" / f"{kind}.yaml", folder / name,
            "--set", f"dataset.n={N}", "--format", "json",
        )  # fmt: skip
        assert result.returncode == EXIT_COMPLETE, result.stderr
        found[name] = json.loads(result.stdout), folder / name
    return found


def joined(runs, frame, keys):
    ours, theirs = (frames(runs[name][1])[frame] for name in ("vllm", "embedded"))
    both = ours.join(theirs, on=keys, suffix="_embedded")
    assert both.height == ours.height == theirs.height > 0
    return both


def test_models_rank_as_they_do_on_the_embedded_server(runs):
    orders = [
        [row["model"] for row in runs[name][0]["rankings"][0]["ratings"]]
        for name in ("vllm", "embedded")
    ]
    assert orders[0] == orders[1] == ["expert", "apprentice", "novice"]


def test_answers_and_their_log_probabilities_are_those_of_the_embedded_server(runs):
    both = joined(runs, "answers", ["item", "model"])
    assert (both["text"] == both["text_embedded"]).mean() > 0.97
    same = both.filter(both["text"] == both["text_embedded"])
    np.testing.assert_allclose(same["mean_logprob"], same["mean_logprob_embedded"], atol=1e-4)


def test_judgments_are_those_of_the_embedded_server(runs):
    both = joined(runs, "judgments", ["item", "model_a", "model_b"])
    for name in ("p_ab", "p_ba"):
        ours, theirs = (np.array(both[column].to_list()) for column in (name, f"{name}_embedded"))
        close = np.abs(ours - theirs).max(axis=1) < 5e-4
        # A greedy tie may fall otherwise, and then another answer is judged.
        assert close.mean() > 0.97


def test_no_server_process_is_left(runs):
    lines = (runs["vllm"][1] / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    pids = {event["pid"] for event in events if "pid" in event}
    assert len(pids) == len(NAMES)
    assert not [pid for pid in psutil.pids() if pid in pids or _group_of(pid) in pids]


def _group_of(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
