import numpy as np
import polars as pl
import pytest

from orchestrator.analyses.judge_recalibration import Config, JudgeRecalibrationAnalysis
from orchestrator.analyses.jury import Config as JuryConfig
from orchestrator.analyses.jury import JuryAnalysis
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.methods import pairwise_ranking
from tests.core.fakes import method_in
from tests.summaries import judged
from tests.tables import lines

PAIRS = (("x", "y"), ("x", "z"), ("y", "z"))


@pytest.fixture
def labels(tmp_path):
    """The first of each pair by name is better."""
    path = tmp_path / "labels.csv"
    text = [f"i{k},{a},{b},{a}" for k in range(80) for a, b in PAIRS]
    path.write_text("item,model_a,model_b,label\n" + "\n".join(text) + "\n", encoding="utf-8")
    return {"labels": str(path)}


def context(n_items=60, judges=("sure", "modest")):
    """Both judges are right in 70 %; one says 97 %, one 70 %."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(n_items):
        for a, b in PAIRS:
            for judge in judges:
                said = 0.97 if judge == "sure" else 0.7
                share = said if rng.random() < 0.7 else 1 - said
                p = judged.leaning(share)
                rows.append(judged.pair_row(f"i{k}", a, b, p, p[::-1], judge=judge))
    method = method_in(pairwise_ranking)(pairwise_ranking.Config(judges=judges))
    source = Source("pairwise_ranking", "pairwise_ranking", method, method.frame)
    frames = {method.frame: judged.frame(pairwise_ranking, rows)}
    return Context("study", frames, pl.DataFrame(), [source], 0.95, 200, 0)


def test_a_judge_that_is_too_sure_gains_and_a_calibrated_one_does_not(labels):
    found, *_ = JudgeRecalibrationAnalysis(Config(winner=labels)).summarise(context())
    rows = {(row["judge"], row["calibration"], row["measure"]): row for row in lines(found)}
    assert len(rows) == 2 * 3 * 3
    for kind in ("temperature", "platt", "isotonic"):
        gain = rows["sure", kind, "Brier score"]
        assert gain["change"].high < 0
        assert gain["before"] == pytest.approx(0.7 * 0.03**2 + 0.3 * 0.97**2, abs=0.08)
        assert gain["after"] == pytest.approx(0.22, abs=0.03)
        assert rows["modest", kind, "log loss"]["change"].high > -0.01


def test_ratings_shrink_with_the_confidence(labels):
    _, *found = JudgeRecalibrationAnalysis(Config(winner=labels, by=("isotonic",))).summarise(
        context(judges=("sure",))
    )
    assert [table.key for table in found] == [
        "judge_recalibration.ratings",
        "judge_recalibration.win_rates",
    ]
    for best in (lines(table)[0] for table in found):
        assert best["model"] == "x"
        assert best["isotonic"].value < best["its own"].value
    assert best["isotonic"].value > 0.5


def test_a_jury_of_calibrated_judges_gives_each_its_due(labels):
    plain, held = (
        {table.key: table for table in JuryAnalysis(JuryConfig(**more)).summarise(context())}
        for more in ({}, {"calibrate": {"by": "temperature", "winner": labels}})
    )
    spread = [
        rows[0]["sure"] - rows[0]["modest"]
        for rows in (lines(plain["jury.ratings"]), lines(held["jury.ratings"]))
    ]
    assert abs(spread[1]) < 0.4 * abs(spread[0])


def test_too_few_known_winners_are_refused(labels):
    with pytest.raises(UsageError, match="needs 10 prompts whose better answer is known"):
        JudgeRecalibrationAnalysis(Config(winner=labels)).summarise(context(5))


def unerring(judges=("judge",), n_items=20):
    """A judge that is always right, and says 90 %."""
    rows = [
        judged.pair_row(f"i{k}", a, b, judged.leaning(0.9), judged.leaning(0.1), judge=judge)
        for k in range(n_items)
        for a, b in PAIRS
        for judge in judges
    ]
    method = method_in(pairwise_ranking)(pairwise_ranking.Config(judges=judges))
    source = Source("pairwise_ranking", "pairwise_ranking", method, method.frame)
    frames = {method.frame: judged.frame(pairwise_ranking, rows)}
    return Context("study", frames, pl.DataFrame(), [source], 0.95, 200, 0)


def test_what_cannot_be_fitted_is_undefined_and_the_rest_is_shown(labels):
    measures, ratings, _ = JudgeRecalibrationAnalysis(Config(winner=labels)).summarise(unerring())
    assert {row["calibration"] for row in lines(measures)} == {"platt", "isotonic"}
    for table in (measures, ratings):
        said = [note for note in table.notes if "no answer preferred is the worse one" in note]
        assert len(said) == 1
    for row in lines(ratings):
        assert row["temperature"] is None
        assert row["isotonic"].value is not None


def test_an_analysis_with_one_map_refuses_what_cannot_be_fitted(labels):
    config = JuryConfig(calibrate={"by": "temperature", "winner": labels})
    with pytest.raises(UsageError, match=r"one: no temperature fits.*take isotonic"):
        JuryAnalysis(config).summarise(unerring(("one", "two")))
