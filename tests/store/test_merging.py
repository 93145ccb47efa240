"""Stores are put together in bulk: nothing is lost, and what differs is counted."""

import os
import random
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ask import digest
from orchestrator.backend import Provenance
from orchestrator.errors import OrchestratorError, RunDirectoryError, StoreError
from orchestrator.records import Choice, Failure, Outcome
from orchestrator.store import RunDirectory, Store, opened
from orchestrator.store.merging import FromRun, merge, put_in_place
from tests.store.helpers import choice, key, origin, outcomes_of
from tests.store.test_codec import alternatives, generations

SERVER = Provenance(backend="fake", base_url="http://127.0.0.1:1", model="m", version="1")
OTHER = msgspec.structs.replace(SERVER, version="2")
TOO_LONG = Failure("too_long", "too long", permanent=True)
BUSY = Failure("overloaded", "busy", permanent=False, status=503)
PLAN = b"p" * 16
N_UNITS = 40


def make(
    path: Path,
    outcomes: Mapping[int, Outcome | Failure],
    units: dict[int, tuple[int, float]] | None = None,
    *,
    server: Provenance = SERVER,
) -> Path:
    """A run with outcomes by number, and units by position: status and a number in their rows."""
    with RunDirectory.lock(path) as directory, Store.open(directory.store_path) as store:
        number = store.server_id("judge 00", server)
        for at, outcome in outcomes.items():
            store.put_outcome(
                key(at), "choose", "judge", outcome,
                server=number, prompt_hash=key(-at), attempts=2, latency_s=random.random(),
            )  # fmt: skip
        store.put_attempt(key(0), "judge", BUSY)
        if units is not None:
            plan = store.open_plan(PLAN, N_UNITS)
            for position, (status, value) in units.items():
                row = [(f"item {position}", value)]
                unit = digest("unit", position)
                store.put_unit(unit, plan, position, status, "judgments", row)
    return path


def merged(
    folder: Path, *runs: Path, plan: bytes | None = PLAN, into: str = "new"
) -> tuple[Path, list[FromRun]]:
    work = folder / into
    work.mkdir()
    with ExitStack() as stack:
        stores = [stack.enter_context(opened(run, work)) for run in runs]
        return work / "store.sqlite", merge(stores, work, plan, lambda _: None)


def rows(path: Path) -> list[tuple[object, ...]]:
    columns = "SELECT key, attempts, latency_s, at_ms, prompt_hash, head, arrays FROM outcome"
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute(columns).fetchall())


