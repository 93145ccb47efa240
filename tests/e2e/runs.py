"""Running the real command against a fake server that outlives it."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import polars as pl

from orchestrator.ask import AnyAsk, ChooseAsk, seed_of
from orchestrator.driver import Driver
from orchestrator.recipe.load import load
from orchestrator.runner.planning.prepare import prepare
from orchestrator.store import Store
from orchestrator.wire import requests

ROOT = Path(__file__).resolve().parents[2]
CANDIDATES = ("weak", "mid", "strong")
MODELS = ("fake:0.3", "fake:0.6", "fake:0.9", "fake:1.0")


@contextlib.contextmanager
def fake_server(
    rules: object = None, models: tuple[str, ...] = MODELS, port: int = 0
) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.fake.main", "--port", str(port)]
    for model in models:
        command += ["--model", model]
    if rules is not None:
        command += ["--rules", json.dumps(rules)]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        line = server.stderr.readline()
        assert line.startswith("ready "), line + server.stderr.read()
        yield line.split()[1]
    finally:
        server.terminate()
        server.wait(60)
        server.stderr.close()


def stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/fake/stats", timeout=60) as reply:  # noqa: S310 (loopback)
        return dict(json.load(reply))


def write_recipe(
    path: Path, url: str, *, n: int = 40, backend: str = "fake", **changes: Any
) -> Path:
    models = {
        name: {"base_url": url, "backend": backend, "model": model}
        for name, model in zip((*CANDIDATES, "judge"), MODELS, strict=True)
    }
    method = {
        "kind": "pairwise_ranking",
        "judges": ["judge"],
        "prompt": "compact",
        "answer": {"max_tokens": 8},
    }
    recipe = {
        "name": "made",
        "models": models,
        "dataset": {"kind": "demo", "n": n},
        "methods": [method],
        "statistics": {"n_resamples": 1000},
        **changes,
    }
    path.write_text(json.dumps(recipe), encoding="utf-8")
    return path


def command(recipe: Path, run_dir: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator", "run", str(recipe), "--run-dir", str(run_dir),
            "--display", "none", *more]  # fmt: skip


def run(recipe: Path, run_dir: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(recipe, run_dir, *more), cwd=ROOT, capture_output=True, text=True, check=False
    )


def frames(run_dir: Path) -> dict[str, pl.DataFrame]:
    return {
        path.stem: pl.read_parquet(path) for path in sorted((run_dir / "results").glob("*.parquet"))
    }


def recorded_requests(recipe: Path, run_dir: Path, *, allow_code: bool = False) -> set[str]:
    """Hashes, as the fake server makes them, of all requests whose outcome is in the store."""
    store_path = run_dir / "store.sqlite"
    if not store_path.exists():
        return set()
    loaded = load(recipe, allow_code=allow_code)
    plan = prepare(loaded, allow_code=allow_code).plan
    found = set()

    def trace(key: bytes, ask: AnyAsk, *_: object) -> None:
        # A server that the run launches knows a model by its name in the recipe.
        name = loaded.models[ask.model].model or ask.model
        found.add(_hash(name, ask, key, plan.seed))

    with Store.open(store_path, read_only=True) as store:
        for position in range(len(plan)):
            driver = Driver(plan, store.get, {}, trace=trace)
            driver.open(position)
            driver.close()
    return found


def _hash(model: str, ask: Any, key: bytes, seed: int) -> str:
    if isinstance(ask, ChooseAsk):
        body, route = requests.choose(model, ask), b"choose"
    else:
        dialect = requests.Dialect(token_ids=True, top_k_off=0)
        body, route = requests.chat(model, ask, seed_of(key, seed), dialect), b"chat"
    return blake2b(body, digest_size=12, key=route).hexdigest()
