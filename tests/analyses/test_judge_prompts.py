"""Settings of a judge compared on a sample: one that is steady, one that sees only the order."""

import polars as pl
import pytest

from orchestrator.analyses._judge_accuracy import JudgePromptsAnalysis
from orchestrator.analyses._judge_accuracy import JudgePromptsConfig as Config
from orchestrator.clusters import Clusters
from orchestrator.columns import ESTIMATORS
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.methods import answers, pairwise_ranking
from orchestrator.methods._drawing import AnswersConfig
from orchestrator.ranking.trust import of_frames
from orchestrator.statistics.trust import DEFAULTS
from tests.core.fakes import PLAIN, method_in

N = 24


def row(setting, item, first, second, mass):
    """A judgment by the preferences for A in both orders; A is right on every item but each 4th."""
    mean = 0.5 * (first + second)
    signed = 2.0 * mean - 1.0
    return {
        "method": setting, "item": f"i{item}", "category": "c", "judge": "j",
        "model_a": "a", "model_b": "b", **dict.fromkeys(ESTIMATORS, signed),
        "turn": 1, "prefer_a_ab": first, "prefer_a_ba": second, "prefer_a": mean,
        "coverage_ab": mass, "coverage_ba": mass,
        "same_text": False, "status": "ok",
    }  # fmt: skip


def tables(**config):
    rows = []
    for item in range(N):
        right = 0.9 if item % 4 else 0.1
        rows.append(row("steady", item, right, right, 0.9))
        rows.append(row("order only", item, 0.9, 0.2, 0.02))
    given = [
        {"method": "answers", "item": f"i{item}", "turn": 1, "model": model, "status": "ok",
         "exact_match": (model == "a") == bool(item % 4)}
        for item in range(N) for model in "ab"
    ]  # fmt: skip
    frames = {"judgments": pl.DataFrame(rows), "answers": pl.DataFrame(given)}
    method = method_in(pairwise_ranking)(pairwise_ranking.Config(judges=("j",)))
    sources = [Source(name, "pairwise_ranking", method, "judgments") for name in
               ("steady", "order only")]  # fmt: skip
    sources.append(Source("answers", "answers", method_in(answers)(AnswersConfig()), "answers"))
    trust = of_frames(frames, Clusters(), DEFAULTS, 0.95)
    context = Context("judge_prompts", frames, pl.DataFrame(), sources, 0.95, 200, 0, trust=trust)
    analysis = JudgePromptsAnalysis(Config(**config))
    return [
        [dict(zip([c.name for c in table.columns], line, strict=True)) for line in table.rows]
        for table in analysis.summarise(context)
    ]


def test_every_setting_has_its_verdict_with_what_it_rests_on():
    (steady, order_only), _ = tables()
    assert (steady["verdict"], order_only["verdict"]) == ("trusted", "not trusted")
    assert steady["on the labels"].value == pytest.approx(0.9)
    assert order_only["on the labels"].value == pytest.approx(0.02)
    assert (steady["flips"].value, order_only["flips"].value) == (0.0, 1.0)
    assert order_only["flips"].low > 0.5
    assert steady["flips"].high < 0.5
    for line in (steady, order_only):
        assert (line["decided"], line["missing"], line["judgments"]) == (N, 0, N)


def test_accuracy_stands_where_the_better_answer_is_known():
    (steady, order_only), _ = tables(winner={"exact_match": True})
    assert steady["accuracy"].value == 1.0
    assert order_only["accuracy"].value == pytest.approx(0.75)
    (unknown, _), _ = tables()
    assert unknown["accuracy"].value is None


def test_settings_that_decide_alike_agree():
    _, ((line),) = tables()
    assert line["same decision"].value == pytest.approx(0.75)
    assert line["same decision"].low < 0.75 < line["same decision"].high
    assert line["pairs"] == N


def test_only_named_settings_are_compared():
    (line,), agreement = tables(methods=("steady",))
    assert line["setting"] == "steady"
    assert agreement == []


def test_a_run_without_a_judge_has_no_settings():
    context = Context(
        "judge_prompts", {}, pl.DataFrame(), [Source("p", "p", PLAIN, "p")], 0.95, 9, 0
    )
    with pytest.raises(UsageError, match="no method of this recipe judges"):
        JudgePromptsAnalysis(Config()).summarise(context)
