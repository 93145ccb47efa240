"""Runs that lend: which may, which server's answers are taken, and what is said of the others."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from orchestrator.backend import Provenance
from orchestrator.errors import Fault, RecipeError, ServerChangedError
from orchestrator.probing.record import ProbeRecord
from orchestrator.recipe.settings import ReusedRun
from orchestrator.runner.models.records import probe_record
from orchestrator.runner.planning.reuse import Copies, open_lenders
from orchestrator.runner.results.frames import rows_by_epoch
from orchestrator.runner.results.stored import server_notes
from orchestrator.store import RunDirectory, Store, StoredServer
from tests.store.helpers import choice, key

IDENTITY = bytes(range(16))
OURS, THEIRS = (f"{name} {IDENTITY.hex()[:12]}" for name in ("mine", "theirs"))
FIRST, SECOND = (
    Provenance(backend="fake", base_url="http://127.0.0.1:1", model="m", version=version)
    for version in ("1", "2")
)


def lend(path: Path, numbers: range, *servers: Provenance, label: str = THEIRS) -> ReusedRun:
    """A run with an outcome for each number, given by the servers in turn."""
    with RunDirectory.lock(path) as directory, Store.open(directory.store_path) as store:
        for number in numbers:
            store.put_outcome(
                key(number), "choose", "theirs", choice(number),
                server=store.server_id(label, servers[number % len(servers)]),
                prompt_hash=b"", attempts=1, latency_s=0.1,
            )  # fmt: skip
    return ReusedRun(str(path), f"../{path.name}", Fault("r.yaml", 7, "reuse.0: "))


class Borrowing:
    """A run that reuses others."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self._stack = stack
        directory = stack.enter_context(RunDirectory.lock(path))
        self.store = stack.enter_context(Store.open(directory.store_path))

    def copies(self, *runs: ReusedRun, accept: bool = False) -> Copies:
        lenders = self._stack.enter_context(open_lenders(runs, self.path))
        return Copies(lenders, self.store, {"mine": OURS}, accept_change=accept)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Borrowing]:
    with ExitStack() as stack:
        yield Borrowing(tmp_path / "run", stack)


def find(copies: Copies, number: int) -> Any:
    return copies.find(key(number), "choose", "mine")


def test_the_first_run_that_has_an_outcome_lends_it(run, tmp_path):
    copies = run.copies(
        lend(tmp_path / "a", range(3), FIRST), lend(tmp_path / "b", range(5), FIRST)
    )
    assert [find(copies, number) for number in (2, 4)] == [choice(2), choice(4)]
    assert find(copies, 9) is None
    assert copies.n_copied == {"../a": 1, "../b": 1}
    assert run.store.get(key(4)) == choice(4)


def test_a_run_says_what_was_copied_and_from_where(run, tmp_path):
    copies = run.copies(lend(tmp_path / "a", range(3), FIRST))
    find(copies, 0)
    find(copies, 1)
    notes = server_notes({"mine": run.store.servers_used(OURS)})
    assert notes == [f"2 outcomes were copied from {tmp_path / 'a'} (mine 2)"]


def test_outcomes_of_another_server_than_this_run_s_stop_it(run, tmp_path):
    copies = run.copies(lend(tmp_path / "a", range(3), FIRST))
    run.store.server_id(OURS, SECOND)
    with pytest.raises(ServerChangedError, match=r"../a was answered by fake 1 .* by fake 2"):
        find(copies, 0)
    assert run.store.get(key(0)) is None


def test_two_servers_of_one_run_stop_a_run_that_reuses_both(run, tmp_path):
    copies = run.copies(lend(tmp_path / "a", range(4), FIRST, SECOND))
    assert find(copies, 0) == choice(0)
    with pytest.raises(ServerChangedError):
        find(copies, 1)


def test_what_is_accepted_once_is_accepted_by_later_calls(run, tmp_path):
    lent = lend(tmp_path / "a", range(4), FIRST)
    run.store.server_id(OURS, SECOND)
    assert find(run.copies(lent, accept=True), 0) == choice(0)
    assert find(run.copies(lent), 2) == choice(2)
    assert run.store.server_of_model(OURS) == StoredServer(OURS, SECOND)


