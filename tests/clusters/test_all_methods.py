"""A run of every method: copies of its items in one cluster change nothing that a report says."""

from typing import Any

import polars as pl
import pytest

import orchestrator
from orchestrator.errors import EXIT_COMPLETE, EXIT_PARTIAL
from tests.clusters.copied import copied, differing, numbers
from tests.e2e.runs import CANDIDATES, fake_server, run, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ANSWER = {"max_tokens": 8, "temperature": 1.0}
JUDGED = {"judges": ["judge", "strong"], "prompt": "compact", "answer": ANSWER}
HARNESS = {"judges": ["judge"], "prompts": "compact", "answer": ANSWER}
METHODS: list[dict[str, Any]] = [
    {"kind": "answers"},
    {"kind": "probdiff", "prompt": "compact", "answer": ANSWER},
    {"kind": "glass_box", "answer": ANSWER},
    {"kind": "samples", "n": 3, "answer": ANSWER},
    {"kind": "pairwise_ranking", **JUDGED},
    {"kind": "pointwise", **JUDGED},
    {"kind": "peer_elo", "answer": ANSWER, "similarity": {"kind": "rouge_l"}},
    {"kind": "alpaca_eval", "baseline": "weak", **HARNESS},
    {"kind": "judged_rewrites", **JUDGED},
]
ANALYSES: list[dict[str, Any]] = [
    {"kind": "validation"},
    {"kind": "meta_evaluation", "gold": {"exact_match": True}},
    {"kind": "judge_accuracy"},
    {"kind": "judge_calibration"},
    {"kind": "jury", "method": "pairwise_ranking"},
    {"kind": "conflict"},
    {"kind": "probdiff_ablation"},
]
# Elo depends on how many battles there are, a penalty on how many rows, thresholds on quantiles.
AS_PUBLISHED = "s.e."
MOVED = (
    "figure probdiff-d-",
    "table peer_elo peer_elo.elo",
    "figure summary-peer",
    "figure probdiff-confidence",
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all")
    with fake_server() as url:
        methods = [{"candidates": CANDIDATES, **method} for method in METHODS]
        path = write_recipe(folder / "r.json", url, n=14, methods=methods, analyses=ANALYSES)
        ended = run(path, folder / "run")
        assert ended.returncode in (EXIT_COMPLETE, EXIT_PARTIAL), ended.stderr
    return orchestrator.load(folder / "run")


def stirred(result):
    """Its frames, with gold, lengths and likeness drawn: those of a fake server hardly vary."""
    frames = {name: result.frames[name] for name in result.frames}
    right = pl.concat_str("item", "model").hash(1) % 3 > 0
    frames["answers"] = frames["answers"].with_columns(exact_match=right)
    sides = {
        f"length_{side}": 20 + (pl.concat_str("item", f"model_{side}").hash(2) % 40).cast(pl.Int64)
        for side in ("a", "b")
    }
    f1 = (pl.concat_str("item", "model_a", "model_b").hash(3) % 100).cast(pl.Float64) / 100.0
    # Of three models the one that is left judges a pair.
    vote = (pl.concat_str("item", "model_a", "model_b").hash(4) % 2).cast(pl.Float64)
    votes = {"prefer_a": vote, "votes": pl.concat_list(vote)}
    frames["peer_votes"] = frames["peer_votes"].with_columns(**sides, **votes, f1=f1)
    return frames


def _has_bounds(told):
    return len(told) == 3 and told[1] is not None


def test_copies_in_one_cluster_change_nothing(result):
    frames = stirred(result)
    once = numbers(frames, result.settings)
    again = numbers(copied(frames), result.settings)
    assert len(once) > 300
    wrong = [key for key in differing(once, again) if not key.startswith(MOVED)]
    assert [key for key in wrong if not key.endswith(AS_PUBLISHED)] == []
    # Taken for items, copies would have changed every table with an interval.
    alone = differing(once, numbers(copied(frames, named=False), result.settings))
    tables = {key.partition(" | ")[0] for key in once if key.startswith("table")}
    changed = {key.partition(" | ")[0] for key in alone}
    said = {table.split()[1] for table in tables} | {"pairwise_ranking", "judged_rewrites"}
    assert said >= {one["kind"] for one in (*METHODS, *ANALYSES)}
    bounded = {key.partition(" | ")[0] for key, told in once.items() if _has_bounds(told)}
    assert bounded & tables - changed == set()
    assert len(bounded & tables) > 15
