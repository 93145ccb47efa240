"""Joint cost of several methods that ask the same judge."""

from itertools import combinations

import pytest

from orchestrator.ask import digest
from orchestrator.methods import judged_rewrites, pairwise_ranking, pairwise_scoring, pointwise
from orchestrator.units import Plan, make_part
from tests.core.fakes import Items, method_in

METHODS = {
    "pairwise_ranking": pairwise_ranking,
    "pairwise_scoring": pairwise_scoring,
    "pointwise": pointwise,
    "judged_rewrites": judged_rewrites,
}
MODELS = ("a", "b", "c")


def planned(*parts):
    """Requests to the judge for one item, by the stages of a plan."""
    identities = {name: digest(name) for name in (*MODELS, "j")}
    made = [
        make_part(
            kind,
            method_in(METHODS[kind])(METHODS[kind].Config(judges=("j",), **settings)),
            MODELS,
            name,
        )
        for name, kind, settings in parts
    ]
    plan = Plan(made, Items(2), identities, seed=0)
    return sum(stage.per_item for _, stage in plan.stages() if stage.model == "j")


@pytest.mark.parametrize(("one", "other"), list(combinations(METHODS, 2)))
def test_the_judgments_of_each_method_are_counted(one, other):
    both = planned((one, one, {}), (other, other, {}))
    assert both == planned((one, one, {})) + planned((other, other, {}))


def test_traces_of_two_methods_are_counted_each():
    reasoned = {"chain_of_thought": True}
    both = planned(("p", "pointwise", reasoned), ("r", "pairwise_ranking", reasoned))
    assert both == (3 + 3) + (6 + 6)


@pytest.mark.parametrize(
    "settings",
    [{"scale": (1, 5)}, {"prompt": "{{ prompt }} {{ answer }} 1-9?"}, {"candidates": ("a", "b")}],
)
def test_entries_of_one_method_with_other_settings_are_counted_each(settings):
    assert planned(("one", "pointwise", {}), ("two", "pointwise", settings)) == 6


def test_entries_that_ask_the_same_are_counted_once():
    assert planned(("one", "pointwise", {}), ("two", "pointwise", {})) == 3
