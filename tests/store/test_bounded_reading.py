"""Bounds on reading suit what is read: a damaged file's its length, a live run's its copy."""

import itertools
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.disk import paths
from orchestrator.store import Store, owner, schema
from tests.store.helpers import put

COUNTING = """WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM number WHERE i<9999)
    SELECT max(i) FROM number"""
WRITER = """
import sys
from pathlib import Path
from orchestrator.store.entries import (MetaEntry)
from orchestrator.store.schema import snapshot_path
from orchestrator.store.connections import Tables

path = Path(sys.argv[1])
tables = Tables(path, exclusive=True)
tables.write([MetaEntry("spent", "published")])
tables.publish(snapshot_path(path))
tables.write([MetaEntry("spent", "later")])
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which ten seconds pass between two looks at it."""
    times = itertools.count(0.0, 10.0)
    monkeypatch.setattr(owner, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(owner, "_STEPS", 1000)


@pytest.mark.usefixtures("slow_clock")
def test_reading_a_long_damaged_file_may_take_long(path: Path) -> None:
    with Store.open(path) as store:
        put(store, 0)
    with closing(schema.connect_damaged(path)) as short, pytest.raises(sqlite3.OperationalError):
        short.execute(COUNTING).fetchone()
    # With a hole, which takes no room.
    os.truncate(path, 64 << 30)
    with closing(schema.connect_damaged(path)) as long:
        assert long.execute(COUNTING).fetchone() == (9999,)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """A run that holds its store alone, as on a network file system, and publishes copies."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == b"ready\n"
            yield
        finally:
            writer.kill()


def spent(path: Path) -> str:
    with closing(schema.connect_reader(path)) as connection:
        ((value,),) = connection.execute("SELECT value FROM meta WHERE key='spent'").fetchall()
    return str(value)


def test_of_a_live_run_on_a_network_file_system_the_published_copy_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files that are being written, copied one after the other, do not fit together.
    monkeypatch.setattr(paths, "_distrusted", {path.parent.resolve()})
    with written(path):
        before = sorted(path.parent.iterdir())
        assert spent(path) == "published"
        assert sorted(path.parent.iterdir()) == before
    # Killed: nobody holds it, and what was committed since is in its log.
    assert spent(path) == "later"
    assert sorted(path.parent.iterdir()) == before
