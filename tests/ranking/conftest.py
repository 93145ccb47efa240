"""Frames of judgments as `pairwise_ranking` makes them, with known true strengths."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest

from orchestrator.contracts.method import schema_of
from orchestrator.methods.pairwise_ranking import Kind as PairwiseRanking

DTYPES = {
    "str": pl.String(),
    "f64": pl.Float64(),
    "i64": pl.Int64(),
    "bool": pl.Boolean(),
    "list[f64]": pl.List(pl.Float64()),
}
COLUMNS = {name: DTYPES[kind] for name, kind in schema_of(PairwiseRanking).items()}


def judged(item, model_a, model_b, prefer, *, category=None, judge="judge", bias=0.0):
    """One row; `bias` moves both orders towards the answer shown first."""
    first, second = min(prefer + bias, 1.0), max(prefer - bias, 0.0)
    mean = 2 * prefer - 1
    return {
        "item": item,
        "category": category,
        "model_a": model_a,
        "model_b": model_b,
        "judge": judge,
        "p_ab": [0.0, first, 0.0, 1 - first, 0.0],
        "p_ba": [0.0, second, 0.0, 1 - second, 0.0],
        "coverage_ab": 0.9,
        "coverage_ba": 0.8,
        "prefer_a_ab": first,
        "prefer_a_ba": second,
        "prefer_a": prefer,
        "mean_pre": mean,
        "mean_post": mean,
        "mode_pre": float(np.sign(mean)),
        "mode_post": float(np.sign(mean)),
        "exact": True,
        "same_text": False,
        "status": "ok",
        "cause": None,
        "message": None,
    }


def failed(item, model_a, model_b, cause="timeout", message="too slow", judge="judge"):
    row = dict.fromkeys(COLUMNS)
    names = {"item": item, "model_a": model_a, "model_b": model_b, "judge": judge}
    return {**row, **names, "status": "failed", "cause": cause, "message": message}


def frame(rows):
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def simulated(strengths, n_items, rng, *, categories=1, judge="judge"):
    """Every pair on every item; the judge is a noisy Bradley-Terry judge."""
    rows = []
    for k in range(n_items):
        quality = {m: s + 0.5 * rng.normal() for m, s in strengths.items()}
        for a, b in combinations(strengths, 2):
            prefer = 1 / (1 + np.exp(quality[b] - quality[a]))
            category = f"c{k % categories}"
            rows.append(judged(f"i{k:04}", a, b, prefer, category=category, judge=judge))
    return frame(rows)


class Frames:
    judged = staticmethod(judged)
    failed = staticmethod(failed)
    frame = staticmethod(frame)
    simulated = staticmethod(simulated)


@pytest.fixture(scope="session")
def frames():
    return Frames
