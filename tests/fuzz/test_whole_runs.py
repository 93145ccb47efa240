"""Replies gone wrong through a whole run: units fail with a cause, and nothing else happens."""

import json
import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.errors import EXIT_COMPLETE, EXIT_FAILED, EXIT_PARTIAL, EXIT_USAGE
from orchestrator.store import Store
from tests.fake.http import HttpRequest
from tests.fuzz.mangled import Mangler, mangled, mangling

pytestmark = pytest.mark.timeout(300)

MODELS = {"a": "fake:0.3", "b": "fake:0.9", "judge": "fake:1.0"}
# Stands in every prompt of the dataset, and in no question that a server is asked before.
ITEM = "Zanzibar"
PAIRWISE = {
    "kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact",
    "answer": {"max_tokens": 8},
}  # fmt: skip
POINTWISE = {"kind": "pointwise", "judges": ["judge"], "answer": {"max_tokens": 8}}
PROBDIFF = {"kind": "probdiff", "answer": {"max_tokens": 8}, "revision": {"max_tokens": 8}}
# Back-end, dialect of the fake server, settings, and a method that asks it all it can do.
KINDS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "embedded": ("embedded", "", {}, PROBDIFF),
    "embedded, labels": ("embedded", "", {}, PAIRWISE),
    "openai": ("openai", "openai", {"transport": "aiohttp"}, POINTWISE),
    "vllm_v1": ("vllm", "vllm_v1", {}, PAIRWISE),
    "vllm_v2": ("vllm", "vllm_v2", {}, PROBDIFF),
    "sglang": ("sglang", "sglang", {}, PAIRWISE),
    "sglang, scores": ("sglang", "sglang", {}, PROBDIFF),
    "tgi": ("tgi", "tgi", {}, PAIRWISE),
    "llamacpp": ("llamacpp", "llama_server", {}, PAIRWISE),
    "llamacpp, scores": ("llamacpp", "llama_server", {}, PROBDIFF),
}
LONG = (pytest.mark.slow, pytest.mark.long)
SEEDS = [1, *(pytest.param(n, marks=LONG) for n in (2, 3, 4))]


def write(folder: Path, url: str, kind: str) -> Path:
    backend, _, settings, method = KINDS[kind]
    limits = {"max_attempts": 1, "timeout_s": 20, "dead_after_s": 1, "max_in_flight": 4}
    models = {
        name: {
            "base_url": url, "backend": {"kind": backend, **settings}, "model": model,
            "limits": limits,
        }
        for name, model in MODELS.items()
    }  # fmt: skip
    items = [{"prompt": f"{ITEM}, {n}?", "reference": "yes"} for n in range(4)]
    (folder / "items.jsonl").write_text("\n".join(map(json.dumps, items)))
    recipe = {
        "name": "mangled",
        "models": models,
        "dataset": {"kind": "jsonl", "path": "items.jsonl"},
        "methods": [method],
        "statistics": {"n_resamples": 100},
    }
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe))
    return path


@contextmanager
def damaging(kind: str, seed: int, *, at_once: bool) -> Iterator[tuple[str, Mangler]]:
    """A server three of ten of whose replies go wrong: of those about items, or of all.

    One that says something else when it is compared with what it was is another server.
    """
    rng = random.Random(zlib.crc32(f"{kind} {seed}".encode()))

    def change(request: HttpRequest, body: bytes) -> bytes:
        is_meant = at_once or ITEM.encode() in request.body
        return mangled(body, rng) if is_meant and rng.random() < 0.3 else body

    with mangling(KINDS[kind][1], list(MODELS.values())) as (url, server):
        server.change = change
        yield url, server


def run(recipe: Path, run_dir: Path) -> int:
    return main(["run", str(recipe), "--run-dir", str(run_dir), "--display", "none"])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_ends_and_its_units_fail_with_a_cause(kind, seed, tmp_path, capsys) -> None:
    with damaging(kind, seed, at_once=False) as (url, server):
        code = run(write(tmp_path, url, kind), tmp_path / "run")
        said = capsys.readouterr()
        assert code in {EXIT_COMPLETE, EXIT_PARTIAL}, said.err
        server.change = None
        again = run(tmp_path / "recipe.json", tmp_path / "run")
    assert "Traceback" not in said.err + (tmp_path / "run" / "log.jsonl").read_text()
    assert again in {EXIT_COMPLETE, EXIT_PARTIAL}
    with Store.open(tmp_path / "run" / "store.sqlite", read_only=True) as store:
        for failure in store.failures():
            assert failure.last_message.isprintable()
            assert "please report" not in failure.last_message


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=LONG if ", " in kind else ()) for kind in KINDS]
)
def test_questions_about_a_server_that_go_wrong_are_said(kind, seed, tmp_path, capsys) -> None:
    with damaging(kind, seed, at_once=True) as (url, _):
        code = run(write(tmp_path, url, kind), tmp_path / "run")
        probed = main(["servers", "probe", url, "--model", MODELS["judge"]])
    assert code in {EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE, EXIT_PARTIAL}
    assert probed in {EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE}
    assert "Traceback" not in capsys.readouterr().err
