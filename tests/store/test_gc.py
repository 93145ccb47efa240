"""Outcomes that no kept plan asks for are dropped, and nothing else changes by a bit."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from orchestrator.errors import StoreError
from orchestrator.records import Failure, Generation, Outcome
from orchestrator.store import Store
from orchestrator.store.merging import unplanned
from tests.store.helpers import choice, key, outcomes_of, put

OLD, NEW = b"o" * 16, b"n" * 16
N = 40
KEPT = {key(number) for number in range(0, N, 2)}


def outcome(number: int) -> Outcome | Failure:
    """Of each kind that is summed apart."""
    if number % 5 == 0:
        return Failure("too_long", "too long", permanent=True, status=400)
    if number % 3 == 0:
        values = np.linspace(-5, 0, 3000, dtype=np.float32)
        return Generation("text" * number, "stop", 7, number, logprobs=values)
    return choice(number)


def fill(path: Path, numbers: range, *, plans: bool = True) -> None:
    with Store.open(path) as store:
        for number in numbers:
            put(store, number, outcome(number))
        if plans:
            for plan_hash, shift in ((OLD, 0), (NEW, N // 2)):
                plan = store.open_plan(plan_hash, N)
                store.adopt(plan, [(at, key(at + shift)) for at in range(N)])
                done = store.done_bitmap(plan, N)
                for at in range(N):
                    if not done[at]:
                        store.put_unit(key(at + shift), plan, at, 0, "judgments", [(at, "row")])


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All tables, in order."""
    names = ("outcome", "tally", "failure", "unit", "plan", "place")
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr)  # noqa: S608
            for name in names
        }


def test_what_is_kept_stays_bit_for_bit(path: Path) -> None:
    fill(path, range(N))
    before = content(path)
    unplanned(path, KEPT, drop=True)
    after = content(path)
    assert after["outcome"] == [row for row in before["outcome"] if row[1] in KEPT]
    with Store.open(path) as store:
        store.check()
        assert set(outcomes_of(store, (key(number) for number in range(N)))) == KEPT
        found = store.get(key(6))
        assert isinstance(found, Generation)
        assert found.text == "text" * 6


def test_sums_are_those_of_a_store_that_never_had_the_rest(path: Path, tmp_path: Path) -> None:
    fill(path, range(N))
    unplanned(path, KEPT, drop=True)
    other = tmp_path / "other.sqlite"
    fill(other, range(0, N, 2), plans=False)
    with Store.open(path) as store, Store.open(other) as expected:
        assert store.counts() == expected.counts()
        assert [(f.model, f.cause, f.n) for f in store.failures()] == [
            (f.model, f.cause, f.n) for f in expected.failures()
        ]


def test_units_of_other_plans_go_and_those_of_the_current_one_stay(path: Path) -> None:
    fill(path, range(N))
    assert len(content(path)["plan"]) == 2
    found = unplanned(path, KEPT, drop=True)
    assert found.n_units == N // 2
    assert len(content(path)["plan"]) == 1
    with Store.open(path) as store:
        plan = store.current_plan
        assert plan is not None
        assert len(list(store.iter_rows(plan, "judgments"))) == N


def test_counting_changes_nothing_and_says_what_is_dropped(path: Path) -> None:
    fill(path, range(N))
    before = path.read_bytes()
    counted = unplanned(path, KEPT)
    assert path.read_bytes() == before
    assert sum(counted.outcomes.values()) == N // 2
    assert counted.n_kept == N // 2
    assert counted == unplanned(path, KEPT, drop=True)
    assert unplanned(path, KEPT) == ({}, N // 2, 0, 0)


def test_the_room_is_given_back(path: Path) -> None:
    fill(path, range(10 * N))
    before = path.stat().st_size
    found = unplanned(path, set(), drop=True)
    assert found.n_kept == 0
    assert path.stat().st_size < before / 2


def test_more_can_be_put_afterwards(path: Path) -> None:
    fill(path, range(N))
    unplanned(path, KEPT, drop=True)
    with Store.open(path) as store:
        put(store, 1, outcome(1))
        put(store, N + 1, outcome(N + 1))
    with Store.open(path) as store:
        store.check()
        assert len(outcomes_of(store, [key(1), key(N + 1), key(0), key(3)])) == 3


def test_where_something_is_damaged_nothing_is_dropped(path: Path) -> None:
    fill(path, range(N))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE outcome SET head=x'02' WHERE key=?", (key(7),))
    before = content(path)
    with pytest.raises(StoreError, match="repair"):
        unplanned(path, KEPT, drop=True)
    assert content(path) == before
