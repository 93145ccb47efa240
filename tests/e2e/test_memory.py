"""Runs and servers of others that would take all memory, met with 4 GiB of address space."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import EXIT_FAILED
from orchestrator.store import blobs
from tests.e2e.limited import orchestrator
from tests.e2e.runs import fake_server, run, write_recipe
from tests.store.frames import compressed_blob, zeros

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BOMB_BYTES = 4_100 << 20


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with fake_server() as url:
        done = run(write_recipe(folder / "r.json", url, n=4), folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_rows_that_inflate_to_4_gib_are_damage_in_a_report(finished: Path) -> None:
    bomb = compressed_blob(zeros(BOMB_BYTES, stated=BOMB_BYTES))
    assert len(bomb) < 140_000
    with closing(sqlite3.connect(finished / "store.sqlite")) as store, store:
        store.execute("UPDATE unit SET rows=? WHERE id=1", (bomb,))
    for path in (finished / "results").glob("*.parquet"):
        path.unlink()

    said = orchestrator("report", finished)

    assert said.returncode == EXIT_FAILED, said.stderr
    assert f"a record holds at most {blobs.MOST_BYTES:,}" in said.stderr
    assert "Traceback" not in said.stderr
