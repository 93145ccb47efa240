"""Order of the units that a resumed run begins with."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import DONE, FAILED_FOR_NOW
from orchestrator.runner.session import opening as resuming
from orchestrator.runner.session.opening import positions_left, unfinished_before
from tests.store.helpers import key

N = 3


def end(store, plan, statuses):
    for position, status in statuses.items():
        store.put_unit(key(position), plan, position, status, "answers", [(position,)])


@given(st.lists(st.booleans(), min_size=1, max_size=10), st.data())
def test_every_position_that_is_left_comes_once_and_those_of_the_first_items_first(begun, data):
    done = bytearray(data.draw(st.binary(min_size=N * len(begun), max_size=N * len(begun))))
    done = bytearray(byte & 1 for byte in done)
    first = [item for item, is_first in enumerate(begun) if is_first]
    found = list(positions_left(done, first, N))
    assert sorted(found) == [position for position, is_done in enumerate(done) if not is_done]
    items = [position // N for position in found]
    n_first = sum(item in first for item in items)
    assert all(item in first for item in items[:n_first])
    assert found[:n_first] == sorted(found[:n_first])
    assert found[n_first:] == sorted(found[n_first:])


def test_items_that_the_plan_before_had_not_ended_come_first(store, monkeypatch):
    monkeypatch.setattr(resuming, "_FEW_UNITS", 0)
    plan = store.open_plan(b"a" * 16, 9)
    end(store, plan, dict.fromkeys((0, 1, 2, 3, 4, 6, 8), DONE) | {5: FAILED_FOR_NOW})
    assert unfinished_before(store, plan, bytearray(9), N) == (1, 2)
    # Another number of items.
    assert unfinished_before(store, plan, bytearray(6), N) == (1,)
    assert unfinished_before(store, plan, bytearray(12), N) == (1, 2, 3)


def test_no_item_comes_first_where_nothing_was_or_little_is_left(store):
    plan = store.open_plan(b"a" * 16, 9)
    end(store, plan, {0: DONE})
    assert unfinished_before(store, None, bytearray(9_000), N) == ()
    assert unfinished_before(store, plan, bytearray(9), N) == ()
