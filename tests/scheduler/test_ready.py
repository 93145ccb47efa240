"""Order of requests: the item being sent, begun units, new ones; those that waited long."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ask import GenerateAsk, Request
from orchestrator.records import Message
from orchestrator.scheduler.ready import AGE_S, Ready
from tests.core.fakes import SAMPLING


def request(position, *, group=0, begun=False):
    ask = GenerateAsk("m", (Message("user", str(position)),), SAMPLING)
    return Request(b"", ask, 0, position, group=group, begun=begun)


def filled(*requests, now=0.0):
    ready = Ready()
    for one in requests:
        ready.push(one, now)
    return ready


def order(ready, now=0.0):
    return [ready.pop(now).position for _ in range(len(ready))]


def test_an_item_that_was_begun_is_finished_before_an_older_one_that_came_later():
    ready = filled(request(20, group=2), request(21, group=2), request(22, group=2))
    assert ready.pop(0.0).position == 20
    ready.push(request(10, group=1), 0.0)
    assert order(ready) == [21, 22, 10]


def test_items_come_in_the_order_of_their_units_and_units_within_them():
    ready = filled(
        request(31, group=3), request(12, group=1), request(30, group=3), request(11, group=1)
    )
    assert order(ready) == [11, 12, 30, 31]


def test_units_that_have_had_an_answer_come_before_new_ones():
    ready = filled(request(10, group=1), request(20, group=2, begun=True))
    assert order(ready) == [20, 10]


def test_one_begun_unit_brings_its_item_forward():
    ready = filled(request(10, group=1), request(21, group=2), request(20, group=2, begun=True))
    assert order(ready) == [20, 21, 10]


def test_an_item_that_waited_long_goes_before_begun_ones():
    ready = filled(request(10, group=1))
    ready.push(request(20, group=2, begun=True), AGE_S)
    ready.push(request(30, group=3, begun=True), AGE_S)
    assert order(ready, AGE_S + 1) == [10, 20, 30]


def test_age_does_not_part_an_item_that_is_being_sent():
    ready = filled(request(20, group=2, begun=True), request(21, group=2), request(10, group=1))
    assert ready.pop(0.0).position == 20
    assert order(ready, AGE_S + 1) == [21, 10]


def test_clearing_gives_all_in_the_order_of_units():
    ready = filled(request(3, group=1), request(1, group=2), request(2, group=1))
    assert [one.position for one in ready.clear()] == [1, 2, 3]
    assert len(ready) == 0


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), st.booleans()), max_size=60),
    st.lists(st.integers(0, 60), max_size=60),
)
def test_everything_that_was_put_in_comes_out_once(given_requests, times):
    ready, out, pushed = Ready(), [], []
    now = 0.0
    for (position, group, begun), pause in zip(
        given_requests, times + [0] * len(given_requests), strict=False
    ):
        now += pause
        one = request(position, group=group, begun=begun)
        pushed.append(one)
        ready.push(one, now)
        if pause % 2:
            out.append(ready.pop(now))
    out += [ready.pop(now + 100) for _ in range(len(ready))]
    assert sorted(map(id, out)) == sorted(map(id, pushed))
    assert len(ready) == 0


def test_nothing_is_remembered_of_items_that_are_through():
    ready = Ready()
    for item in range(10_000):
        for position in range(4):
            ready.push(request(4 * item + position, group=item), item / 100)
        for _ in range(4):
            ready.pop(item / 100)
    assert len(ready._groups) == 0
    assert len(ready._order) + len(ready._ages) < 10
