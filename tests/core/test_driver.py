import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ask import AskFailed, GenerateAsk
from orchestrator.contracts.method import Combination
from orchestrator.driver import Driver
from orchestrator.errors import StoreError
from orchestrator.records import (
    DONE,
    FAILED,
    FAILED_FOR_NOW,
    FAULTY,
    Failure,
    Generation,
    Message,
    Sampling,
    Scored,
    TopLogprobs,
)
from tests.core.fakes import BAD, BUSY, SAMPLING, answer, generation, plan, row


async def one(unit, ask, config):
    got = await ask.generate(unit.models[0], unit.item.messages, SAMPLING)
    return [row(unit, got.text)]


async def chain(unit, ask, config):
    first = await ask.generate(unit.models[0], unit.item.messages, SAMPLING)
    second = await ask.generate(unit.models[0], unit.item.messages, SAMPLING, repeat=1)
    return [row(unit, first.text + second.text)]


def make(evaluate, lookup=lambda key: None, systems=None, **kwargs):
    return Driver(plan(evaluate, **kwargs), lookup, systems or {})


def answer_all(driver):
    while driver.outbox:
        request = driver.outbox.popleft()
        driver.deliver(request, answer(request))


def test_a_unit_ends_with_the_rows_its_method_returned():
    driver = make(one)
    driver.open(0)
    answer_all(driver)
    (end,) = driver.finished
    assert (end.status, end.position, end.rows[0]["item"]) == (DONE, 0, "i0")


def test_a_unit_whose_asks_are_stored_ends_without_a_request():
    driver = make(one)
    driver.open(0)
    request = driver.outbox.popleft()
    again = make(one, lookup={request.key: answer(request)}.get)
    again.open(0)
    assert not again.outbox
    assert again.finished[0].status == DONE
    assert again.n_found == 1


def test_equal_asks_are_sent_once_and_both_units_go_on():
    driver = make(one, combinations=[Combination(("m",)), Combination(("m",))])
    driver.open(0)
    driver.open(1)
    assert len(driver.outbox) == 1
    assert driver.n_joined == 1
    answer_all(driver)
    assert [end.status for end in driver.finished] == [DONE, DONE]


def test_a_permanent_failure_becomes_a_failed_row_that_is_not_asked_again():
    driver = make(one)
    driver.open(0)
    driver.deliver(driver.outbox.popleft(), BAD)
    (end,) = driver.finished
    assert end.status == FAILED
    assert end.rows[0]["cause"] == "bad_request"
    assert end.rows[0].get("value") is None


def test_a_failure_of_the_moment_is_marked_to_be_asked_again():
    driver = make(one)
    driver.open(0)
    driver.deliver(driver.outbox.popleft(), BUSY)
    assert driver.finished[0].status == FAILED_FOR_NOW


def test_a_method_may_catch_a_failure():
    async def careful(unit, ask, config):
        try:
            await ask.generate("m", unit.item.messages, SAMPLING)
        except AskFailed as failed:
            return [row(unit, failed.failure.cause)]
        return []

    driver = make(careful)
    driver.open(0)
    driver.deliver(driver.outbox.popleft(), BAD)
    assert driver.finished[0].rows[0]["value"] == "bad_request"


def test_all_waits_for_every_ask_and_raises_the_first_failure_in_argument_order():
    async def both(unit, ask, config):
        await ask.all(
            ask.generate("m", unit.item.messages, SAMPLING),
            ask.generate("m", unit.item.messages, SAMPLING, repeat=1),
        )
        return []

    driver = make(both)
    driver.open(0)
    first, second = driver.outbox
    driver.deliver(second, BUSY)
    assert not driver.finished
    driver.deliver(first, BAD)
    assert driver.finished[0].rows[0]["cause"] == "bad_request"


def test_settle_gives_failures_as_values():
    async def tolerant(unit, ask, config):
        got = await ask.settle(
            ask.generate("m", unit.item.messages, SAMPLING),
            ask.generate("m", unit.item.messages, SAMPLING, repeat=1),
        )
        return [row(unit, str(sum(isinstance(one, Failure) for one in got)))]

    driver = make(tolerant)
    driver.open(0)
    first, second = driver.outbox
    driver.deliver(first, BAD)
    driver.deliver(second, answer(second))
    assert driver.finished[0].rows[0]["value"] == "1"


