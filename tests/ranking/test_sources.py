"""Several pairwise methods of one run are ranked apart."""

from dataclasses import replace

import polars as pl
import pytest

from orchestrator.report.words import subject
from orchestrator.runner.results.frames import analyse


def ranked(given):
    return analyse(given, confidence_level=0.95)


@pytest.fixture
def two_methods(frames):
    agrees = frames.frame([frames.judged(f"i{k}", "x", "y", 0.9) for k in range(4)])
    differs = frames.frame([frames.judged(f"i{k}", "x", "y", 0.2) for k in range(4)])
    named = [
        rows.with_columns(method=pl.lit(name))
        for name, rows in (("direct", agrees), ("after reasons", differs))
    ]
    return pl.concat(named)


def test_methods_of_one_run_are_ranked_apart(two_methods):
    direct, reasoned = ranked({"judgments": two_methods})
    assert (direct.source, reasoned.source) == ("direct", "after reasons")
    assert (direct.ratings[0].model, reasoned.ratings[0].model) == ("x", "y")


def test_the_heading_names_the_method(two_methods):
    words = [subject(analysis) for analysis in ranked({"judgments": two_methods})]
    assert words == [
        "Ranking of 2 models by judge (direct)",
        "Ranking of 2 models by judge (after reasons)",
    ]


def test_a_method_of_any_name_is_named(two_methods):
    only = two_methods.with_columns(method=pl.lit("pairwise_ranking"))
    (analysis,) = ranked({"judgments": only})
    assert subject(analysis) == "Ranking of 2 models by judge (pairwise_ranking)"
    unknown = replace(analysis, source="")
    assert subject(unknown) == "Ranking of 2 models by judge"


def test_judges_are_pooled_within_a_method_only(two_methods):
    second = two_methods.with_columns(judge=pl.lit("other"))
    found = ranked({"judgments": pl.concat([two_methods, second])})
    assert [(one.source, one.judge) for one in found] == [
        ("direct", "judge"), ("direct", "other"), ("direct", None),
        ("after reasons", "judge"), ("after reasons", "other"), ("after reasons", None),
    ]  # fmt: skip


def test_scores_of_pairs_are_ranked_too(two_methods):
    (analysis,) = ranked({"pair_scores": two_methods.filter(pl.col("method") == "direct")})
    assert analysis.ratings[0].model == "x"


def test_a_judge_that_would_have_said_something_else_is_reported(frames):
    rows = [{**frames.judged(f"i{k}", "x", "y", 0.9), "coverage_ab": 1e-5, "coverage_ba": 1e-5}
            for k in range(4)]  # fmt: skip
    (analysis,) = ranked({"judgments": frames.frame(rows)})
    assert "in 100 % of its readings less than half" in analysis.warning
