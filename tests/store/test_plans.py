"""Units and where they stand in a plan that changes between calls."""

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.store import Store, reading, values
from tests.store.helpers import key

A, B = b"a" * 16, b"b" * 16
DONE, FAILED, FOR_NOW, FAULT = range(4)


def put_units(store: Store, plan: int, statuses: dict[int, int], *, shift: int = 0) -> None:
    """Units whose hash is their position less the shift."""
    for position, status in statuses.items():
        unit = key(position - shift)
        store.put_unit(unit, plan, position, status, "answers", [(position - shift, "text")])


def units(n: int, *, shift: int = 0) -> list[tuple[int, bytes]]:
    return [(position, key(position - shift)) for position in range(n)]


def test_bitmap_marks_what_need_not_be_evaluated_again(store: Store) -> None:
    plan = store.open_plan(A, 6)
    put_units(store, plan, {0: DONE, 2: FAILED, 3: FOR_NOW, 4: FAULT})
    assert list(store.done_bitmap(plan, 6)) == [1, 0, 1, 0, 0, 0]


def test_first_plan_has_nothing_to_adopt(store: Store) -> None:
    assert not store.is_current_plan(A)
    store.open_plan(A, 6)
    assert store.is_current_plan(A)


def test_units_are_not_read_where_none_is_stored(store: Store) -> None:
    plan = store.open_plan(A, 6)
    never = (pytest.fail("read") for _ in range(1))
    store.adopt(plan, never)
    assert store.n_ended(plan) == 0


def test_plan_is_the_same_after_closing(path: Path) -> None:
    with Store.open(path) as store:
        plan = store.open_plan(A, 3)
        put_units(store, plan, {1: DONE})
    with Store.open(path) as store:
        assert store.current_plan == plan
        assert store.is_current_plan(A)
        assert store.open_plan(A, 3) == plan
        assert list(store.done_bitmap(plan, 3)) == [0, 1, 0]


def test_changed_plan_keeps_its_shared_units(store: Store) -> None:
    put_units(store, store.open_plan(A, 4), {0: DONE, 1: DONE, 3: FOR_NOW})
    plan = store.open_plan(B, 8)
    assert not store.is_current_plan(B)
    store.adopt(plan, units(8, shift=2))
    assert store.n_ended(plan) == 2
    assert store.is_current_plan(B)
    assert list(store.done_bitmap(plan, 8)) == [0, 0, 1, 1, 0, 0, 0, 0]


def test_returning_to_a_plan_finds_what_the_other_ended(store: Store) -> None:
    first = store.open_plan(A, 6)
    put_units(store, first, {0: DONE, 1: FOR_NOW})
    other = store.open_plan(B, 6)
    store.adopt(other, units(6))
    put_units(store, other, {1: DONE, 2: DONE})
    assert store.open_plan(A, 6) == first
    assert not store.is_current_plan(A)
    store.adopt(first, units(6))
    assert store.n_ended(first) == 3
    assert list(store.done_bitmap(first, 6)) == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("is_other", [False, True], ids=["the same plan", "another plan"])
@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([DONE, FAILED, FOR_NOW, FAULT]), min_size=1, max_size=12))
def test_a_call_knows_no_failure_of_the_moment_of_an_earlier_one(is_other, statuses):
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "s.sqlite") as store:
        n = len(statuses)
        put_units(store, store.open_plan(A, n), dict(enumerate(statuses)))
        plan = store.open_plan(B if is_other else A, n)
        if is_other:
            store.adopt(plan, units(n))
        lasting = [position for position, status in enumerate(statuses) if status < FOR_NOW]
        assert [unit.position for unit in store.iter_rows(plan, "answers")] == lasting
        assert store.n_ended(plan) == len(lasting)
        assert list(store.done_bitmap(plan, n)) == [status < FOR_NOW for status in statuses]
        put_units(store, plan, dict.fromkeys(range(n), DONE))
        assert [unit.position for unit in store.iter_rows(plan, "answers")] == list(range(n))


def test_adoption_that_was_cut_off_is_not_believed(path: Path) -> None:
    with Store.open(path) as store:
        put_units(store, store.open_plan(A, 2), {0: DONE})
        store.open_plan(B, 2)
    with Store.open(path) as store:
        assert not store.is_current_plan(B)
        store.open_plan(B, 2)
        assert not store.is_current_plan(B)


def test_unit_that_failed_for_the_moment_is_replaced(store: Store) -> None:
    plan = store.open_plan(A, 2)
    store.put_unit(key(0), plan, 0, FOR_NOW, "answers", [("failed",)], cause="timeout")
    store.put_unit(key(0), plan, 0, DONE, "answers", [("done",)])
    (unit,) = store.iter_rows(plan, "answers")
    assert (unit.status, unit.rows) == (DONE, [("done",)])


def test_unit_that_is_done_stays_as_it_is(store: Store) -> None:
    plan = store.open_plan(A, 2)
    store.put_unit(key(0), plan, 0, DONE, "answers", [("first",)])
    store.put_unit(key(0), plan, 0, FOR_NOW, "answers", [("second",)])
    (unit,) = store.iter_rows(plan, "answers")
    assert (unit.status, unit.rows) == (DONE, [("first",)])


