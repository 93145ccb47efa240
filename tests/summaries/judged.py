"""Frames of judging methods with invented distributions."""

from itertools import combinations

import polars as pl

from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.judgment.pointwise import describe_scores
from orchestrator.methods import pairwise_ranking, pointwise
from tests.core.fakes import method_in

CAUSE = {"status": "failed", "cause": "no_verdict", "message": "nothing said"}


def frame(module, rows):
    columns = {"method": "str", **schema_of(method_in(module))}
    return pl.DataFrame(rows, schema=polars_schema(columns), orient="row")


def score_row(item, model, p, *, judge="judge", method="pointwise", category=None):
    scores = range(1, len(p) + 1)
    said = describe_scores(p, scores)
    shown = ("mean", "mode", "median", "first_percentile", "entropy")
    return {
        "method": method,
        "item": item,
        "category": category,
        "model": model,
        "judge": judge,
        "turn": 1,
        "p": list(p),
        **{name: said[name] for name in shown},
        "coverage": 0.9,
        "exact": True,
        "n_traces": 0,
        "n_silent": 0,
        "status": "ok",
    }


def failed_score(item, model, *, judge="judge", method="pointwise"):
    return {"method": method, "item": item, "model": model, "judge": judge, **CAUSE}


def around(score, n_scores=9):
    """A distribution with its mass about a score, which may lie between two."""
    weights = [max(0.0, 2.0 - abs(s - score)) for s in range(1, n_scores + 1)]
    return [weight / sum(weights) for weight in weights]


def scores(rows):
    return frame(pointwise, rows)


def pair_row(item, a, b, p_ab, p_ba, *, judge="judge", method="pairwise_ranking", traces=None):
    """`p_ba` is in the view of what was shown first, as the judge gave it."""
    found = judge_pair(p_ab, p_ba)
    return {
        "method": method,
        "item": item,
        "model_a": a,
        "model_b": b,
        "judge": judge,
        "turn": 1,
        "p_ab": list(p_ab),
        "p_ba": list(reversed(p_ba)),
        "coverage_ab": 0.9,
        "coverage_ba": 0.8,
        **found,
        "exact": True,
        "same_text": False,
        "n_traces": 0 if traces is None else sum(traces),
        "n_silent": 0,
        "traces": traces,
        "status": "ok",
    }


def pairs(rows):
    return frame(pairwise_ranking, rows)


def leaning(share):
    """Five levels with a share of the mass on the answer shown first."""
    return [share * 0.5, share * 0.5, 0.0, (1 - share) * 0.5, (1 - share) * 0.5]


def all_pairs(item, strengths, **more):
    """Every pair of models; the judge leans by the difference of their strengths."""
    return [
        pair_row(item, a, b, leaning(0.5 + s_a - s_b), leaning(0.5 + s_b - s_a), **more)
        for (a, s_a), (b, s_b) in combinations(strengths.items(), 2)
    ]
