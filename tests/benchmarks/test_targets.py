"""The table of targets says of each whether it is met, missed by how much, or was not measured."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def targets(monkeypatch):
    # The scripts of that folder import one another as files beside them.
    monkeypatch.syspath_prepend(str(FOLDER))
    return SimpleNamespace(**runpy.run_path(str(FOLDER / "targets.py"), run_name="targets"))


def line(table: str, what: str) -> str:
    (found,) = (one for one in table.splitlines() if one.startswith(f"| {what} |"))
    return found


def test_what_is_met_and_what_is_missed(targets):
    table = targets.table({"help_s": 0.1, "check_s": 0.5, "open_of_512": 500.0})
    assert "| met |" in line(table, "`orchestrator --help`")
    assert "**missed** by 25 %" in line(table, "`orchestrator check`")
    assert "**missed** by 2 %" in line(table, "open requests, 512 allowed")
    assert "| not measured |" in line(table, "stored bytes of a judgment")
    assert f"1 of {len(targets.TARGETS)} are met" in table


def test_each_target_has_its_own_figure(targets):
    keys = [target.key for target in targets.TARGETS]
    assert len(set(keys)) == len(keys)
