"""Rankings while a run runs: whole prompts only, and nothing that a row may say breaks them."""

import math
import weakref

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.clusters import Clusters
from orchestrator.columns import PairColumns
from orchestrator.contracts.method import Combination
from orchestrator.ranking.trust import of_rows
from orchestrator.runner.session.progress import LiveRankings
from orchestrator.statistics.results import Thresholds
from orchestrator.statistics.trust import DEFAULTS
from orchestrator.units import Plan
from tests.core.fakes import Items, digest, make_part, method, nothing

MODELS = ("a", "b", "c")
PAIRS = [Combination(pair) for pair in (("a", "b"), ("a", "c"), ("b", "c"))]


def board(n_items=8, **options):
    columns = {"model_a": "str", "model_b": "str", "prefer_a": "f64"}
    pairs = PairColumns(
        judge="judge", coverage_ab="coverage_ab", coverage_ba="coverage_ba",
        preference_ab="prefer_a_ab", preference_ba="prefer_a_ba", p_ab="p_ab", p_ba="p_ba",
    )  # fmt: skip
    compared = method(nothing, PAIRS, columns=columns, pairs=pairs)
    part = make_part("fake", compared, MODELS)
    identities = {name: digest(name) for name in MODELS}
    return part, LiveRankings(Plan([part], Items(n_items), identities, seed=0), **options)


def judged_rows():
    """Up to forty judgments in both orders, some of them failed, some of low probability."""
    shares = st.floats(0, 1)
    levels = st.none() | st.lists(shares, min_size=3, max_size=3)
    judgment = st.fixed_dictionaries(
        {
            "prefer_a_ab": shares,
            "prefer_a_ba": shares,
            "coverage_ab": shares,
            "coverage_ba": shares,
            "p_ab": levels,
            "p_ba": levels,
            "status": st.sampled_from(["ok", "ok", "ok", "failed"]),
        }
    )
    return st.lists(judgment, min_size=1, max_size=40)


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


def orders(preference_ab, preference_ba, **more):
    """A judgment of a model pair in both orders."""
    return {"prefer_a_ab": preference_ab, "prefer_a_ba": preference_ba, "status": "ok", **more}


def test_a_judge_that_contradicts_itself_by_order_is_named_during_the_run():
    part, made = board(n_items=40)
    for item in range(40):
        for which, pair in enumerate(PAIRS):
            # The second judge flips in one prompt of eight.
            flips = item % 8 == 0
            by_judge = (("biased", orders(0.9, 0.2)), ("sound", orders(0.9, 0.2 if flips else 0.8)))
            for judge, said in by_judge:
                made.ended(3 * item + which, part, [row(pair.models, 0.6, judge=judge, **said)])
    (ranking,) = made.rankings(0.0)
    assert ranking.untrusted == ("biased",)
    assert ranking.reasons == ("contradicts itself by order",)


def test_too_few_flips_are_no_finding():
    part, made = board()
    for which, pair in enumerate(PAIRS):
        made.ended(which, part, [row(pair.models, 0.6, judge="j", **orders(0.9, 0.2))])
    assert made.rankings(0.0)[0].untrusted == ()


def test_a_judge_without_judgments_is_named():
    part, made = board()
    for item in range(4):
        for which, pair in enumerate(PAIRS):
            failed = {"status": "failed", "judge": "j"} if which else orders(0.9, 0.8, judge="j")
            made.ended(3 * item + which, part, [row(pair.models, 0.6, **failed)])
    (ranking,) = made.rankings(0.0)
    assert dict(zip(ranking.untrusted, ranking.reasons, strict=True)) == {
        "j": "has too few judgments"
    }


@given(rows=judged_rows())
@settings(max_examples=40, deadline=None)
def test_during_a_run_the_findings_are_those_of_the_reports(rows):
    part, made = board(n_items=40)
    for item, judgment in enumerate(rows):
        for which, pair in enumerate(PAIRS):
            made.ended(3 * item + which, part, [row(pair.models, 0.6, judge="j", **judgment)])
    (ranking,) = made.rankings(0.0)
    frame = pl.DataFrame(
        [{"item": str(item), "method": "m", "judge": "j", **judgment} for item, judgment in
         enumerate(rows) for _ in PAIRS],
        infer_schema_length=None,
        schema_overrides={"p_ab": pl.List(pl.Float64), "p_ba": pl.List(pl.Float64)},
    )  # fmt: skip
    ((trust,),) = of_rows([Clusters().of(frame)], DEFAULTS, 0.95).values()
    assert (trust.verdict == "not trusted") == (ranking.untrusted == ("j",))
    reasons = ranking.reasons[0].split(" and ") if ranking.reasons else []
    assert len(reasons) == (len(trust.reasons) if trust.verdict == "not trusted" else 0)


def test_a_recipe_decides_from_when_on_a_judge_is_not_trusted():
    found = {}
    for most in (0.5, 0.95):
        part, made = board(n_items=20, thresholds=Thresholds(low_readings=most))
        for item in range(20):
            mass = 0.1 if item % 5 else 0.9
            for which, pair in enumerate(PAIRS):
                said = orders(0.9, 0.8, judge="j", coverage_ab=mass, coverage_ba=mass)
                made.ended(3 * item + which, part, [row(pair.models, 0.6, **said)])
        found[most] = made.rankings(0.0)[0].untrusted
    assert found == {0.5: ("j",), 0.95: ()}


class _Row(dict[str, object]):
    """A row that weak references can watch."""


def test_rows_that_nobody_looks_at_do_not_pile_up():
    part, made = board(n_items=1000)
    watched = []
    for item in range(1000):
        for which, pair in enumerate(PAIRS):
            rows = [_Row(row(pair.models, 0.6, judge="j"))]
            watched.append(weakref.ref(rows[0]))
            made.ended(3 * item + which, part, rows)
            rows.clear()
    assert sum(kept() is not None for kept in watched) <= 1024


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
