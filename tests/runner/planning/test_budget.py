"""Bounds on tokens and money hold with many requests in flight; the words say what was spent."""

import asyncio
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import numbers
from orchestrator.ask import ChooseAsk, GenerateAsk, Request
from orchestrator.contracts.method import Combination
from orchestrator.recipe import schema
from orchestrator.recipe.schema import Price
from orchestrator.records import Choice, Failure, Generation, Message, Sampling, labels
from orchestrator.runner.planning.budget import Budget, Most, Spent, add_spent, token_counts
from orchestrator.scheduler.core import Core, Limits
from orchestrator.scheduler.ready import Admission
from tests.answering import Answering
from tests.core.fakes import plan, row
from tests.runner.session.parts import Fleet, Parts
from tests.runner.session.test_session import MemoryStore

CONCURRENCY = 64
MAX_TOKENS = 50
PRICES = {
    "dear": Price(input=3.0, output=15.0),
    "cheap": Price(input=0.1, output=0.4),
}
MESSAGES = (Message("user", "x" * 40),)


class Paid(Answering):
    """Answers with some of the tokens that were allowed, and keeps account of them."""

    def __init__(self, price, rng):
        self.price, self.rng = price, rng
        self.money, self.tokens = 0.0, 0

    async def generate(self, ask, seed):
        await asyncio.sleep(0)
        if self.rng.random() < 0.1:
            return Failure("rate_limited", "slow down", status=429)
        made = Generation(
            "text",
            "stop",
            n_prompt_tokens=self.rng.randrange(5, 60),
            n_completion_tokens=self.rng.randrange(1, MAX_TOKENS + 1),
        )
        self.money += self.price.of(made.n_prompt_tokens, made.n_completion_tokens)
        self.tokens += made.n_prompt_tokens + made.n_completion_tokens
        return made

    async def close(self):
        pass


async def ask_all(unit, ask, config):
    sampling = Sampling(max_tokens=MAX_TOKENS)
    asks = (ask.generate(name, unit.item.messages, sampling) for name in unit.models)
    await ask.all(*asks)
    return [row(unit)]


async def spend(bounds, seed, spent):
    """One call of a run against two priced servers."""
    servers = {name: Paid(price, random.Random(seed)) for name, price in PRICES.items()}
    p = plan(ask_all, tuple(servers), 150, [Combination(("dear", "cheap"))])

    async def connect(model):
        return servers[model]

    budget = Budget(bounds, spent, PRICES)
    limits = Limits(max_in_flight=CONCURRENCY)
    session = Parts(
        plan=p,
        store=MemoryStore(),
        core=Core(dict.fromkeys(servers, limits)),
        budget=budget,
        fleet=Fleet(connect),
        max_open=300,
    ).session()
    await session.run()
    return servers, budget, session


@settings(max_examples=15, deadline=None)
@given(
    money=st.floats(0.0005, 0.2), tokens=st.none() | st.integers(500, 20_000), seed=st.integers()
)
def test_no_bound_is_exceeded_with_many_requests_in_flight(money, tokens, seed):
    bounds = schema.Budget(money=money, tokens=tokens)
    servers, budget, session = asyncio.run(spend(bounds, seed, Spent()))
    paid = sum(server.money for server in servers.values())
    used = sum(server.tokens for server in servers.values())
    assert budget.spent.money == pytest.approx(paid)
    assert budget.spent.tokens == used
    assert paid <= money * (1 + 1e-9)
    assert used <= (tokens or used)
    if session.stopping:
        assert session.stopping == budget.words()
        # What is left is less than the next request might have taken.
        most = 64 + 16 * 2 + 40 + MAX_TOKENS
        is_near = paid > money - PRICES["dear"].of(most, MAX_TOKENS)
        assert is_near or (tokens is not None and used > tokens - most)


def test_a_later_call_goes_on_with_what_earlier_ones_spent():
    bounds = schema.Budget(money=0.05)
    first, spent = 0.0, Spent()
    for seed in range(3):
        _, budget, session = asyncio.run(spend(bounds, seed, spent))
        spent = budget.spent
        first = first or spent.money
        assert "budget.money" in session.stopping
    assert 0.04 < first <= spent.money <= 0.05


def request(ask, key=b"k"):
    return Request(key, ask, 0, 0)


def generate(model="dear", max_tokens=100):
    return request(GenerateAsk(model, MESSAGES, Sampling(max_tokens=max_tokens)))


def test_a_request_that_fits_only_when_others_have_ended_waits_for_them():
    budget = Budget(schema.Budget(tokens=500), Spent(), {})
    first, second = generate(), generate()
    second.key = b"other"
    assert budget.admit(first, 0.0) is Admission.SEND
    assert budget.admit(second, 0.0) is Admission.SEND
    third = generate(max_tokens=400)
    third.key = b"third"
    assert budget.admit(third, 0.0) is Admission.WAIT
    assert budget.words() == ""
    budget.release(first)
    budget.release(second)
    assert budget.admit(third, 0.0) is Admission.STOP
    assert budget.words() == (
        "budget.tokens: 0 of 500 used, and the next request may take up to 536"
    )


