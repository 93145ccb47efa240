"""A plan is a bound, or it says that it is none: nothing is sent beyond what it counts unsaid."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contracts.method import Method, Stage
from orchestrator.recipe.schema import Price
from orchestrator.report import calls
from orchestrator.runner.planning.counts import count_plan
from orchestrator.units import Plan, make_part
from tests.core.fakes import SAMPLING, Items, method
from tests.report.samples import printed
from tests.runner.planning.test_planned_and_sent import run

NOTHING: dict[bytes, Any] = {}
PRICES = {"m": Price(input=1.0, output=1.0)}


def asking(kind="generate", n=3, **attributes):
    """The plan of a method that awaits n requests, one after the other."""

    async def evaluate(unit, ask, config):
        for repeat in range(n):
            if kind == "generate":
                await ask.generate("m", unit.item.messages, SAMPLING, repeat=repeat)
            else:
                await ask.reward("m", unit.item.messages[:1] * (repeat + 1))
        return []

    made = method(evaluate, **attributes)
    return Plan([make_part("own", made, ("m",), "own")], Items(4), {"m": b"m" * 16}, seed=0)


def unsaid(self, candidates):
    return Method.stages(self, candidates)


def too_few(self, candidates):
    return [Stage("drawn", "m", "generate", 1, max_tokens=8)]


@given(n=st.integers(1, 6), n_held=st.integers(0, 30), stages=st.sampled_from([unsaid, too_few]))
def test_a_plan_bounds_what_is_sent_or_says_that_it_does_not_know(n, n_held, stages):
    plan = asking(n=n, stages=stages)
    sent = run(plan).outcomes
    held = dict(list(sent.items())[:n_held])
    counted = count_plan(plan, held.get, {}, PRICES)
    n_more = len(sent) - len(held)
    if counted.is_known:
        assert n_more <= counted.left or stages is too_few
        assert stages is too_few or n_more == 0
    else:
        assert 0 < counted.left <= n_more
        assert counted.money is None
        text = printed(calls.plan(counted))
        assert "≥" in text
        assert "Money: unknown because a method does not say what it requests" in text


def test_a_method_that_sends_more_than_it_says_is_found_out_once_it_has():
    plan = asking(n=3, stages=too_few)
    sent = list(run(plan).outcomes.items())
    assert count_plan(plan, NOTHING.get, {}, PRICES).is_known
    counted = count_plan(plan, dict(sent[:-1]).get, {}, PRICES)
    assert not counted.is_known
    assert counted.left == 1
    assert any("own does not say" in note for note in counted.notes)


def test_nothing_is_left_of_a_method_that_has_ended():
    plan = asking(n=3, stages=unsaid)
    counted = count_plan(plan, run(plan).outcomes.get, {}, PRICES)
    assert counted.is_known
    assert counted.left == 0
    assert "Nothing to request" in printed(calls.plan(counted))


def test_requests_of_a_kind_that_no_stage_names_are_counted():
    counted = count_plan(asking("reward", stages=too_few), NOTHING.get, {}, PRICES)
    assert not counted.is_known
    assert [(stage.name, stage.left) for stage in counted.stages] == [("drawn", 4), ("reward", 4)]


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(0)])
def test_a_method_that_raises_is_a_fault_of_the_plan(error):
    async def evaluate(unit, ask, config):
        raise error

    made = method(evaluate, stages=unsaid)
    plan = Plan([make_part("own", made, ("m",), "own")], Items(4), {"m": b"m" * 16}, seed=0)
    fault = count_plan(plan, NOTHING.get, {}, PRICES).fault
    assert f"method 'own' raised {type(error).__name__} at {__file__}:" in fault
