"""Rankings while a run runs: whole prompts only, and nothing that a row may say breaks them."""

import math

import pytest

from orchestrator.contracts.method import Combination
from orchestrator.roles import PairColumns
from orchestrator.runner.session.live_ranking import LiveRankings
from orchestrator.units import Plan
from tests.core.fakes import Items, digest, make_part, method

MODELS = ("a", "b", "c")
PAIRS = [Combination(pair) for pair in (("a", "b"), ("a", "c"), ("b", "c"))]


async def nothing(unit, ask, config):
    return []


def board(n_items=8, **options):
    columns = {"model_a": "str", "model_b": "str", "prefer_a": "f64"}
    pairs = PairColumns(judge="judge", coverage_ab="coverage_ab", coverage_ba="coverage_ba")
    compared = method(nothing, PAIRS, columns=columns, pairs=pairs)
    part = make_part("fake", compared, MODELS)
    identities = {name: digest(name) for name in MODELS}
    return part, LiveRankings(Plan([part], Items(n_items), identities, seed=0), **options)


def row(pair, preference, **more):
    return {"model_a": pair[0], "model_b": pair[1], "prefer_a": preference, **more}


def end_item(made, part, item, preferences=(0.9, 0.8, 0.7)):
    for which, (pair, preference) in enumerate(zip(PAIRS, preferences, strict=True)):
        made.ended(3 * item + which, part, [row(pair.models, preference)])


def test_a_prompt_counts_when_all_its_units_have_ended():
    part, made = board()
    made.ended(0, part, [row(("a", "b"), 0.9)])
    made.ended(3, part, [row(("a", "b"), 0.6)])
    assert made.rankings(0.0) == ()
    made.ended(1, part, [row(("a", "c"), 0.8)])
    made.ended(2, part, [row(("b", "c"), 0.7)])
    (ranking,) = made.rankings(10.0)
    assert ranking.n_prompts == 1
    assert [one.model for one in ranking.standings] == ["a", "b", "c"]


def test_a_judge_that_does_not_answer_in_the_form_asked_is_named():
    part, made = board()
    for item in range(4):
        for which, pair in enumerate(PAIRS):
            read = {"judge": "small", "coverage_ab": 3e-5, "coverage_ba": 0.9 if which else None}
            made.ended(3 * item + which, part, [row(pair.models, 0.9, **read)])
    (ranking,) = made.rankings(0.0)
    assert ranking.untrusted == ("small",)
    part, made = board()
    end_item(made, part, 0)
    assert made.rankings(0.0)[0].untrusted == ()


def test_a_failed_unit_completes_its_prompt_and_adds_no_judgment():
    part, made = board()
    for item in range(4):
        end_item(made, part, item, (0.9, 0.8, 0.7 + 0.05 * item))
    made.ended(12, part, [row(("a", "b"), None, status="failed")])
    made.ended(13, part, [{"status": "failed"}])
    made.ended(14, part, [row(("b", "c"), math.nan)])
    (ranking,) = made.rankings(0.0)
    assert ranking.n_prompts == 4
    assert {one.n_prompts for one in ranking.standings} == {4}


def test_ratings_are_not_computed_anew_at_each_look():
    part, made = board()
    end_item(made, part, 0)
    first = made.rankings(0.0)
    end_item(made, part, 1)
    assert made.rankings(4.9) is first
    assert made.rankings(5.1)[0].n_prompts == 2


@pytest.mark.parametrize("name", ["x", None, 3])
def test_a_row_about_another_model_is_left_out(name):
    part, made = board()
    made.ended(0, part, [row(("a", name), 0.9)])
    made.ended(1, part, [row(("a", "c"), 0.8)])
    made.ended(2, part, [row(("b", "c"), 0.7)])
    (ranking,) = made.rankings(0.0)
    assert ranking.n_prompts == 1


@pytest.mark.parametrize("stops_early", [False, True])
def test_a_ranking_says_whether_a_stopping_rule_chooses_what_is_asked(stops_early):
    part, made = board(stops_early=stops_early)
    end_item(made, part, 0)
    assert made.rankings(0.0)[0].stops_early is stops_early