def test_what_a_server_adds_to_prompts_is_reserved_from_its_first_answer_on():
    budget = Budget(schema.Budget(tokens=1000), Spent(), {})
    one = generate(max_tokens=1)
    assert budget.admit(one, 0.0) is Admission.SEND
    budget.release(one)
    budget.receive(one, Generation("x", "stop", n_prompt_tokens=600, n_completion_tokens=1))
    assert budget.admit(one, 0.0) is Admission.STOP


def test_each_call_of_a_choice_is_counted():
    choice = Choice((0.0,), (0.0,), "walk", n_prompt_tokens=30, n_requests=3)
    assert token_counts(choice) == (90, 3)
    budget = Budget(schema.Budget(money=1.0), Spent(), {"dear": Price(input=1e6, output=2e6)})
    asked = request(ChooseAsk("dear", MESSAGES, labels("A", "B")))
    assert budget.receive(asked, choice) == (90, 3)
    assert budget.spent.money == 90 * 1 + 3 * 2


def test_a_bound_that_was_lowered_below_what_is_spent_sends_nothing():
    budget = Budget(schema.Budget(money=1.0), Spent(money=1.5), {})
    assert budget.admit(generate(), 0.0) is Admission.STOP
    assert budget.words() == "budget.money: 1.50 of 1.00 spent"


def test_small_amounts_are_said_with_their_digits():
    budget = Budget(schema.Budget(money=0.002), Spent(money=0.0021), {})
    assert budget.admit(generate(), 0.0) is Admission.STOP
    assert budget.words() == "budget.money: 0.0021 of 0.002 spent"


# -- calls that are killed ------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    money=st.floats(0.001, 0.05),
    n_requests=st.none() | st.integers(1, 60),
    calls=st.lists(st.lists(st.sampled_from("saet"), max_size=60), min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
)
def test_no_bound_is_exceeded_by_calls_that_are_killed(money, n_requests, calls, seed):
    rng = random.Random(seed)
    bounds = schema.Budget(requests=n_requests, money=money)
    kept, paid, n_sent = Spent(), 0.0, 0
    on_disk: list[Spent] = []

    def keep(spent):
        on_disk.append(msgspec.structs.replace(spent))

    for steps in calls:
        keep(kept)
        budget = Budget(bounds, msgspec.structs.replace(kept), PRICES, keep)
        in_flight = {}
        for number, step in enumerate(steps):
            if step == "t":  # written once a second, durable sooner or later
                budget.pledge()
                keep(budget.spent)
            elif step in "sa" and (asked := rng.choice(["dear", "cheap"])):
                one = generate(asked, MAX_TOKENS)
                one.key = f"{number}".encode()
                if budget.admit(one, 0.0) is Admission.SEND:
                    # The server bills it, whether or not its answer ever comes.
                    billed = Generation("a", "stop", rng.randrange(5, 60), rng.randrange(1, 51))
                    in_flight[one.key] = one, billed
                    paid += PRICES[asked].of(billed.n_prompt_tokens, billed.n_completion_tokens)
                    n_sent += 1
            elif in_flight:
                one, billed = in_flight.pop(rng.choice(list(in_flight)))
                budget.receive(one, billed)
                budget.release(one)
        kept = on_disk[-1].after_its_call()
        assert paid <= kept.money * (1 + 1e-9) + 1e-12
        assert n_requests is None or n_sent <= kept.requests
        assert kept.money <= money * (1 + 1e-9)
    assert paid <= money * (1 + 1e-9)
    assert n_sent <= (n_requests or n_sent)


def test_few_pledges_are_written():
    written = []
    bounds = schema.Budget(requests=10_000)
    budget = Budget(bounds, Spent(), {}, lambda spent: written.append(spent.pledged.requests))
    for _ in range(10_000):
        assert budget.admit(generate(), 0.0) is Admission.SEND
    assert len(written) <= 101
    assert budget.admit(generate(), 0.0) is Admission.STOP


def test_a_call_that_ends_by_itself_leaves_nothing_pledged():
    budget = Budget(schema.Budget(money=1.0), Spent(), PRICES)
    one = generate()
    budget.admit(one, 0.0)
    budget.receive(one, Generation("a", "stop", n_prompt_tokens=9, n_completion_tokens=1))
    budget.release(one)
    budget.pledge(is_ending=True)
    assert budget.spent.after_its_call().money == budget.spent.money
    assert budget.spent.after_its_call().lost == Most()


def test_what_a_killed_call_had_in_flight_is_said():
    kept = Spent(money=0.4, pledged=Most(money=0.5))
    budget = Budget(schema.Budget(money=0.5), kept.after_its_call(), PRICES)
    assert budget.admit(generate(), 0.0) is Admission.STOP
    assert budget.words() == (
        "budget.money: 0.50 of 0.50 spent (0.10 of it at most, in flight when a call was killed)"
    )


