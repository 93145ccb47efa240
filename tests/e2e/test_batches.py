"""Runs in batches: killed, interrupted or cancelled at any point, they end as one by one."""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED
from tests.conftest import BUNDLED
from tests.e2e.runs import ROOT, command, frames, run
from tests.fake.batches import serving_batches
from tests.fake.threaded import threaded

pytestmark = pytest.mark.slow
KEY = "sk-0123456789abcdef"
QUALITY = {"small": 0.2, "large": 0.9, "judge": 1.0}
QUICK = {"wait_s": 0.3, "poll_s": 0.1}
N = 8
N_REQUESTS = N * (2 + 2)


@contextmanager
def served(**settings):
    """An endpoint with batches in a thread of its own: its address and the server."""
    rules = {"dialect": "openai", "quality": QUALITY}
    with threaded(lambda: serving_batches(*QUALITY, rules=rules, key=KEY)) as (url, server):
        for name, value in settings.items():
            setattr(server, name, value)
        yield url, server


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Write a recipe for an endpoint."""
    monkeypatch.setenv("MY_KEY", KEY)

    def write(url: str, batch: object = QUICK, name: str = "made"):
        models = {
            name: {"base_url": url, "model": name, "backend": "openai", "api_key_env": "MY_KEY"}
            | ({"batch": batch} if batch else {})
            for name in QUALITY
        }
        method = {"kind": "pairwise_ranking", "judges": ["judge"], "labels": "two"}
        data = {
            "name": name,
            "models": models,
            "dataset": {"kind": "demo", "n": N},
            "methods": [method | {"answer": {"max_tokens": 8}}],
            "probe": False,
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(data))
        return path

    return write


def begin(recipe, folder):
    return subprocess.Popen(
        command(recipe, folder),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(is_so) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def assert_as_one_by_one(recipe, url, folder, batched):
    single = recipe(url, None, "single")
    ended = run(single, folder)
    assert ended.returncode == EXIT_COMPLETE, ended.stderr
    expected = frames(folder)
    assert expected
    found = frames(batched)
    for name, frame in expected.items():
        assert_frame_equal(found[name], frame, check_exact=True)


@pytest.mark.parametrize(
    "point",
    [
        "batches",
        "content",
        *(
            pytest.param(point, marks=pytest.mark.long)
            for point in ("before files", "files", "look")
        ),
    ],
)
def test_a_run_that_is_killed_pays_nothing_twice(recipe, tmp_path, point):
    with served(holds=point) as (url, server):
        killed = begin(recipe(url), tmp_path / "run")
        until(server.held.is_set)
        killed.kill()
        killed.communicate()
        server.holds = ""
        ended = run(recipe(url), tmp_path / "run")
        assert ended.returncode == EXIT_COMPLETE, ended.stdout + ended.stderr
        assert set(server.worked_on.values()) == {1}
        assert len(server.worked_on) == N_REQUESTS
        assert_as_one_by_one(recipe, url, tmp_path / "single", tmp_path / "run")


def test_ctrl_c_leaves_a_batch_that_the_next_call_reads(recipe, tmp_path):
    with served(per_look=1) as (url, server):
        process = begin(recipe(url), tmp_path / "run")
        until(lambda: server.worked_on)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
        assert process.returncode == EXIT_INTERRUPTED, said
        log = (tmp_path / "run" / "log.jsonl").read_text()
        assert "the same command reads the replies" in log
        server.per_look = N_REQUESTS
        ended = run(recipe(url), tmp_path / "run", "--format", "json")
        assert ended.returncode == EXIT_COMPLETE, ended.stderr
        assert set(server.worked_on.values()) == {1}
        assert len(server.worked_on) == N_REQUESTS


def test_a_run_whose_batches_are_cancelled_keeps_what_was_answered(recipe, tmp_path):
    with served(per_look=1) as (url, server):
        server.after_work = lambda: setattr(server, "per_look", len(server.worked_on) < 3)
        process = begin(recipe(url), tmp_path / "run")
        until(lambda: len(server.worked_on) >= 3)
        stop = ["python", "-m", "orchestrator", "stop", str(tmp_path / "run"), "--cancel"]
        subprocess.run([command(recipe(url), tmp_path)[0], *stop[1:]], cwd=ROOT, check=True)
        said, _ = process.communicate()
        assert process.returncode == EXIT_INTERRUPTED, said
        assert {batch["status"] for batch in server.batches.values()} == {"cancelled"}
        n_answered = len(server.worked_on)
        server.after_work, server.per_look = lambda: None, N_REQUESTS
        ended = run(recipe(url), tmp_path / "run")
        assert ended.returncode == EXIT_COMPLETE, ended.stderr
        assert sum(server.worked_on.values()) == N_REQUESTS
        assert 3 <= n_answered < N_REQUESTS


def bounded(recipe, url, **bounds):
    """The path of a recipe with a budget."""
    path = recipe(url)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"budget": bounds}))
    return path


def test_a_budget_that_is_used_waits_for_the_batches_that_are_paid(recipe, tmp_path):
    with served() as (url, server):
        ended = run(bounded(recipe, url, requests=5), tmp_path / "run")
        assert len(server.worked_on) == 5
        assert "budget.requests: 5 of 5 sent" in ended.stdout + ended.stderr
        ended = run(recipe(url), tmp_path / "run")
        assert ended.returncode == EXIT_COMPLETE, ended.stderr
        assert set(server.worked_on.values()) == {1}


def test_hours_end_a_run_that_only_waits_for_a_batch(recipe, tmp_path):
    with served(per_look=0) as (url, _):
        ended = run(bounded(recipe, url, hours=0.001), tmp_path / "run")
        assert "budget.hours is used" in ended.stdout + ended.stderr


@pytest.mark.vllm
@pytest.mark.models
@pytest.mark.timeout(600)
def test_files_are_answered_by_vllm_run_batch(tmp_path):
    """A run writes a file of requests, and vLLM's own command answers it."""
    folder, run_dir = tmp_path / "requests", tmp_path / "run"
    recipe = tmp_path / "offline.yaml"
    recipe.write_text(
        f"""
models:
  expert: {{base_url: local, batch: {{folder: requests, wait_s: 0.5, poll_s: 0.2}}}}
dataset: {{kind: demo, n: {N}}}
methods: [{{kind: answers, answer: {{max_tokens: 8}}}}]
"""
    )
    process = begin(recipe, run_dir)
    until(lambda: any(folder.glob("*.jsonl")) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    (asked,) = folder.glob("*.jsonl")
    replied = asked.with_suffix(".replies.jsonl")
    answer: list[str | Path] = ["run-batch", "-i", asked, "-o", replied, "--model"]
    answer += [BUNDLED / "expert", "--served-model-name", "expert", "--max-model-len", "512"]
    small = ["--dtype", "float32", "--enforce-eager"]
    room = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    program = ROOT / ".venv-vllm" / "bin" / "vllm"
    subprocess.run([program, *answer, *small], check=True, cwd=tmp_path, env=os.environ | room)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_COMPLETE, said
    answers = frames(run_dir)["answers"]
    assert answers.height == N
    assert set(answers["status"]) == {"ok"}
    assert answers["mean_logprob"].is_between(-20, 0).all()
