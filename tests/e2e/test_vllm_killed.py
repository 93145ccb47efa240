"""A real vLLM in mid-run: the run is stopped, goes on, and outlives a `kill -9` of its server."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import psutil
import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED
from tests.e2e.runs import frames, write_recipe
from tests.e2e.test_failures import log_of, n_outcomes, said, start, until

__all__ = ["start"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.vllm,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

# vLLM answers some 80 a second, so that the run outlasts what may hold up this test.
N = 1_000
ENOUGH = 10
SERVER = {
    "kind": "vllm",
    "dtype": "float32",
    "max_model_len": 512,
    "enforce_eager": True,
    "cpu_kv_cache_gb": 1,
    "cpu_threads": 1,
}


@dataclass
class Story:
    """Observations of one run in two calls.

    Attributes:
        run_dir: Of the run.
        first: Exit code of the call that SIGTERM ended.
        left: Processes of its server that lived on.
        recorded: Texts after it, by item.
        second: Exit code of the call in which the server was killed.
        remained: Processes of both its servers that lived on.
        words: What the second call printed.
    """

    run_dir: Path
    first: int
    left: list[int]
    recorded: dict[str, str]
    second: int
    remained: list[int]
    words: str


def ready(run_dir):
    lines = log_of(run_dir)
    return [line["pid"] for line in lines if line["message"].endswith("is ready") and "pid" in line]


def family(pid):
    """A server's process and its children: vLLM computes in one of them."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def left_of(processes):
    """Those that live on for a minute: on a busy machine an end takes a while."""
    _, left = psutil.wait_procs(processes, timeout=60)
    return [process.pid for process in left if process.status() != psutil.STATUS_ZOMBIE]


def texts(run_dir):
    found = frames(run_dir)["answers"].filter(pl.col("status") == "ok")
    return dict(zip(found["item"].to_list(), found["text"].to_list(), strict=True))


@pytest.fixture
def story(start, tmp_path):
    run_dir = tmp_path / "run"
    recipe = write_recipe(
        tmp_path / "r.json", "", n=N,
        models={"novice": {"server": SERVER, "weights": "bundled:novice"}},
        methods=[{"kind": "answers", "answer": {"max_tokens": 24}}],
        limits={"max_in_flight": 4},
    )  # fmt: skip
    process = start(recipe, run_dir)
    until(lambda: n_outcomes(run_dir) > ENOUGH, 300, process)
    (pid,) = ready(run_dir)
    servers = family(pid)
    process.send_signal(signal.SIGTERM)
    words = said(process, 120)
    assert process.returncode == EXIT_INTERRUPTED, words
    first, left, recorded = process.returncode, left_of(servers), texts(run_dir)
    n_before = n_outcomes(run_dir)

    process = start(recipe, run_dir)
    until(lambda: n_outcomes(run_dir) > n_before + ENOUGH, 300, process)
    pid = ready(run_dir)[-1]
    servers = family(pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(ready(run_dir)) == 3, 300, process)
    servers += family(ready(run_dir)[-1])
    words = said(process, 300)
    return Story(run_dir, first, left, recorded, process.returncode, left_of(servers), words)


def test_a_stopped_run_goes_on_and_completes_although_its_server_is_killed(story):
    assert story.left == []
    assert ENOUGH < len(story.recorded) < N
    assert story.second == EXIT_COMPLETE, story.words
    assert story.remained == []
    found = texts(story.run_dir)
    assert len(found) == N
    # What was recorded when SIGTERM came is there as it was.
    assert {item: found[item] for item in story.recorded} == story.recorded
    warnings = [line["message"] for line in log_of(story.run_dir) if line["level"] == "WARNING"]
    assert "restarting in" in " ".join(warnings)
