"""Verdicts on judges, from the rows of every kind of judging method by the roles they declare."""

from typing import Any

import polars as pl
import pytest

from orchestrator.clusters import Clusters
from orchestrator.columns import PairColumns, RowRoles
from orchestrator.contracts.method import frame_of, roles_of, schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import (
    alpaca_eval,
    mt_bench_judge,
    pairwise_ranking,
    pairwise_scoring,
    pointwise,
)
from orchestrator.ranking.analysis import analyse_ranking
from orchestrator.ranking.judged import order_decisions, tabulate
from orchestrator.ranking.trust import of_frames, of_rows, thresholds_of
from orchestrator.statistics.trust import DEFAULTS
from tests.ranking.conftest import judged as a_judgment

CLASSES: dict[str, Any] = {
    "alpaca_eval": alpaca_eval.Kind,
    "mt_bench_judge": mt_bench_judge.Kind,
    "pairwise_ranking": pairwise_ranking.Kind,
    "pairwise_scoring": pairwise_scoring.Kind,
    "pointwise": pointwise.Kind,
}


def verdicts(kind, rows):
    """The verdict on the one judge of some rows of a kind of method."""
    of = CLASSES[kind]
    schema = {"method": "str", **schema_of(of)}
    blank = dict.fromkeys(schema)
    full = [{**blank, "method": kind, "judge": "j", "status": "ok", **row} for row in rows]
    frame = pl.DataFrame(full, polars_schema(schema), orient="row")
    ((trust,),) = of_frames({frame_of(of, kind): frame}, Clusters(), DEFAULTS, 0.95).values()
    return trust


def by_item(n, **columns):
    return [{"item": f"i{k}", **columns} for k in range(n)]


@pytest.mark.parametrize("kind", ["pairwise_ranking", "pairwise_scoring"])
def test_pairwise_judges_are_held_to_coverage_and_flips(kind):
    steady = {"prefer_a_ab": 0.9, "prefer_a_ba": 0.8, "coverage_ab": 0.9, "coverage_ba": 0.9}
    assert verdicts(kind, by_item(8, **steady)).verdict == "trusted"
    assert verdicts(kind, by_item(8, **steady | {"coverage_ab": 0.01})).verdict == "not trusted"
    flipping = verdicts(kind, by_item(8, **steady | {"prefer_a_ba": 0.2}))
    assert (flipping.verdict, flipping.n_decided) == ("not trusted", 8)


def test_a_rating_judge_is_held_to_its_coverage():
    assert verdicts("pointwise", by_item(4, coverage=0.9)).verdict == "trusted"
    assert verdicts("pointwise", by_item(4, coverage=0.1)).verdict == "not trusted"


def test_a_judge_that_writes_is_held_to_its_winners_and_to_texts_that_can_be_read():
    same = {"winner_ab": "A", "winner_ba": "A", "parsed": True}
    assert verdicts("mt_bench_judge", by_item(8, **same)).verdict == "trusted"
    flips = verdicts("mt_bench_judge", by_item(8, **same | {"winner_ba": "B"}))
    assert flips.verdict == "not trusted"
    assert "100 %" in flips.reasons[0]
    unread = verdicts("mt_bench_judge", by_item(8, **same | {"parsed": False}))
    assert unread.reasons == ("has no judgment in 8 of 8 cases, too many for a majority",)


def test_a_rating_by_a_judge_that_writes_has_no_order():
    trust = verdicts("mt_bench_judge", by_item(8, rating=7.0, parsed=True))
    assert (trust.verdict, trust.n_pairs) == ("trusted", 0)


def test_rows_that_name_a_judge_and_its_mass_need_no_role():
    assert verdicts("alpaca_eval", by_item(4, coverage=0.2)).verdict == "not trusted"
    assert roles_of(alpaca_eval.Kind) == RowRoles()


def test_equal_answers_are_no_pairs_and_failed_ones_count_as_missing():
    rows = by_item(8, prefer_a_ab=0.9, prefer_a_ba=0.1, same_text=True, coverage_ab=1.0)
    assert verdicts("pairwise_ranking", rows).n_pairs == 0
    failed = by_item(8, status="failed", cause="timeout")
    found = verdicts("pairwise_ranking", failed)
    assert (found.verdict, found.n_missing, found.n_units) == ("not trusted", 8, 8)


def test_methods_without_a_judge_have_no_verdict():
    frame = pl.DataFrame({"item": ["a"], "model": ["m"], "status": ["ok"], "coverage": [0.1]})
    assert of_frames({"other": frame}, Clusters(), DEFAULTS, 0.95) == {}


def test_a_column_of_texts_by_the_name_of_a_mass_is_left_alone():
    frame = pl.DataFrame({"judge": ["a"], "coverage": ["wide"]})
    ((trust,),) = of_rows([frame], DEFAULTS, 0.95).values()
    assert (trust.verdict, trust.coverage.n) == ("trusted", 0)


def test_columns_of_a_plug_in_are_known_by_its_roles():
    pairs = PairColumns(judge="who", winner_ab="one", winner_ba="two", ranked=False)
    assert (
        RowRoles(pairs).fault(
            {
                "prefer_a": "f64",
                "model_a": "str",
                "model_b": "str",
                "who": "str",
                "one": "str",
                "two": "str",
            }
        )
        == ""
    )
    assert "not str" in RowRoles(pairs).fault(
        {
            "prefer_a": "f64",
            "model_a": "str",
            "model_b": "str",
            "who": "str",
            "one": "f64",
            "two": "str",
        }
    )


def test_a_ranking_and_the_rows_it_is_made_of_give_one_verdict():
    rows = [a_judgment(f"i{k}", "a", "b", 0.6, bias=0.3) for k in range(12)]
    frame = pl.DataFrame(rows)
    ranking = analyse_ranking(tabulate([frame], len(frame)), judge="judge", confidence_level=0.95)
    ((trust,),) = of_rows([Clusters().of(frame)], DEFAULTS, 0.95).values()
    assert ranking.trust == (trust,)
    assert trust.verdict == "not trusted"
    assert not ranking.order_resolvable
    assert {(one.rank_low, one.rank_high) for one in ranking.ratings} == {(1, 2)}


def test_an_order_without_a_distribution_is_decided_by_its_preference():
    rows = pl.DataFrame(
        {"p_ab": [None, None, [0.2, 0.7, 0.1]], "prefer_a_ab": [0.9, 0.5, 0.6]},
        schema_overrides={"p_ab": pl.List(pl.Float64())},
    )
    assert order_decisions(rows, "p_ab").tolist() == [1.0, 0.0, 0.0]


def test_an_even_number_of_levels_has_none_for_a_tie():
    rows = pl.DataFrame({"p_ab": [[0.2, 0.8], [0.8, 0.2], [0.5, 0.5]]})
    assert order_decisions(rows, "p_ab").tolist() == [-1.0, 1.0, 0.0]


def test_thresholds_come_from_the_recipe():
    assert thresholds_of({}) == DEFAULTS
    assert thresholds_of({"statistics": {"trust": {"flips": 0.4}}}).flips == 0.4
