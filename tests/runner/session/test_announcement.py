"""Announcements of a changed recipe before anything is sent."""

import types
from typing import cast

import pytest

from orchestrator.ask import GenerateAsk
from orchestrator.recipe.schema import Recipe
from orchestrator.records import Failure
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.session.opening import Opened, announce
from tests.core.fakes import SAMPLING, generation, plan

CHANGED = ["prompt changed"]


class Held:
    """A store that holds the outcomes of some keys."""

    def __init__(self, keys=()):
        self._keys = frozenset(keys)

    def get(self, key):
        return generation("held") if key in self._keys else None


class Asking:
    """A method that asks each model once, and counts how often it was driven."""

    def __init__(self):
        self.n_driven = 0

    async def __call__(self, unit, ask, config):
        self.n_driven += 1
        answer = await ask.generate(unit.models[0], unit.item.messages, SAMPLING)
        return [{"value": answer.text}]


def said(plan, store, n_ended, changes=CHANGED):
    done = bytearray(b"\1") * n_ended + bytearray(len(plan) - n_ended)
    recipe = cast("Recipe", types.SimpleNamespace(settings=types.SimpleNamespace(seed=0)))
    prepared = Prepared(recipe, plan.items, {}, {}, plan, allow_code=False)
    (line,) = announce(prepared, Opened(1, done, changes), store)
    return line


def keys(plan, positions):
    asks = [
        GenerateAsk(unit.models[0], unit.item.messages, SAMPLING)
        for unit in (plan.work(position).unit for position in positions)
    ]
    return [ask.key(plan.identities[ask.model], plan.seed) for ask in asks]


def test_a_small_plan_is_counted_exactly():
    made = plan(Asking(), n_items=5)
    line = said(made, Held(keys(made, range(3))), 2)
    assert line == "prompt changed: 2 answers to request, 3 answers kept"


def test_of_a_large_plan_a_bounded_number_of_units_is_driven():
    method = Asking()
    said(plan(method, n_items=20_000), Held(), 9_000)
    assert method.n_driven == 2_000


def test_items_whose_units_are_left_are_all_counted_where_they_are_few():
    made = plan(Asking(), models=("m", "n"), n_items=3_000)
    line = said(made, Held(keys(made, range(5_900))), 5_900)
    assert "prompt changed: 100 answers to request, about 5,900 answers kept" in line
    assert line.endswith("(by 550 of 3,000 items; `orchestrator plan --exact` counts all)")


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_what_is_drawn_stands_for_the_others(share):
    made = plan(Asking(), n_items=20_000)
    line = said(made, Held(keys(made, range(int(20_000 * share)))), 0)
    about = int(line.partition("about ")[2].partition(" ")[0].replace(",", ""))
    # Four standard errors of a share of 1,000 items, and the rounding.
    assert about == pytest.approx(20_000 * (1 - share), abs=20_000 * 0.065)


def test_what_no_drawn_item_asks_may_be_asked_by_another():
    made = plan(Asking(), n_items=4_000)
    line = said(made, Held(keys(made, range(3_999))), 0)
    assert "few or no requests to send, about 4,000 answers kept" in line


def test_what_failed_for_good_is_not_said_to_be_asked():
    bad = Failure("bad_request", "no", permanent=True)
    made = plan(Asking(), n_items=3)
    store = types.SimpleNamespace(get=lambda key: bad)
    assert said(made, store, 3) == "prompt changed: nothing to send, 3 answers kept"


def test_a_plan_without_units_has_nothing_to_ask():
    assert said(plan(Asking(), n_items=0), Held(), 0) == "prompt changed: nothing to send"


def test_going_on_is_said_in_units():
    assert said(plan(Asking(), n_items=5), Held(), 2, []) == "resuming: 2 units done, 3 to do"
