from hypothesis import given
from hypothesis import strategies as st

from orchestrator.methods._base import Combination
from orchestrator.scheduler.window import Window
from tests.core.fakes import plan

PAIRS = [Combination(("a",)), Combination(("b",)), Combination(("a", "b")), Combination(("c",))]


async def nothing(unit, ask, config):
    return []


def make(max_open=6, n_items=4):
    p = plan(nothing, ("a", "b", "c"), n_items, PAIRS)
    return p, Window(p, iter(range(len(p))), max_open)


def test_positions_come_in_order_while_nobody_is_full():
    _, window = make()
    assert [window.next_position(0, {"a": 0, "b": 0, "c": 0}) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_no_more_units_than_the_window_holds_are_opened():
    _, window = make(max_open=3)
    assert window.next_position(3, {"a": 0, "b": 0, "c": 0}) is None


def test_units_of_a_full_model_are_set_aside_and_others_opened():
    _, window = make()
    full = {"a": 2, "b": 0, "c": 0}
    assert [window.next_position(0, full) for _ in range(4)] == [1, 3, 5, 7]
    assert window.n_aside == 4


def test_what_was_set_aside_comes_first_when_there_is_room_again():
    _, window = make()
    for _ in range(2):
        window.next_position(0, {"a": 2, "b": 0, "c": 0})
    assert window.next_position(0, {"a": 0, "b": 0, "c": 0}) == 0


def test_nothing_is_set_aside_while_no_combination_can_be_opened():
    _, window = make()
    assert window.next_position(0, {"a": 2, "b": 2, "c": 2}) is None
    assert window.n_aside == 0


@given(st.data())
def test_every_position_is_handed_out_exactly_once(data):
    p, window = make(n_items=5)
    got: list[int] = []
    for _ in range(500):
        waiting = {name: data.draw(st.integers(0, 3)) for name in "abc"}
        if len(got) > 15:
            waiting = dict.fromkeys("abc", 0)
        position = window.next_position(0, waiting)
        if position is not None:
            got.append(position)
        if window.empty:
            break
    assert sorted(got) == list(range(len(p)))


def test_no_unit_is_opened_above_the_bound_on_texts_but_always_one():
    p = plan(nothing, ("a", "b", "c"), 4, PAIRS)
    window = Window(p, iter(range(len(p))), 6, max_bytes=1000)
    free = {"a": 0, "b": 0, "c": 0}
    assert window.next_position(0, free, 5000) == 0
    assert window.next_position(1, free, 1000) is None
    assert window.next_position(1, free, 999) == 1