# -- servers that do not say what they took --------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        (Generation("four", "stop"), (136, 4)),
        (Generation("four", "stop", logprobs=np.zeros(3, np.float32)), (136, 3)),
        (Generation("x" * 999, "length"), (136, 100)),
        (Generation("four", "stop", n_prompt_tokens=9), (9, 4)),
        (Generation("four", "stop", n_prompt_tokens=9, n_completion_tokens=2), (9, 2)),
        (Failure("no_answer", "withheld"), (136, 100)),
        (Failure("no_answer", "withheld", n_prompt_tokens=9, n_completion_tokens=5), (9, 5)),
    ],
)
def test_tokens_that_are_not_reported_count_as_many_as_they_can_be(outcome, counted, caplog):
    budget = Budget(schema.Budget(money=1.0), Spent(), PRICES)
    for _ in range(2):
        budget.receive(generate(), outcome)
    spent = budget.spent
    assert (spent.prompt_tokens, spent.completion_tokens) == (2 * counted[0], 2 * counted[1])
    assert len(caplog.messages) == (outcome.n_prompt_tokens == 0)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1),
    st.booleans(),
    st.sampled_from([PRICES, {}]),
)
def test_without_a_bound_what_is_not_reported_makes_the_sums_lower_bounds(counts, fails, prices):
    budget = Budget(schema.Budget(), Spent(requests=1), prices)
    for counted in counts:
        failed = Failure("no_answer", "cut", n_prompt_tokens=counted[0], n_completion_tokens=1)
        budget.receive(generate(), failed if fails else Generation("a", "stop", *counted))
    unsaid = any(n == 0 or (m == 0 and not fails) for n, m in counts)
    merged = add_spent({Path("a"): msgspec.json.encode(budget.spent).decode()}) or ""
    assert msgspec.json.decode(merged, type=Spent).bound == numbers.AT_LEAST * unsaid
    of_money = numbers.spent(budget.money, budget.spent.bound)
    assert len(of_money) == bool(prices)
    of_tokens = [said for said in budget.spent.words() if "token" in said]
    assert len(of_tokens) == 2
    assert all(said.startswith("at least ") is unsaid for said in of_money)
    sums = (budget.spent.prompt_tokens, budget.spent.completion_tokens)
    for said, n in zip(of_tokens, sums, strict=True):
        assert said.startswith("at least ") is (unsaid and n > 0)
        assert said.startswith("unknown ") is (unsaid and n == 0)


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.integers(1, 136), st.integers(1, 4)), min_size=1
    )
)
def test_what_a_sum_is_called_is_what_it_is_of_the_truth(calls):
    spent, parts = Spent(requests=1), []
    for is_bounded, says, *truth in calls:
        bounds = schema.Budget(money=1e9) if is_bounded else schema.Budget()
        for one in (spent, own := Spent(requests=1)):
            Budget(bounds, one, PRICES).receive(
                generate(), Generation("four", "stop", *truth if says else ())
            )
        parts.append(msgspec.json.encode(own).decode())
    merged = add_spent({Path(str(n)): part for n, part in enumerate(parts)}) or ""
    for total in (spent, msgspec.json.decode(merged, type=Spent)):
        held = {
            numbers.AT_LEAST: int.__le__,
            numbers.AT_MOST: int.__ge__,
            "about ": lambda *_: not all(says for _, says, *_ in calls),
            "": int.__eq__,
        }[total.bound]
        assert held(total.prompt_tokens, sum(prompt for *_, prompt, _ in calls))
        assert held(total.completion_tokens, sum(generated for *_, generated in calls))
        assert (total.bound == "") == all(says for _, says, *_ in calls)
        said = [one for one in total.words() if "token" in one and "unknown" not in one]
        assert all(one.startswith(total.bound) for one in said)


@given(st.sampled_from(["no_answer", "no_logprobs", "unparseable"]), st.integers(0, 599))
def test_what_is_refused_by_its_status_takes_no_tokens_and_leaves_the_counts_known(cause, status):
    for bounds in (schema.Budget(), schema.Budget(money=1.0)):
        budget = Budget(bounds, Spent(requests=1), PRICES)
        budget.receive(generate(), Failure(cause, "no", status=status))
        is_read = status in {0, 200}
        assert (budget.spent.bound != "") is is_read


@given(st.integers(1, 9999), st.integers(-6, 2))
def test_an_amount_is_never_shown_as_its_bound_that_it_has_not_reached(digits, exponent):
    bound = digits * 10.0**exponent
    shown, of = numbers.money_of(bound * 0.95, bound).replace(",", "").split(" of ")
    assert float(of) == pytest.approx(bound, abs=0.005 if bound >= 1 else 1e-12, rel=1e-3)
    assert shown != of or bound < 0.2
