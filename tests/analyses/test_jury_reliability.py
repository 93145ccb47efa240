import numpy as np
import polars as pl
import pytest

from orchestrator.analyses.jury_reliability import Config, JuryReliabilityAnalysis
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.methods import pairwise_ranking, pointwise
from tests.core.fakes import method_in
from tests.summaries import judged
from tests.tables import lines

RIGHT = {"good": 0.9, "fair": 0.75, "poor": 0.65}
PAIRS = (("x", "y"), ("x", "z"), ("y", "z"))


def study(n_items=60, right=RIGHT, copies=(), seed=0):
    """Verdicts of judges of known quality on pairs of which the first by name is better."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n_items):
        for a, b in PAIRS:
            said = {judge: rng.random() < share for judge, share in right.items()}
            for judge in said:
                first = said[dict(copies).get(judge, judge)]
                p = judged.leaning(0.99 if first else 0.01)
                rows.append(judged.pair_row(f"i{k}", a, b, p, p[::-1], judge=judge))
    return rows


def tables(rows, module=pairwise_ranking, labels=None, **config):
    frame = judged.frame(module, rows)
    judges = tuple(frame["judge"].unique(maintain_order=True))
    method = method_in(module)(module.Config(judges=judges))
    source = Source(frame["method"][0], frame["method"][0], method, method.frame)
    context = Context(
        "jury_reliability", {method.frame: frame}, pl.DataFrame(), [source], 0.95, 200, 0
    )
    found = JuryReliabilityAnalysis(Config(**config)).summarise(context)
    return {table.key: table for table in found}


def test_judges_are_ranked_by_their_reliability_without_gold():
    found = tables(study())
    rows = {row["judge"]: row for row in lines(found["jury_reliability"])}
    values = [rows[judge]["right side"].value for judge in ("good", "fair", "poor")]
    assert values == sorted(values, reverse=True)
    assert rows["good"]["right side"].low < 0.9 < rows["good"]["right side"].high
    assert rows["good"]["right side"].value + rows["good"]["wrong side"].value == pytest.approx(1.0)


def test_gold_is_shown_beside_and_changes_nothing(tmp_path):
    path = tmp_path / "labels.csv"
    text = [f"i{k},{a},{b},{a}" for k in range(60) for a, b in PAIRS]
    path.write_text("item,model_a,model_b,label\n" + "\n".join(text) + "\n", encoding="utf-8")
    plain, held = tables(study()), tables(study(), winner={"labels": str(path)})
    for one, two in zip(
        lines(plain["jury_reliability"]), lines(held["jury_reliability"]), strict=True
    ):
        assert two["right side"] == one["right side"]
        assert two["right side by gold"].value == pytest.approx(one["right side"].value, abs=0.08)
    accuracy = {row["by"]: row for row in lines(held["jury_reliability.accuracy"])}
    assert accuracy["consensus"]["accuracy"].value > accuracy["fair"]["accuracy"].value
    assert accuracy["poor"]["consensus is better by"].low > 0


def test_judges_who_err_together_are_named():
    right = {**RIGHT, "copy": 0.5, "other": 0.7}
    found = tables(study(80, right, copies=[("copy", "poor")]))
    rows = {row[:2]: row for row in found["jury_reliability.dependence"].rows}
    assert rows["poor", "copy"][3] == "yes"
    assert any("poor and copy" in note for note in found["jury_reliability"].notes)
    calm = tables(study())
    assert not any("err together, and" in note for note in calm["jury_reliability"].notes)


def test_ratings_by_consensus_keep_the_order_of_the_models():
    rows = lines(tables(study())["jury_reliability.ratings"])
    assert [row["model"] for row in rows] == ["x", "y", "z"]
    assert rows[0]["consensus"].value > rows[0]["equal weights"].value


def test_some_judges_can_be_left_out():
    found = tables(study(), judges=("good", "fair"))
    assert [row["judge"] for row in lines(found["jury_reliability"])] == ["good", "fair"]
    assert any("two judges alone" in note for note in found["jury_reliability"].notes)


def test_scores_are_votes_too():
    rng = np.random.default_rng(0)
    strengths = {"x": 6.0, "y": 5.0, "z": 4.0}
    rows = [
        judged.score_row(
            f"i{k}", model, judged.around(np.clip(s + rng.normal(0, spread), 1, 9)), judge=judge
        )
        for k in range(40)
        for judge, spread in (("one", 0.5), ("two", 0.5), ("three", 3.0))
        for model, s in strengths.items()
    ]
    found = lines(tables(rows, pointwise)["jury_reliability"])
    assert min(found, key=lambda row: row["reliability"].value)["judge"] == "three"
    assert found[0]["tie"].value > 0.0


@pytest.mark.parametrize(
    ("right", "config", "why"),
    [
        ({"one": 0.9}, {"method": "pairwise_ranking"}, "needs two judges"),
        (RIGHT, {"judges": ("nobody",)}, "nobody judged no pair"),
        (RIGHT, {"judges": ("good",)}, "needs two judges"),
    ],
)
def test_what_can_not_be_learned_is_refused(right, config, why):
    with pytest.raises(UsageError, match=why):
        tables(study(5, right), **config)
