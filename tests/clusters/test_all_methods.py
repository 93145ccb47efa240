"""A run of every method: copies of its items in one cluster change nothing that a report says."""

from typing import Any

import polars as pl
import pytest

import orchestrator
from orchestrator import contracts
from orchestrator.contracts.method import Method
from orchestrator.errors import EXIT_COMPLETE, EXIT_PARTIAL
from orchestrator.runner.results.tables import summarise
from orchestrator.summaries._verdicts import LANGUAGE, REASONING
from tests.clusters.copied import copied, differing, numbers
from tests.e2e.runs import CANDIDATES, fake_server, run, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

ANSWER = {"max_tokens": 8, "temperature": 1.0}
JUDGED = {"judges": ["judge", "strong"], "prompt": "compact", "answer": ANSWER}
HARNESS = {"judges": ["judge"], "prompts": "compact", "answer": ANSWER}
PAIRS = "mt_bench_pairs"
WRITTEN = {**HARNESS, "judgment": {"max_tokens": 16}}
METHODS: list[dict[str, Any]] = [
    {"kind": "answers"},
    {"kind": "probdiff", "prompt": "compact", "answer": ANSWER},
    {"kind": "glass_box", "answer": ANSWER},
    {"kind": "samples", "n": 3, "answer": ANSWER},
    {
        "kind": "confidence",
        "answer": ANSWER,
        "alternatives": 5,
        "p_true": None,
        "samples": {"n": 2, "meaning": "text"},
    },
    {"kind": "pairwise_ranking", **JUDGED},
    {"kind": "pointwise", **JUDGED},
    {
        "kind": "rubric",
        "judges": ["judge"],
        "criteria": [{"name": "accuracy", "weight": 2}, {"name": "tone", "scale": "A-E"}],
        "answer": ANSWER,
    },
    {"kind": "peer_elo", "answer": ANSWER, "similarity": {"kind": "rouge_l"}},
    {"kind": "alpaca_eval", "baseline": "weak", **HARNESS},
    {"kind": "judged_rewrites", **JUDGED},
    {"kind": "pairwise_scoring", **JUDGED},
    {"kind": "mt_bench_judge", "distribution": True, **WRITTEN},
    {"kind": "mt_bench_judge", "name": PAIRS, "mode": "pairwise", "distribution": True, **WRITTEN},
    {"kind": "auto_j", "distribution": True, **WRITTEN},
    {"kind": "align_bench", "distribution": True, **WRITTEN},
    {"kind": "critique_llm", "distribution": True, **WRITTEN},
    {"kind": "self_generation", "prompts": "compact", "answer": ANSWER},
    {"kind": "consistency", "answer": ANSWER, "similarity": {"kind": "rouge_l"}},
]
ANALYSES: list[dict[str, Any]] = [
    {"kind": "validation"},
    {"kind": "meta_evaluation", "gold": {"exact_match": True}},
    {"kind": "judge_accuracy"},
    {"kind": "sharpening"},
    {"kind": "jury", "method": "pairwise_ranking"},
    {"kind": "conflict"},
    {"kind": "probdiff_ablation"},
]
# Elo depends on how many battles there are, a penalty on how many rows, thresholds on quantiles;
# Krippendorff's alpha on the number of ratings n, as chance is drawn without replacement (n - 1).
AS_PUBLISHED = ("s.e.", "| alpha")
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
        path = write_recipe(folder / "r.json", url, n=16, methods=methods, analyses=ANALYSES)
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
    frames["verdicts"] = _judged(frames["verdicts"])
    likeness = [_drawn(seed, "item", "model", "again") for seed in (5, 6, 7)]
    frames["consistency"] = frames["consistency"].with_columns(
        exact_match=likeness[0] > 0.7, token_f1=likeness[1], similarity=likeness[2]
    )
    return frames


def _drawn(seed, *names):
    """A number in [0, 1) for each value of some columns."""
    return (pl.concat_str(*names, separator="|").hash(seed) % 1000).cast(pl.Float64) / 1000.0


def _judged(rows):
    """Verdicts of a judge that writes one nine times in ten; the fake server writes none."""
    who = [pl.col(name).fill_null("") for name in ("model", "model_a", "model_b")]
    row = ("method", "item", "judge", *who)
    pair = pl.col("method") == PAIRS
    known = _drawn(11, *row) < 0.9
    one, two = (_one_of(("A", "B", "tie"), _drawn(seed, *row)) for seed in (12, 13))
    winner = pl.when(one == two).then(one).otherwise(pl.lit("tie"))
    rating = (_drawn(14, *row) * 10).floor() + 1.0
    names = pl.lit([*REASONING, *LANGUAGE], pl.List(pl.String))
    place = pl.col("item").rank("dense").cast(pl.Int64) % (len(REASONING) + len(LANGUAGE))
    of_align_bench = pl.col("method") == "align_bench"
    return rows.with_columns(
        category=pl.when(of_align_bench).then(names.list.get(place)).otherwise("category"),
        status=pl.when(known).then(pl.lit("ok")).otherwise(pl.lit("failed")),
        cause=pl.when(~known).then(pl.lit("no_verdict")),
        message=pl.when(~known).then(pl.lit("the judge's text ended without a verdict")),
        parsed=known,
        rating=pl.when(known & ~pair).then(rating),
        expected=pl.when(known & ~pair).then(rating + _drawn(15, *row) - 0.5),
        winner=pl.when(known & pair).then(winner),
        winner_ab=pl.when(known & pair).then(one),
        winner_ba=pl.when(known & pair).then(two),
        prefer_a=pl.when(known & pair).then(_drawn(16, *row)),
        coverage=pl.when(known).then(1.0 - _drawn(17, *row) / 10.0),
        exact=pl.when(known).then(pl.lit(value=True)),
    )


def _one_of(values, drawn):
    return pl.lit(list(values), pl.List(pl.String)).list.get((drawn * len(values)).cast(pl.Int64))


def _has_bounds(told):
    return len(told) == 3 and told[1] is not None


def test_copies_in_one_cluster_change_nothing(result):
    frames = stirred(result)
    once = numbers(frames, result.settings)
    again = numbers(copied(frames), result.settings)
    assert len(once) > 300
    wrong = [key for key in differing(once, again) if not key.startswith(MOVED)]
    assert [key for key in wrong if not key.endswith(AS_PUBLISHED)] == []
    counted = numbers(frames, result.settings, counts=True)
    same = numbers(copied(frames, "copies"), result.settings, counts=True)
    wrong = [key for key in differing(counted, same) if not key.startswith(MOVED)]
    assert [key for key in wrong if not key.endswith(AS_PUBLISHED)] == []
    # Taken for items, copies would have changed every table with an interval.
    alone = differing(once, numbers(copied(frames, "nothing"), result.settings))
    tables = {key.partition(" | ")[0] for key in once if key.startswith("table")}
    changed = {key.partition(" | ")[0] for key in alone}
    said = {table.split()[1] for table in tables} | {"pairwise_ranking", "judged_rewrites"}
    assert said >= {one["kind"] for one in (*METHODS, *ANALYSES)}
    bounded = {key.partition(" | ")[0] for key, told in once.items() if _has_bounds(told)}
    assert bounded & tables - changed == set()
    assert len(bounded & tables) > 15


def test_summaries_say_the_same_from_the_columns_that_they_name(result, monkeypatch):
    frames = stirred(result)
    named = summarise(frames, result.settings)
    for method in METHODS:
        found = contracts.summary(method["kind"], contracts.load(Method, method["kind"]))
        if found is not None:
            monkeypatch.setattr(found, "reads", None)
    assert summarise(frames, result.settings) == named
