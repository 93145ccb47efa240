import numpy as np
import polars as pl
import pytest

from orchestrator.analyses.judge_audit import Config, JudgeAuditAnalysis
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.methods import pairwise_ranking, pointwise
from tests.core.fakes import method_in
from tests.summaries import judged
from tests.tables import lines

MODELS = ("x", "y", "z")


def tables(pair_rows, score_rows=()):
    frames, sources = {}, []
    for module, rows in ((pairwise_ranking, pair_rows), (pointwise, score_rows)):
        if rows:
            method = method_in(module)(module.Config(judges=("judge",)))
            name = rows[0]["method"]
            frames[method.frame] = judged.frame(module, list(rows))
            sources.append(Source(name, name, method, method.frame))
    context = Context("judge_audit", frames, pl.DataFrame(), sources, 0.95, 200, 0)
    return {t.key: t for t in JudgeAuditAnalysis(Config()).summarise(context)}


def pair(item, a, b, share):
    p = judged.leaning(share)
    return judged.pair_row(item, a, b, p, p[::-1])


def around(n_items=20):
    return [
        pair(f"i{k}", a, b, 0.9 if (a, b) != ("x", "z") else 0.1)
        for k in range(n_items)
        for a, b in (("x", "y"), ("y", "z"), ("x", "z"))
    ]


def ordered(n_items=20, seed=0):
    rng = np.random.default_rng(seed)
    seen = [
        {m: s + rng.normal(0, 0.05) for m, s in zip(MODELS, (0.15, 0.0, -0.15), strict=True)}
        for _ in range(n_items)
    ]
    pairs = [row for k, said in enumerate(seen) for row in judged.all_pairs(f"i{k}", said)]
    scores = [
        judged.score_row(f"i{k}", m, judged.around(5 + 10 * s))
        for k, said in enumerate(seen)
        for m, s in said.items()
    ]
    return pairs, scores


def test_a_judge_that_goes_round_in_circles_is_found_out():
    (row,) = lines(tables(around())["judge_audit"])
    assert (row["triples"], row["cycles"].value) == (20, 1.0)
    assert row["by chance"] == pytest.approx(0.25)
    assert row["excess"].low > 0.5


def test_a_judge_with_one_order_has_no_cycles():
    pairs, _ = ordered()
    (row,) = lines(tables(pairs)["judge_audit"])
    assert row["cycles"].value == 0.0


def test_scores_of_what_a_judge_prefers_are_higher():
    pairs, scores = ordered()
    (row,) = lines(tables(pairs, scores)["judge_audit.scores"])
    assert (row["judge"], row["pairs"]) == ("judge", 60)
    assert row["same side"].value == 1.0
    assert row["tau-b"].value > 0.9


def test_the_sides_of_a_pair_are_matched():
    pairs, scores = ordered()
    backwards = [{**row, "model": {"x": "z", "z": "x"}.get(row["model"], "y")} for row in scores]
    (row,) = lines(tables(pairs, backwards)["judge_audit.scores"])
    assert row["same side"].value == 0.0


def test_two_models_have_no_triples():
    with pytest.raises(UsageError, match="compared three models"):
        tables([pair(f"i{k}", "x", "y", 0.9) for k in range(5)])


def test_without_a_judged_pair_there_is_no_audit():
    row = {**pair("i0", "x", "y", 0.9), "same_text": True}
    with pytest.raises(UsageError, match="no judge judged two different answers"):
        tables([row])