def test_awaiting_anything_else_is_a_fault_that_names_the_method():
    async def foreign(unit, ask, config):
        await asyncio.sleep(0)
        return []

    driver = make(foreign)
    driver.open(0)
    (end,) = driver.finished
    assert end.status == FAULTY
    assert "'fake'" in end.fault.said


def test_an_exception_in_a_method_fails_its_unit_only():
    async def broken(unit, ask, config):
        if unit.item.key == "i1":
            raise ZeroDivisionError
        return await one(unit, ask, config)

    driver = make(broken)
    for position in range(3):
        driver.open(position)
    answer_all(driver)
    assert sorted(end.status for end in driver.finished) == [DONE, DONE, FAULTY]


def test_waiting_counts_follow_the_asks_that_are_out():
    driver = make(chain)
    driver.open(0)
    assert driver.waiting == {"m": 1}
    answer_all(driver)
    assert driver.waiting == {"m": 0}
    assert driver.n_open == 0


def test_a_system_prompt_is_part_of_what_is_asked():
    plain, with_system = make(one), make(one, systems={"m": "Be brief."})
    plain.open(0)
    with_system.open(0)
    assert with_system.outbox[0].ask.messages[0].content == "Be brief."
    assert with_system.outbox[0].key != plain.outbox[0].key


def test_closing_ends_units_that_wait():
    driver = make(one)
    driver.open(0)
    driver.close()
    assert not driver.finished


@given(st.data())
def test_any_order_of_answers_gives_the_same_rows(data):
    driver = make(chain, n_items=4)
    for position in data.draw(st.permutations(range(4))):
        driver.open(position)
    while driver.outbox:
        which = data.draw(st.integers(0, len(driver.outbox) - 1))
        request = driver.outbox[which]
        del driver.outbox[which]
        driver.deliver(request, answer(request))
    ends = sorted(driver.finished, key=lambda end: end.position)
    reference = make(chain, n_items=4)
    for position in range(4):
        reference.open(position)
    answer_all(reference)
    expected = sorted(reference.finished, key=lambda end: end.position)
    assert [end.rows for end in ends] == [end.rows for end in expected]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_repeats_and_items_are_draws_of_their_own_where_the_text_is_sampled(temperature):
    def key(item, repeat):
        ask = GenerateAsk(
            "m", (Message("user", "x"),), Sampling(temperature=temperature), item, repeat
        )
        return ask.key(b"id", 7)

    assert (key("a", 0) != key("b", 0)) == (temperature > 0)
    assert key("a", 0) != key("a", 1)


async def two(unit, ask, config):
    asks = [ask.generate("m", unit.item.messages, SAMPLING, repeat=n) for n in range(2)]
    await ask.all(*asks)
    return [row(unit)]


@pytest.mark.parametrize("model", ["nobody", "m"])
def test_a_unit_with_one_wrong_ask_among_others_ends_once(model):
    async def mixed(unit, ask, config):
        good = ask.generate("m", unit.item.messages, SAMPLING)
        wrong = ask.generate(model, unit.item.messages, SAMPLING) if model == "nobody" else 7
        await ask.all(good, wrong)
        return []

    driver = make(mixed)
    driver.open(0)
    answer_all(driver)
    (end,) = driver.finished
    assert end.status == FAULTY
    assert f"at {__file__}:" in end.fault.said
    assert driver.n_open == 0


def test_what_the_store_raises_is_no_fault_of_the_method():
    def unreadable(key):
        raise StoreError("the disk is gone")

    driver = make(one, lookup=unreadable)
    with pytest.raises(StoreError, match="the disk is gone"):
        driver.open(0)
    assert not driver.finished


def test_texts_of_open_units_are_counted_until_the_unit_ends():
    driver = make(two, n_items=2)
    driver.open(0)
    item = driver.n_bytes
    assert item > len("question 0")
    request = driver.outbox.popleft()
    driver.deliver(request, generation("x" * 5000))
    assert item + 5000 < driver.n_bytes < item + 6000
    answer_all(driver)
    assert driver.n_bytes == 0


