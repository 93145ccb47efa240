"""Outcomes that a store lacks are told."""

from types import SimpleNamespace
from typing import Any

from orchestrator.runner.results.stored import missing_notes
from orchestrator.store import RunDirectory


def test_what_a_store_lacks_is_counted(tmp_path):
    with RunDirectory.lock(tmp_path / "made") as run:
        store: Any = SimpleNamespace(last_outcome=7)
        (line,) = missing_notes(store, run, 10)
        assert line.startswith("3 outcomes")
        assert missing_notes(store, run, 7) == []