def test_rows_come_in_the_order_of_the_plan_in_any_batch(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_ROWS_AT_ONCE", 7)
    plan = store.open_plan(A, 50)
    for position in reversed(range(50)):
        frame = "answers" if position % 3 else "judgments"
        store.put_unit(key(position), plan, position, DONE, frame, [(position,), (-position,)])
    found = list(store.iter_rows(plan, "answers"))
    wanted = [position for position in range(50) if position % 3]
    assert [unit.position for unit in found] == wanted
    assert [unit.rows for unit in found] == [[(n,), (-n,)] for n in wanted]
    assert list(store.iter_rows(plan, "no such frame")) == []


def test_a_unit_at_two_positions_is_damage(path: Path) -> None:
    with Store.open(path) as store:
        plan = store.open_plan(A, 3)
        put_units(store, plan, dict.fromkeys(range(3), DONE))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE place SET unit=(SELECT min(unit) FROM place)")
    connection.commit()
    connection.close()
    with Store.open(path) as store, pytest.raises(StoreError, match="2 units have two positions"):
        list(store.iter_rows(plan, "answers"))


def test_a_unit_that_is_gone_is_damage(path: Path) -> None:
    with Store.open(path) as store:
        plan = store.open_plan(A, 3)
        put_units(store, plan, dict.fromkeys(range(3), DONE))
        store.check_places(plan)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE place SET unit=99 WHERE position=1")
    connection.commit()
    connection.close()
    with (
        Store.open(path) as store,
        pytest.raises(StoreError, match="1 positions have a missing unit"),
    ):
        store.check_places(plan)


@pytest.mark.parametrize(
    ("damage", "n_read"),
    [
        ("UPDATE unit SET frame=frame+1 WHERE id=2", 2),
        ("UPDATE place SET position=7 WHERE position=1", 3),
        ("UPDATE unit SET frame=frame", 0),
    ],
)
def test_units_that_are_in_no_frame_or_too_many_are_damage(path: Path, damage, n_read) -> None:
    with Store.open(path) as store:
        plan = store.open_plan(A, 3)
        put_units(store, plan, dict.fromkeys(range(3), DONE))
        store.check_places(plan, 3)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(damage)
        if "position" in damage:
            connection.execute("INSERT INTO place VALUES (1, 1, 3)")
        connection.commit()
    with Store.open(path) as store, pytest.raises(StoreError, match="of 3 units"):
        store.check_places(plan, n_read)


def test_what_is_done_is_told_without_the_rows_of_units(path: Path) -> None:
    with Store.open(path) as store:
        plan = store.open_plan(A, 4)
        put_units(store, plan, {0: DONE, 1: FOR_NOW, 2: FAULT, 3: FAILED})
        assert list(store.done_bitmap(plan, 4)) == [1, 0, 0, 1]
        put_units(store, plan, {1: DONE})
        assert list(store.done_bitmap(plan, 4)) == [1, 1, 0, 1]
    connection = sqlite3.connect(path)
    (found,) = connection.execute(f"EXPLAIN QUERY PLAN {reading._OPEN}", (0, 1)).fetchall()
    connection.close()
    assert "open_unit" in found[3]


def test_rows_of_an_old_plan_can_still_be_read(store: Store) -> None:
    old = store.open_plan(A, 2)
    put_units(store, old, {0: DONE, 1: DONE})
    store.adopt(store.open_plan(B, 1), units(1))
    assert len(list(store.iter_rows(old, "answers"))) == 2


def test_units_that_ended_in_whatever_way_are_counted(store: Store) -> None:
    plan = store.open_plan(A, 9)
    put_units(store, plan, {0: DONE, 1: FAILED, 4: FOR_NOW})
    assert store.n_ended(plan) == 3
    put_units(store, plan, {4: DONE})
    assert store.n_ended(plan) == 3
    assert store.n_ended(plan + 1) == 0


def test_stamp_changes_with_the_units(store: Store) -> None:
    plan = store.open_plan(A, 3)
    stamps = [store.units_stamp(plan)]
    put_units(store, plan, {0: FOR_NOW})
    stamps.append(store.units_stamp(plan))
    put_units(store, plan, {0: DONE})
    stamps.append(store.units_stamp(plan))
    store.adopt(plan, units(3))
    stamps.append(store.units_stamp(plan))
    assert stamps == sorted(set(stamps))


@pytest.mark.parametrize("shift", [0, 1])
def test_adoption_of_more_units_than_one_slice(
    store: Store, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    monkeypatch.setattr(values, "UNITS_AT_ONCE", 1_000)
    plan = store.open_plan(A, 3_500)
    put_units(store, plan, dict.fromkeys(range(3_500), DONE))
    other = store.open_plan(B, 3_500)
    store.adopt(other, units(3_500, shift=shift))
    assert store.n_ended(other) == 3_500 - shift
    assert store.done_bitmap(other, 3_500).count(1) == 3_500 - shift
    rows = [unit.rows for unit in store.iter_rows(other, "answers")]
    assert rows == [[(position, "text")] for position in range(3_500 - shift)]


def test_of_units_that_stand_where_they_stood_only_those_that_are_done_stay(store: Store) -> None:
    put_units(store, store.open_plan(A, 4), {0: DONE, 1: FOR_NOW, 2: DONE, 3: FAILED})
    plan = store.open_plan(B, 4)
    store.adopt(plan, units(4))
    assert store.n_ended(plan) == 3
    assert list(store.done_bitmap(plan, 4)) == [1, 0, 1, 1]
