"""Runs and servers of others that would take all memory, met with 4 GiB of address space."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.disk import files
from orchestrator.errors import EXIT_FAILED, EXIT_PARTIAL, EXIT_USAGE
from orchestrator.store import blobs
from tests.disk import bombs
from tests.e2e.limited import orchestrator
from tests.e2e.runs import fake_server, run, write_recipe
from tests.fuzz.mangled import mangling
from tests.network.hostile import ATTACKS, attacking
from tests.store.frames import compressed_blob, zeros

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

BOMB_BYTES = 4_100 << 20
ITEM = "Zanzibar"
MOST = 60 << 20
ENTRY = b'{"token":"a","logprob":-1,"top_logprobs":[{"token":"a","logprob":-1}]},'
BEGINNING = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop","logprobs":{"content":['


def large_bodies() -> Iterator[bytes]:
    """Sixty megabytes each, made when they are sent: every worker imports this module."""
    yield b'{"choices":[' + b"{}," * (MOST // 3) + b"{}]}"
    yield (
        BEGINNING
        + ENTRY * (MOST // 2 // len(ENTRY))
        + b'{"token":"a","logprob":-1,"top_logprobs":[' + b"{}," * (MOST // 2 // 3) + b"{}]}]}}]}"
    )  # fmt: skip
    yield b'{"choices":' + b"[" * MOST


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with fake_server() as url:
        done = run(write_recipe(folder / "r.json", url, n=4), folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_rows_that_inflate_to_4_gib_are_damage_in_a_report(finished: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    bomb = compressed_blob(zeros(BOMB_BYTES, stated=BOMB_BYTES))
    assert len(bomb) < 140_000
    with closing(sqlite3.connect(copy / "store.sqlite")) as store, store:
        store.execute("UPDATE unit SET rows=? WHERE id=1", (bomb,))
    for path in (copy / "results").glob("*.parquet"):
        path.unlink()

    said = orchestrator("report", copy)

    assert said.returncode == EXIT_FAILED, said.stderr
    assert f"more than the {blobs.MOST_BYTES:,} that a record can have" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("kind", [*bombs.ALL])
def test_a_dataset_of_parquet_that_holds_gigabytes_is_refused(tmp_path: Path, kind: str) -> None:
    bombs.ALL[kind](tmp_path / "items.parquet")
    with fake_server() as url:
        recipe = json.loads(write_recipe(tmp_path / "r.json", url, n=4).read_text())
        recipe["dataset"] = {"kind": "parquet", "path": "items.parquet"}
        (tmp_path / "r.json").write_text(json.dumps(recipe))
        said = orchestrator("run", tmp_path / "r.json", "--run-dir", tmp_path / "run")
    assert said.returncode == EXIT_USAGE, said.stderr
    assert "items.parquet: " in said.stderr
    assert "use JSON Lines" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("kind", ["rows", "pages"])
def test_a_frame_that_holds_gigabytes_is_refused_in_a_report(
    finished: Path, tmp_path: Path, kind: str
) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    frame = next((copy / "results").glob("[!i]*.parquet"))
    before = files.checksum(frame)
    bombs.ALL[kind](frame)
    mark = copy / "results" / ".exported"
    mark.write_text(mark.read_text().replace(before, files.checksum(frame)))

    said = orchestrator("report", copy)

    assert said.returncode == EXIT_FAILED, said.stderr
    assert f"{frame.name}: " in said.stderr
    assert "are read" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "attack", ["endless_chunks", "endless_error", "endless_gzip", "many_objects"]
)
def test_a_probe_survives_a_server_that_sends_without_end(attack: str) -> None:
    with attacking(ATTACKS[attack]) as url:
        said = orchestrator("servers", "probe", url)
    assert said.returncode in {EXIT_FAILED, EXIT_USAGE}, said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("transport", ["auto", "openai"])
def test_a_run_survives_replies_as_large_as_may_be(tmp_path: Path, transport: str) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text(json.dumps({"prompt": ITEM}))
    backend = {"kind": "openai", "transport": transport}
    limits = {"max_attempts": 1}
    with mangling("openai", ["a", "b", "c"]) as (url, server):
        models = {
            name: {"base_url": url, "backend": backend, "model": name, "limits": limits}
            for name in ("a", "b", "c")
        }
        recipe = {
            "name": "large",
            "models": models,
            "dataset": {"kind": "jsonl", "path": "items.jsonl"},
            "methods": [{"kind": "answers", "answer": {"max_tokens": 8}}],
        }
        (tmp_path / "r.json").write_text(json.dumps(recipe))
        large = large_bodies()
        server.change = lambda request, body: (
            next(large, body) if ITEM.encode() in request.body else body
        )
        done = orchestrator(
            "run", tmp_path / "r.json", "--run-dir", tmp_path / "run", "--display", "none"
        )
    assert done.returncode == EXIT_PARTIAL, done.stderr
    # The ragged one may be true: only a method that reads alternatives minds their lists.
    assert "units failed" in done.stderr
    assert "Traceback" not in done.stderr
