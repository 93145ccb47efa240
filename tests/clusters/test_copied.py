"""Copies of an item in one cluster change no estimate, no interval and no p-value, anywhere."""

import numpy as np
import polars as pl
import pytest

from tests.clusters.copied import copied, differing, numbers
from tests.report import hostile

ANALYSES = [
    {"kind": "validation"},
    {"kind": "meta_evaluation", "gold": {"exact_match": True}},
    {"kind": "judge_accuracy"},
    {"kind": "sharpening"},
    {"kind": "jury", "method": "pairwise_ranking"},
]
SECOND = "judge two"
# Its thresholds follow from quantiles, which copies move.
MOVED = "figure probdiff-confidence"
SETTINGS = {
    **hostile.SETTINGS,
    "methods": [
        {"kind": "probdiff"},
        {"kind": "pointwise", "judges": [hostile.JUDGE]},
        {"kind": "pairwise_ranking", "judges": [hostile.JUDGE, SECOND]},
        {"kind": "answers"},
    ],
    "analyses": ANALYSES,
}


@pytest.fixture(scope="module")
def frames():
    found = hostile.frames(24)
    rng = np.random.default_rng(1)
    judged = found["judgments"].filter(pl.col("status") == "ok")
    noise = pl.Series(rng.uniform(-0.2, 0.2, len(judged)))
    again = judged.with_columns(
        judge=pl.lit(SECOND), prefer_a=(pl.col("prefer_a") + noise).clip(0.0, 1.0)
    ).with_columns(mean_pre=2.0 * pl.col("prefer_a") - 1.0)
    return {**found, "judgments": pl.concat([judged, again])}


@pytest.fixture(scope="module")
def once(frames):
    return numbers(copied_once(frames), SETTINGS)


def copied_once(frames):
    return {
        **frames,
        "items": frames["answers"].select("item", fields=pl.lit(None, pl.String)).unique(),
    }


def test_copies_in_one_cluster_change_nothing(frames, once):
    assert len(once) > 300
    found = numbers(copied(frames), SETTINGS)
    moved = {key for key in {*once, *found} if key.startswith(MOVED)}
    assert [key for key in differing(once, found) if key not in moved - (once.keys() & found)] == []
    assert moved & once.keys() & found.keys()


def test_copies_that_ask_the_same_change_no_number_of_prompts_either(frames):
    once = numbers(copied_once(frames), SETTINGS, counts=True)
    found = numbers(copied(frames, "copies"), SETTINGS, counts=True)
    assert [key for key in differing(once, found) if not key.startswith(MOVED)] == []


def test_copies_taken_for_items_do(frames, once):
    # The comparison sees what it is for.
    changed = differing(once, numbers(copied(frames, "nothing"), SETTINGS))
    assert len(changed) > 0.5 * len(once)