def test_a_run_says_of_servers_that_differ_which_were_another_run_s(run, tmp_path):
    own = run.store.server_id(OURS, SECOND)
    run.store.put_outcome(
        key(9), "choose", "mine", choice(9),
        server=own, prompt_hash=b"", attempts=1, latency_s=0.1,
    )  # fmt: skip
    find(run.copies(lend(tmp_path / "a", range(4), FIRST), accept=True), 0)
    run.store.flush()
    _, note = server_notes({"mine": run.store.servers_used(OURS)})
    assert "come from 2 different servers" in note
    assert f"fake 1 as 'm', copied from {tmp_path / 'a'}: 1" in note


def test_a_connected_server_is_held_to_those_of_other_runs_before_it_is_asked(run, tmp_path):
    copies = run.copies(lend(tmp_path / "a", range(4), FIRST))
    copies.check("mine", FIRST)
    with pytest.raises(ServerChangedError):
        copies.check("mine", SECOND)


def test_a_connected_server_of_another_version_is_met_again_once_accepted(run, tmp_path):
    lent = lend(tmp_path / "a", range(4), FIRST)
    run.copies(lent, accept=True).check("mine", SECOND)
    run.copies(lent).check("mine", SECOND)


def test_servers_of_another_identity_are_not_compared(run, tmp_path):
    copies = run.copies(lend(tmp_path / "a", range(4), FIRST, label="mine 0123456789ab"))
    copies.check("mine", SECOND)


def test_what_the_probe_found_of_a_server_comes_with_its_answers(run, tmp_path):
    lent = lend(tmp_path / "a", range(4), FIRST)
    record = ProbeRecord(backend="fake", model="m", version="1", fingerprint="")
    with Store.open(tmp_path / "a" / "store.sqlite") as store:
        store.set_meta(f"probe {THEIRS}", msgspec.json.encode(record).decode())
    find(run.copies(lent), 0)
    assert probe_record(run.store, OURS) == record


def test_a_damaged_outcome_stops_the_run_with_the_line_of_the_recipe(run, tmp_path):
    lent = lend(tmp_path / "a", range(4), FIRST)
    with closing(sqlite3.connect(tmp_path / "a" / "store.sqlite")) as connection, connection:
        connection.execute("UPDATE outcome SET head=x'02' WHERE key=?", (key(2),))
    copies = run.copies(lent)
    assert find(copies, 1) == choice(1)
    with pytest.raises(
        RecipeError, match=r"^r.yaml:7: reuse.0: '../a' cannot be reused: .*damaged"
    ):
        find(copies, 2)


def test_a_run_can_t_reuse_itself(run, tmp_path):
    itself = ReusedRun(str(run.path), "../run", Fault("r.yaml", 7, "reuse.0: "))
    with pytest.raises(RecipeError, match=r"r.yaml:7: reuse.0: '../run' is this run"):
        run.copies(itself)


def test_a_store_that_can_t_be_read_is_a_fault_with_its_line(run, tmp_path):
    lent = lend(tmp_path / "a", range(1), FIRST)
    (tmp_path / "a" / "store.sqlite").write_bytes(b"no database, " * 1000)
    with pytest.raises(RecipeError, match=r"r.yaml:7: reuse.0: '../a' cannot be reused"):
        run.copies(lent)


def test_rows_are_counted_by_the_servers_they_rest_on_where_there_are_several():
    def frame(method: str, *epochs: int) -> pl.DataFrame:
        return pl.DataFrame({"method": [method] * len(epochs), "server_epoch": list(epochs)})

    frames = {"answers": frame("answers", 0, 1, 1), "items": pl.DataFrame({"item": ["a"]})}
    frames["judgments"] = frame("pairs", 1, 2)
    rows = rows_by_epoch(frames)
    assert rows == {"answers": {0: 1, 1: 2}, "pairs": {1: 1, 2: 1}}
    assert rows_by_epoch({"answers": frame("answers", 1, 1)}) == {}
