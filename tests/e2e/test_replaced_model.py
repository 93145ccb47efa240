"""A server of real weights that becomes another one of the same name in mid-run is noticed."""

import asyncio
import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from tests.chaos.arena import end_of, free_port, outcomes
from tests.e2e.runs import ROOT, command, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.models, pytest.mark.timeout(900)]

MODEL = "judge"
BUNDLED = ROOT / "launch" / "embedded" / "models"
N = 600
FEW = 150
SEEN = 12
IN_FLIGHT = 4
VLLM = (
    "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager", "--served-model-name",
    MODEL,
)  # fmt: skip


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch = importlib.import_module("torch")
    with_noise = importlib.import_module("benchmarks.server_noise").with_noise
    folder = tmp_path_factory.mktemp("weights")
    rng = torch.Generator().manual_seed(1)
    return {
        "the same": BUNDLED / MODEL,
        "2 % of noise": with_noise(BUNDLED / MODEL, folder / "noisy", 0.02, rng),
        "another model": BUNDLED / "expert",
    }


def embedded(weights: Path, port: int) -> list[str]:
    return [
        sys.executable, "-m", "launch.embedded.server", "--model", f"{MODEL}={weights}",
        "--port", str(port),
    ]  # fmt: skip


def vllm(weights: Path, port: int) -> list[str]:
    program = ROOT / ".venv-vllm" / "bin" / "vllm"
    return [str(program), "serve", str(weights), *VLLM, "--port", str(port)]


@contextlib.contextmanager
def serving(line: list[str], log: Path) -> Iterator[None]:
    environment = {
        **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    with log.open("ab") as output:
        process = subprocess.Popen(
            line, cwd=ROOT, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, 9)
        process.wait(30)


def until_ready(port: int) -> None:
    async def answers() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    deadline = time.monotonic() + 300
    while not asyncio.run(answers()):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def until_recorded(process, run_dir, n):
    deadline = time.monotonic() + 120
    while process.poll() is None and len(outcomes(run_dir)) < n:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def replaced(tmp_path, serve, before, after, n=N):
    """The end of a run whose server is another one from some time on."""
    port, log = free_port(), tmp_path / "server.log"
    url, run_dir = f"http://127.0.0.1:{port}", tmp_path / "run"
    recipe = write_recipe(
        tmp_path / "r.json", url, n=n, models={"m": {"base_url": url, "model": MODEL}},
        methods=[{"kind": "answers", "answer": {"max_tokens": 24}}],
        limits={"max_in_flight": IN_FLIGHT, "dead_after_s": 480.0},
    )  # fmt: skip
    # In one place, as vLLM's fingerprint tells paths apart.
    weights = tmp_path / "weights"
    shutil.copytree(before, weights)
    with serving(serve(weights, port), log):
        until_ready(port)
        process = subprocess.Popen(
            command(recipe, run_dir), cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        until_recorded(process, run_dir, SEEN)
    shutil.rmtree(weights)
    shutil.copytree(after, weights)
    with serving(serve(weights, port), log):
        until_ready(port)
        ended = end_of(process, 400)
    recorded = len(outcomes(run_dir))
    return ended, recorded


@pytest.mark.parametrize(
    "other", ["2 % of noise", pytest.param("another model", marks=pytest.mark.long)]
)
def test_another_model_behind_the_name_stops_the_run(weights, tmp_path, other):
    ended, recorded = replaced(tmp_path, embedded, weights["the same"], weights[other])
    assert ended.code == EXIT_USAGE, ended
    assert "nats on average" in ended.words
    assert SEEN <= recorded < N


@pytest.mark.long
def test_the_same_server_that_comes_back_goes_on(weights, tmp_path):
    ended, recorded = replaced(tmp_path, embedded, weights["the same"], weights["the same"], FEW)
    assert ended.code == EXIT_COMPLETE, ended
    assert recorded == FEW


@pytest.mark.vllm
def test_noisy_weights_behind_the_name_of_a_real_vllm_stop_the_run(weights, tmp_path):
    ended, recorded = replaced(tmp_path, vllm, weights["the same"], weights["2 % of noise"])
    assert ended.code == EXIT_USAGE, ended
    assert "nats on average" in ended.words
    assert SEEN <= recorded < N