def files_of(run: Path) -> dict[str, str]:
    return {
        str(path): sha256(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file()
    }


@given(st.lists(generations | alternatives, max_size=6), st.integers(0, 6))
@settings(max_examples=20, deadline=None)
def test_every_byte_of_every_run_is_there(outcomes: list[Outcome], cut: int) -> None:
    held = dict(enumerate(outcomes))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = make(folder / "a", {at: one for at, one in held.items() if at < cut})
        second = make(folder / "b", {at: one for at, one in held.items() if at >= cut})
        before = files_of(first) | files_of(second)
        new, found = merged(folder, first, second, plan=None)
        assert rows(new) == sorted(rows(first / "store.sqlite") + rows(second / "store.sqlite"))
        assert sum(one.n_outcomes for one in found) == len(outcomes)
        assert files_of(first) | files_of(second) == before
        with Store.open(new) as store:
            assert len(outcomes_of(store, map(key, range(len(outcomes))))) == len(outcomes)
            store.check()


def test_sums_of_use_and_failed_attempts_are_added(tmp_path: Path) -> None:
    first = make(tmp_path / "a", {1: choice(1), 2: TOO_LONG})
    second = make(tmp_path / "b", {3: choice(3), 4: TOO_LONG})
    new, _ = merged(tmp_path, first, second)
    with Store.open(new) as store:
        counts = {count.cause: count for count in store.counts()}
        failures = {found.cause: found for found in store.failures()}
    assert (counts[""].n, counts[""].n_attempts, counts[""].n_prompt_tokens) == (2, 4, 20)
    assert counts["too_long"].n == 2
    assert (failures["overloaded"].n, failures["too_long"].n) == (2, 2)


def test_names_and_servers_get_common_numbers(tmp_path: Path) -> None:
    first = make(tmp_path / "a", {1: choice(1)})
    second = make(tmp_path / "b", {2: choice(2)}, server=OTHER)
    third = make(tmp_path / "c", {3: choice(3)})
    new, _ = merged(tmp_path, first, second, third)
    with Store.open(new) as store:
        used = store.servers_used("judge 00")
        assert [(use.provenance.version, use.n) for use in used] == [("1", 2), ("2", 1)]
        assert origin(store, 3)[:3] == ("choose", "judge", 2)


def test_an_equal_reply_is_kept_once_whatever_it_took(tmp_path: Path) -> None:
    first = make(tmp_path / "a", {1: choice(1)})
    cached = msgspec.structs.replace(choice(1), n_cached_tokens=9)
    second = make(tmp_path / "b", {1: cached, 2: choice(2)})
    new, (_, found) = merged(tmp_path, first, second)
    assert (found.n_same, found.n_conflicts, found.is_contained) == (1, 0, False)
    with Store.open(new) as store:
        (count,) = store.counts()
        assert (count.n, count.n_cached_tokens) == (2, 8)


def test_another_reply_is_counted_and_the_run_named_first_is_kept(tmp_path: Path) -> None:
    first = make(tmp_path / "a", {1: choice(1)}, {0: (0, 1.0)})
    second = make(tmp_path / "b", {1: choice(5), 2: choice(2)}, {0: (0, 5.0), 1: (0, 2.0)})
    new, (_, found) = merged(tmp_path, first, second)
    # Units of the second may rest on the reply that was not kept.
    assert (found.n_conflicts, found.n_units_left) == (1, 2)
    with Store.open(new) as store:
        assert store.get(key(1)) == choice(1)
        assert store.done_bitmap(store.current_plan or 0, 3) == bytearray((1, 0, 0))


def test_a_good_outcome_is_kept_before_a_failure(tmp_path: Path) -> None:
    first = make(tmp_path / "a", {1: TOO_LONG, 2: choice(2)}, {0: (1, 0.0)})
    second = make(tmp_path / "b", {1: choice(1), 2: TOO_LONG}, {0: (0, 1.0)})
    new, (before, after) = merged(tmp_path, first, second)
    assert (before.n_conflicts, after.n_conflicts) == (1, 1)
    with Store.open(new) as store:
        assert (store.get(key(1)), store.get(key(2))) == (choice(1), choice(2))
        assert [(count.cause, count.n) for count in store.counts()] == [("", 2)]
        assert {one.cause for one in store.failures()} == {"overloaded"}


def test_units_of_one_plan_stand_at_their_positions(tmp_path: Path) -> None:
    first = make(tmp_path / "a", {1: choice(1)}, {at: (0, at) for at in range(20)})
    second = make(tmp_path / "b", {2: choice(2)}, {at: (0, at) for at in range(20, 40)})
    new, _ = merged(tmp_path, first, second)
    with Store.open(new) as store:
        assert store.is_current_plan(PLAN)
        plan = store.current_plan or 0
        found = [unit.rows[0] for unit in store.iter_rows(plan, "judgments")]
        assert found == [(f"item {at}", at) for at in range(40)]
        store.check_places(plan, 40)


def test_a_unit_that_is_done_is_kept_before_one_that_failed(tmp_path: Path) -> None:
    first = make(tmp_path / "a", {}, {0: (1, -1.0), 1: (3, -1.0), 2: (0, 2.0)})
    second = make(tmp_path / "b", {}, {0: (0, 0.0), 1: (0, 1.0), 2: (0, 9.0)})
    new, (_, found) = merged(tmp_path, first, second)
    # Of two that are done with other rows, that of the first.
    assert found.n_unit_conflicts == 1
    with Store.open(new) as store:
        plan = store.current_plan or 0
        assert [one.rows[0][1] for one in store.iter_rows(plan, "judgments")] == [0.0, 1.0, 2.0]
        store.check_places(plan, 3)


def test_rows_that_name_servers_otherwise_are_made_again(tmp_path: Path) -> None:
    first = make(tmp_path / "a", {1: choice(1)}, {0: (0, 1.0)})
    second = make(tmp_path / "b", {2: choice(2)}, {1: (0, 2.0)}, server=OTHER)
    _, (_, found) = merged(tmp_path, first, second)
    # Its rows say server 0, which is server 1 of the merged run.
    assert found.n_units_left == 1


def test_a_copy_is_known_and_its_failed_attempts_count_once(tmp_path: Path) -> None:
    run = make(tmp_path / "a", {1: choice(1), 2: choice(2)})
    copy = tmp_path / "copy"
    os.system(f"cp -r {run} {copy}")  # noqa: S605 (paths of this test)
    new, (_, found) = merged(tmp_path, run, copy)
    assert found.is_contained
    with Store.open(new) as store:
        assert [one.n for one in store.failures()] == [1]


def test_the_log_of_a_killed_run_is_read_and_left(tmp_path: Path) -> None:
    run = make(tmp_path / "a", {1: choice(1)})
    killed = tmp_path / "killed"
    with Store.open(run / "store.sqlite") as store:
        store.put_outcome(
            key(2), "choose", "judge", choice(2),
            server=1, prompt_hash=b"", attempts=1, latency_s=0.1,
        )  # fmt: skip
        store.flush()
        killed.mkdir()
        for name in ("store.sqlite", "store.sqlite-wal", "run.json"):
            (killed / name).write_bytes((run / name).read_bytes())
    before = files_of(killed)
    new, _ = merged(tmp_path, killed)
    assert files_of(killed) == before
    with Store.open(new) as store:
        assert store.get(key(2)) == choice(2)


def test_more_runs_than_sqlite_attaches_at_once(tmp_path: Path) -> None:
    runs = [make(tmp_path / str(at), {at: choice(at)}, {at: (0, at)}) for at in range(14)]
    new, _ = merged(tmp_path, *runs)
    with Store.open(new) as store:
        assert store.done_bitmap(store.current_plan or 0, N_UNITS).count(1) == 14


@pytest.mark.parametrize(
    ("read", "write"),
    [
        ("SELECT head FROM outcome", "UPDATE outcome SET head=?"),
        ("SELECT rows FROM unit", "UPDATE unit SET rows=?"),
    ],
)
def test_a_flipped_bit_is_refused_with_the_file(tmp_path: Path, read: str, write: str) -> None:
    first = make(tmp_path / "a", {1: choice(1)}, {0: (0, 1.0)})
    second = make(tmp_path / "b", {2: choice(2)}, {1: (0, 2.0)})
    with closing(sqlite3.connect(second / "store.sqlite")) as connection, connection:
        ((blob,),) = connection.execute(read).fetchall()
        wrong = blob[:-1] + bytes((blob[-1] ^ 1,))
        connection.execute(write, (wrong,))
    before = files_of(second)
    with pytest.raises(StoreError, match=r"b/store.sqlite.*damaged.*orchestrator runs repair"):
        merged(tmp_path, first, second)
    assert files_of(second) == before


@pytest.mark.parametrize("seed", range(12))
def test_damage_anywhere_is_refused_or_costs_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    long = {at: Choice((-0.1 * at,) * 40, (-0.1,) * 40, "x" * 200, 1, 1, 1) for at in range(60)}
    run = make(tmp_path / "a", long, {at: (0, at) for at in range(N_UNITS)})
    store = run / "store.sqlite"
    content = bytearray(store.read_bytes())
    for _ in range(4):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    whole = rows(store)
    store.write_bytes(content)
    new, said = None, ""
    try:
        new, _ = merged(tmp_path, run)
    except OrchestratorError as error:
        said = str(error)
    if new is None:
        assert str(store) in said
    else:
        assert [row[5:] for row in rows(new)] == [row[5:] for row in whole]


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path / "a", {at: choice(at) for at in range(400)})
    store = run / "store.sqlite"
    store.write_bytes(store.read_bytes()[: store.stat().st_size // 2])
    with pytest.raises(StoreError, match=f"{store}.*damaged"):
        merged(tmp_path, run)


def test_a_run_without_a_store_is_refused(tmp_path: Path) -> None:
    with RunDirectory.lock(tmp_path / "a"):
        pass
    with pytest.raises(RunDirectoryError, match="no run has been started"):
        merged(tmp_path, tmp_path / "a")


def test_a_store_with_a_log_is_not_replaced(tmp_path: Path) -> None:
    run = make(tmp_path / "a", {1: choice(1)})
    new, _ = merged(tmp_path, run)
    (run / "store.sqlite-wal").write_bytes(b"log")
    with pytest.raises(StoreError, match="has a log"):
        put_in_place(new, run / "store.sqlite")
