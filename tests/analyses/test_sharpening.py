import numpy as np
import polars as pl
import pytest
import scipy

from orchestrator.analyses import sharpening
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.methods import pairwise_ranking, pairwise_scoring, pointwise
from tests.summaries import judged
from tests.tables import lines

N = 24
RNG = np.random.default_rng(5)
FLAT = RNG.dirichlet(np.full(9, 3.0), size=N)
SHARP = RNG.dirichlet(np.full(9, 0.3), size=N)
FIVE = RNG.dirichlet(np.full(5, 2.0), size=(2, N))
SPIKED = RNG.dirichlet(np.full(5, 0.2), size=(2, N))


def source(module, frame, name, **settings):
    config = module.Config(judges=("judge",), **settings)
    (method,) = (one for one in vars(module).values() if getattr(one, "frame", None) == frame)
    return Source(name, module.__name__.rpartition(".")[2], method(config), frame)


def tables(frames, sources, **config):
    context = Context("study", frames, pl.DataFrame(), sources, 0.95, 2000, 0)
    analysis = sharpening.Kind(sharpening.Config(**config))
    return {table.key: table for table in analysis.summarise(context)}


def rated(p, method="pointwise"):
    return [judged.score_row(f"i{k}", "x", p[k], method=method) for k in range(N)]


def compared(p, method):
    return [judged.pair_row(f"i{k}", "x", "y", p[0][k], p[1][k], method=method) for k in range(N)]


def of_ratings(*, traces=1):
    frame = judged.scores([*rated(FLAT), *rated(SHARP, "reasoned")])
    sources = [
        source(pointwise, "scores", "pointwise"),
        source(pointwise, "scores", "reasoned", chain_of_thought=True, traces=traces,
               reasoning={"temperature": 1.0}),
    ]  # fmt: skip
    return tables({"scores": frame}, sources)


def test_entropy_is_that_of_scipy_and_its_change_is_tested_over_prompts():
    found = of_ratings()
    without, after = (np.asarray(scipy.stats.entropy(p, axis=1)) for p in (FLAT, SHARP))
    direct, reasoned = lines(found["sharpening.entropy"])
    for row, p, expected in ((direct, FLAT, without), (reasoned, SHARP, after)):
        assert row["entropy, nats"].value == pytest.approx(expected.mean())
        assert row["of the maximum"] == pytest.approx(expected.mean() / np.log(9))
        assert row["top label"] == pytest.approx(p.max(axis=1).mean())
        assert (row["labels"], row["judgments"], row["only bounded"]) == (9, N, 0)
    (row,) = lines(found["sharpening"])
    # One judgment a prompt: the jackknife is Student's paired test.
    student = scipy.stats.ttest_rel(after, without).confidence_interval(0.95)
    assert row["difference"].value == pytest.approx((after - without).mean())
    assert (row["difference"].low, row["difference"].high) == pytest.approx(tuple(student))
    assert (row["without reasoning"], row["with it"]) == ("pointwise", "reasoned")
    assert row["entropy without"] == pytest.approx(without.mean())
    assert row["sharper"] == pytest.approx((after < without).mean())
    assert row["p"] < 0.01


def test_the_maximum_without_ties_is_that_of_a_coin():
    p = np.array([[0.5 - x, 0.0, 0.5 + x] for x in np.linspace(0.01, 0.4, N)])
    pairs = judged.pairs(compared((p, p), "pairwise_ranking"))
    one = source(pairwise_ranking, "judgments", "pairwise_ranking", labels="two")
    (row,) = lines(tables({"judgments": pairs}, [one])["sharpening.entropy"])
    assert row["labels"] == 2
    expected = scipy.stats.entropy(p[:, [0, 2]], axis=1, base=2).mean()
    assert row["of the maximum"] == pytest.approx(expected)


def test_a_label_without_probability_adds_nothing():
    one = np.eye(9)[:1].repeat(N, axis=0)
    (row,) = lines(
        tables({"scores": judged.scores(rated(one))}, [source(pointwise, "scores", "pointwise")])[
            "sharpening.entropy"
        ]
    )
    assert row["entropy, nats"].value == 0.0


@pytest.mark.parametrize(
    ("module", "frame"), [(pairwise_ranking, "judgments"), (pairwise_scoring, "pair_scores")]
)
def test_pairs_have_the_mean_of_both_orders(module, frame):
    name = module.__name__.rpartition(".")[2]
    rows = [*compared(FIVE, name), *compared(SPIKED, "reasoned")]
    if frame == "pair_scores":
        scores = {f"p_{which}_{order}": [1.0] for which in ("first", "second")
                  for order in ("ab", "ba")}  # fmt: skip
        rows = [{**row, **scores, "score_a": 1.0, "score_b": 1.0} for row in rows]
    sources = [
        source(module, frame, name),
        source(module, frame, "reasoned", chain_of_thought=True),
    ]
    found = tables({frame: judged.frame(module, rows)}, sources)
    expected = scipy.stats.entropy(FIVE, axis=2).mean()
    (row,) = lines(found["sharpening"])
    assert row["entropy without"] == pytest.approx(expected)
    assert row["entropy with"] == pytest.approx(scipy.stats.entropy(SPIKED, axis=2).mean())
    assert row["judgments"] == N


def test_an_average_over_traces_is_said_and_other_settings_are_not_compared():
    assert not any("traces" in note for note in of_ratings()["sharpening"].notes)
    assert any("several traces" in note for note in of_ratings(traces=3)["sharpening"].notes)
    sources = [
        source(pointwise, "scores", "pointwise"),
        source(pointwise, "scores", "reasoned", chain_of_thought=True, scale=(1, 5)),
    ]
    frame = judged.scores([*rated(FLAT), *rated(SHARP, "reasoned")])
    assert set(tables({"scores": frame}, sources)) == {"sharpening.entropy"}


def test_failed_judgments_are_left_out_and_those_of_bounds_counted():
    rows = [*rated(FLAT)[:-2], judged.failed_score("i22", "x"), {**rated(FLAT)[-1], "exact": False}]
    found = tables({"scores": judged.scores(rows)}, [source(pointwise, "scores", "pointwise")])
    (row,) = lines(found["sharpening.entropy"])
    assert (row["judgments"], row["only bounded"]) == (N - 1, 1)


def test_a_recipe_without_distributions_is_refused():
    with pytest.raises(UsageError, match="no method of this recipe"):
        tables({"scores": judged.scores([])}, [source(pointwise, "scores", "pointwise")])