async def observing(unit, ask, config):
    got = await ask.generate(unit.models[0], unit.item.messages, SAMPLING, top_logprobs=2)
    return [row(unit, got.observed)]


async def observing_among_others(unit, ask, config):
    got, _ = await ask.all(
        ask.generate(unit.models[0], unit.item.messages, SAMPLING, top_logprobs=2),
        ask.generate(unit.models[0], unit.item.messages, SAMPLING, repeat=1),
    )
    return [row(unit, got.observed)]


def drawn(top):
    ids, logprobs = np.array([4, 5], np.int32), np.array([-0.1, -0.2], np.float32)
    alternatives = TopLogprobs(np.zeros((2, 2), np.int32), np.zeros((2, 2), np.float32))
    return Generation("x y", "stop", 3, 2, ids, logprobs, alternatives if top else None)


@pytest.mark.parametrize("method", [observing, observing_among_others])
def test_what_a_draw_lacks_is_scored_and_never_drawn_again(method):
    driver = make(method, n_items=1)
    driver.open(0)
    while (request := driver.outbox.popleft()).ask.kind == "generate":
        driver.deliver(request, drawn(top=False))
    assert (request.ask.token_ids, request.ask.top_logprobs) == ((4, 5), 2)
    assert not driver.outbox
    top = drawn(top=True)
    driver.deliver(request, Scored(top.token_ids, top.logprobs, top=top.top))
    assert driver.finished[0].rows[0]["value"] == "score"


@pytest.mark.parametrize("method", [observing, observing_among_others])
def test_a_draw_that_has_it_is_taken_as_it_is(method):
    driver = make(method, n_items=1)
    driver.open(0)
    while driver.outbox:
        driver.deliver(driver.outbox.popleft(), drawn(top=True))
    assert driver.finished[0].rows[0]["value"] == "draw"


def test_a_draw_is_sent_with_all_that_any_method_observes():
    p = plan(one, n_items=1)
    p.observed_top["m"] = 5
    driver = Driver(p, lambda key: None, {})
    driver.open(0)
    assert getattr(driver.outbox[0].ask, "top_logprobs", None) == 5


def test_what_another_run_holds_is_asked_for_only_where_the_store_has_nothing():
    asked = make(chain)
    asked.open(0)
    held = asked.outbox[0]
    wanted = []

    def lent(key, kind, model):
        wanted.append((key, kind, model))

    driver = Driver(plan(chain), {held.key: answer(held)}.get, {}, reuse=lent)
    driver.open(0)
    (sent,) = driver.outbox
    assert wanted == [(sent.key, "generate", "m")]


def test_a_unit_ends_without_a_request_where_other_runs_hold_all_it_asks():
    driver = Driver(
        plan(chain), lambda key: None, {}, reuse=lambda key, kind, model: generation("lent")
    )
    driver.open(0)
    assert not driver.outbox
    assert driver.finished[0].rows[0]["value"] == "lentlent"
    assert driver.n_found == 2


def test_a_unit_has_the_highest_epoch_of_the_outcomes_that_it_was_given():
    asked = make(chain)
    asked.open(0)
    first = asked.outbox[0]
    for held, epochs, expected in (({}, [2, 1], 2), ({first.key: answer(first)}, [1, 3], 3)):
        in_turn = list(epochs)

        def epoch_of(key, left=in_turn):
            return left.pop(0)

        driver = Driver(plan(chain), held.get, {}, epoch_of=epoch_of)
        driver.open(0)
        answer_all(driver)
        assert driver.finished[0].server_epoch == expected


def test_units_that_wait_for_one_request_have_the_epoch_of_its_server():
    combinations = [Combination(("m",)), Combination(("m",))]
    driver = Driver(
        plan(one, combinations=combinations), lambda key: None, {}, epoch_of=lambda key: 4
    )
    driver.open(0)
    driver.open(1)
    answer_all(driver)
    assert [end.server_epoch for end in driver.finished] == [4, 4]


def test_a_unit_whose_absent_model_another_run_answered_is_not_set_aside():
    driver = Driver(
        plan(one), lambda key: None, {}, reuse=lambda key, kind, model: generation("lent")
    )
    driver.absent = ["m"]
    driver.open(0)
    assert not driver.set_aside
    assert driver.finished[0].rows[0]["value"] == "lent"
