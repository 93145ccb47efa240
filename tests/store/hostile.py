"""Runs as somebody may make them who wants to harm whoever opens them."""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import answers
from orchestrator.store import RunDirectory, Store
from tests.view.runs import SETTINGS

HALVED = "store.sqlite"


def hostile_run(path: Path, *, frame: str = "answers", settings: Any = SETTINGS) -> Path:
    """A run that was never exported, with one row in a frame of any name."""
    columns = {"method": "str", **schema_of(answers.Kind)}
    assert polars_schema(columns)
    row = {"method": "answers", "item": "i0", "model": "one", "text": "hello", "status": "ok"}
    with RunDirectory.lock(path) as directory, Store.open(directory.store_path) as store:
        directory.write_revision(
            msgspec.json.encode(
                {"orchestrator": "0", "identities": {}, "recipe": {"description": "", **settings}}
            ).decode()
        )
        store.set_meta("frames", msgspec.json.encode({frame: columns}).decode())
        store.set_meta("units", "1")
        plan = store.open_plan(b"0" * 16, 1)
        store.adopt(plan, [])
        rows = [tuple(row.get(name) for name in columns)]
        store.put_unit(b"1" * 16, plan, 0, 0, frame, rows)
        store.flush()
    return directory.path


def changed(run: Path, *statements: str) -> Path:
    """The run with its store changed by SQL."""
    connection = sqlite3.connect(run / "store.sqlite", isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return run
