"""The main job on real inference: bundled models on the embedded server."""

import contextlib
import json
import random
import subprocess
import time
import urllib.request

import numpy as np
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.e2e.runs import ROOT, command, frames, run

pytestmark = [pytest.mark.slow, pytest.mark.models, pytest.mark.timeout(900)]

ANSWERERS = ("novice", "apprentice", "expert")
NAMES = (*ANSWERERS, "judge")
N_KILLS = 5
TOLERANCE = 1e-4


def write_recipe(path, url, *, n=20, seed=0):
    models = {name: {"base_url": url, "backend": "embedded", "model": name} for name in NAMES}
    method = {
        "kind": "pairwise_ranking",
        "judges": ["judge"],
        "prompt": "compact",
        "answer": {"max_tokens": 24},
    }
    recipe = {
        "name": "made",
        "models": models,
        "dataset": {"kind": "demo", "n": n, "seed": seed},
        "methods": [method],
        "limits": {"max_in_flight": 16},
    }
    path.write_text(json.dumps(recipe), encoding="utf-8")
    return path


def generated_tokens(url):
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:  # noqa: S310 (loopback)
        lines = reply.read().decode().splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line and line[0] != "#" and "tokens" in line
    )


def kill_later(recipe, run_dir, url, rng):
    """Start the command and kill it soon after it began to be answered; whether it ended."""
    before = generated_tokens(url)
    process = subprocess.Popen(
        command(recipe, run_dir), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and generated_tokens(url) == before:
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0.0, 0.4))
    process.kill()
    return process.wait() == 0


def closest_call(url, model, prompt):
    """Smallest gap between the two best tokens on the way of a greedy answer."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 24,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 2,
    }
    request = urllib.request.Request(  # noqa: S310 (loopback)
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
        content = json.load(reply)["choices"][0]["logprobs"]["content"]
    tops = [sorted(t["logprob"] for t in token["top_logprobs"])[-2:] for token in content]
    return min(best - second for second, best in tops)


def test_a_run_killed_at_several_points_gives_the_same_answers_and_verdicts(embedded, tmp_path):
    rng = random.Random(3)
    recipe = write_recipe(tmp_path / "r.json", embedded, n=60)
    assert run(recipe, tmp_path / "whole").returncode == EXIT_COMPLETE
    kills = 0
    while kills < N_KILLS:
        assert not kill_later(recipe, tmp_path / "cut", embedded, rng), "make the run longer"
        kills += 1
    assert run(recipe, tmp_path / "cut").returncode == EXIT_COMPLETE
    whole, cut = frames(tmp_path / "whole"), frames(tmp_path / "cut")
    answers = whole["answers"].join(cut["answers"], on=["item", "model"], suffix="_cut")
    differ = answers.filter(answers["text"] != answers["text_cut"])
    for row in differ.iter_rows(named=True):
        assert closest_call(embedded, row["model"], row["prompt"]) < TOLERANCE, row
    same = answers.filter(answers["text"] == answers["text_cut"])
    assert same.height > 0.95 * answers.height
    assert np.allclose(same["mean_logprob"], same["mean_logprob_cut"], atol=TOLERANCE)
    pairs = whole["judgments"].join(
        cut["judgments"], on=["item", "model_a", "model_b"], suffix="_cut"
    )
    pairs = pairs.filter(~pairs["item"].is_in(differ["item"].to_list()))
    for name in ("p_ab", "p_ba"):
        ours, theirs = pairs[name].to_list(), pairs[f"{name}_cut"].to_list()
        assert np.allclose(ours, theirs, atol=TOLERANCE)
    assert (pairs["mode_pre"] == pairs["mode_pre_cut"]).all()


def test_rows_follow_from_what_the_server_says(embedded, tmp_path):
    """Three judgments recomputed from the server's own replies, without our client."""
    recipe = write_recipe(tmp_path / "r.json", embedded, n=6)
    assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
    found = frames(tmp_path / "run")
    texts = {(row["item"], row["model"]): row for row in found["answers"].iter_rows(named=True)}
    for row in found["judgments"].head(3).iter_rows(named=True):
        a, b = (texts[row["item"], row[key]] for key in ("model_a", "model_b"))
        for column, first, second in (("p_ab", a, b), ("p_ba", b, a)):
            p = np.exp(
                _labels(embedded, a["prompt"], a["reference"], first["text"], second["text"])
            )
            p = p / p.sum()
            expected = p if column == "p_ab" else p[::-1]
            assert np.allclose(row[column], expected, atol=TOLERANCE)


def _labels(url, prompt, reference, answer_a, answer_b):
    text = (
        f"Compare two answers. Verdict only.\nTask: {prompt}\nReference: {reference}\n"
        f"Answer A: {answer_a}\nAnswer B: {answer_b}"
    )
    body = {
        "model": "judge",
        "messages": [{"role": "user", "content": text}],
        "labels": [["[[>>]]"], ["[[>]]"], ["[[=]]"], ["[[<]]"], ["[[<<]]"]],
    }
    request = urllib.request.Request(  # noqa: S310 (loopback)
        f"{url}/v1/choose", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
        return np.array(json.load(reply)["logprobs"])


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_true_order_is_found(embedded, tmp_path, seed):
    """All ten seeds: `make validate`."""
    recipe = write_recipe(tmp_path / "r.json", embedded, n=100, seed=seed)
    result = run(recipe, tmp_path / "run", "--format", "json")
    assert result.returncode == EXIT_COMPLETE, result.stderr
    (ranking,) = json.loads(result.stdout)["rankings"]
    assert [row["model"] for row in ranking["ratings"]] == ["expert", "apprentice", "novice"]
    assert all(pair["resolvable"] for pair in ranking["neighbours"])
