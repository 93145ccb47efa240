"""Advice follows from its cause: over runs of many faults, before and after some are mended."""

import json
import random
import re
from pathlib import Path

import pytest

from tests.oracles.verdicts.runs import PAIRWISE, started, told

FAULTY = Path(__file__).with_name("faulty.py")
CANDIDATES = ("ash", "birch")
MODELS = (*CANDIDATES, "judge")
# Cause, message, and whether it is kept.
FAULTS = (
    ("no_credit", "balance used up", False),
    ("no_logprobs", "not allowed", False),
    ("unparseable", "no finish_reason", True),
    ("no_answer", "no answer came within max_tokens", True),
    ("too_long", "too many tokens", True),
)


def run_of(folder, given=(), **changes):
    """Run a recipe of three models over some items, whose faults are in a file of the folder."""
    kind = {"kind": str(FAULTY), "faults": str(folder / "faults.json")}
    models = {
        name: {"answers": {"field": name}}
        if name in given
        else {"base_url": "http://127.0.0.1:9", "backend": {**kind, "model": name},
              "limits": {"max_attempts": 1}}
        for name in MODELS
    }  # fmt: skip
    rows = [{"id": str(k), "prompt": f"What is {k}?"} for k in range(3)]
    rows = [row | ({"ash": f"It is {row['id']}"} if row["id"] != "1" else {}) for row in rows]
    return started(folder, rows, models, [PAIRWISE], **changes)


def fail(folder, faults):
    folder.mkdir(exist_ok=True)
    (folder / "faults.json").write_text(json.dumps(faults), encoding="utf-8")


def steps_of(run):
    return json.loads(told("report", run, "--format", "json"))["brief"]["next_steps"]


def named(step):
    """The models that a sentence names."""
    return {name for name in MODELS if re.search(rf"\b{name}\b", step.partition(". What")[0])}


def failing_now(ended, faults):
    """Return the fault of each model that fails in this call.

    What has ended is not asked again, and a judge is asked where there are answers.
    """
    for name in MODELS:
        if name != "judge" or not any(ended[one] for one in CANDIDATES):
            ended.setdefault(name, faults.get(name))
    now = {name: fault for name, fault in ended.items() if fault}
    for name in [name for name, fault in now.items() if not fault[2]]:
        del ended[name]
    return now


def check(steps, now):
    again = [one for one in steps if "again" in one and "labels" not in one]
    assert {name for one in again for name in named(one)} == {*now}
    for name, (cause, message, is_kept) in now.items():
        (step,) = [one for one in again if name in named(one)]
        assert (f"--retry {cause}" in step) == is_kept
        assert ("the same command again" in step) == (not is_kept)
        assert ("logprobs: false" in step) == (cause == "no_logprobs" and name != "judge")
        assert (message in step) == (cause == "unparseable")
    assert len(steps) == len({*steps})


@pytest.mark.parametrize("seed", range(8))
def test_only_what_fails_now_is_advised_upon(tmp_path, seed):
    rng = random.Random(seed)
    folder = tmp_path / "study"
    ended: dict[str, object] = {}
    for _ in range(3):
        faults = {name: rng.choice(FAULTS) for name in MODELS if rng.random() < 0.5}
        fail(folder, faults)
        run, now = run_of(folder), failing_now(ended, faults)
        check(steps_of(run), now)


def test_answers_that_are_missing_from_a_file_are_to_be_completed(tmp_path):
    fail(tmp_path / "study", {})
    steps = steps_of(run_of(tmp_path / "study", given=["ash"]))
    assert steps[0].startswith("Complete the answers that are given for ash; then run the same")
    assert not any("judge gave" in one or "see why" in one.lower() for one in steps)


@pytest.mark.parametrize("fault", [{}, {"birch": FAULTS[0]}])
def test_what_a_limit_has_stopped_is_not_run_again_without_a_higher_one(tmp_path, fault):
    fail(tmp_path / "study", fault)
    steps = steps_of(run_of(tmp_path / "study", budget={"requests": 4}))
    assert steps[0].startswith("Raise `budget.requests`")
    assert not any(one.startswith("Run the same command again") for one in steps)
