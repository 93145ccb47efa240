import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
import scipy.stats
from pydantic import ValidationError

from orchestrator.analyses.meta_evaluation import Config, Kind
from orchestrator.errors import UsageError
from tests.tables import lines

EXACT = Config(gold={"exact_match": True})
SCORES = {"made": {"value": 1, "noise": 1}}


def summarise(asked):
    config, context = asked
    return Kind(config).summarise(context)


def found(tables, key):
    (table,) = [table for table in tables if table.key == f"meta_evaluation.{key}"]
    return lines(table)


@pytest.fixture
def tables(context_over, answers, scored):
    return summarise(context_over(EXACT, {"answers": answers, "made": scored}, SCORES))


def test_a_score_that_follows_gold_correlates_over_all_models_and_within_each(tables):
    rows = {row["score"]: row for row in found(tables, "correlation")}
    assert rows["made.value"]["Kendall tau-b"].low > 0
    assert rows["made.value"]["prompts"] == 120
    within = {row["score"]: row for row in found(tables, "models")}
    assert set(within["made.value"]) == {"score", "good", "fair", "poor"}
    assert within["made.value"]["good"].low > 0


def test_noise_does_not_correlate(tables):
    rows = {row["score"]: row for row in found(tables, "correlation")}
    noise = rows["made.noise"]["Spearman"]
    assert noise.low < 0 < noise.high


def test_the_sign_of_a_correlation_is_kept(context_over, answers, scored):
    turned = scored.with_columns(value=-pl.col("value"))
    context = context_over(EXACT, {"answers": answers, "made": turned}, {"made": {"value": -1}})
    row = found(summarise(context), "correlation")[0]
    assert row["expected"] == "-"
    assert row["Spearman"].value < 0


def test_categories_have_their_own_columns_and_a_mean(tables):
    row = found(tables, "categories")[0]
    assert set(row) == {"score", "mean", "even", "odd"}
    assert row["mean"].value == pytest.approx((row["even"] + row["odd"]) / 2)


OF_SCIPY: dict[str, Callable[..., Any]] = {
    "Pearson": scipy.stats.pearsonr,
    "Kendall tau-b": scipy.stats.kendalltau,
    "Spearman": scipy.stats.spearmanr,
}


def test_the_three_coefficients_of_the_paper_stand_side_by_side_within_each_model(
    tables, answers, scored
):
    rows = found(tables, "within")
    # Table 1 of the glass-box paper: a block for each model, and the coefficients in this order.
    assert [row["model"] for row in rows] == ["good", "good", "fair", "fair", "poor", "poor"]
    assert list(rows[0])[2:5] == ["Pearson", "Kendall tau-b", "Spearman"]
    of_fair = answers["model"] == "fair"
    right = answers["exact_match"].cast(pl.Float64).filter(of_fair)
    (row,) = (row for row in rows if (row["model"], row["score"]) == ("fair", "made.value"))
    for name, of_scipy in OF_SCIPY.items():
        expected = of_scipy(scored["value"].filter(of_fair), right).statistic
        assert row[name].value == pytest.approx(expected)
        assert row[name].low < expected < row[name].high
    assert (row["prompts"], row["missing"]) == (120, 0)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Spearman", "categories"),
        ("Kendall tau-b", "categories.kendall"),
        ("Pearson", "categories.pearson"),
    ],
)
def test_each_coefficient_is_given_by_category(name, key, tables, answers, scored):
    row = found(tables, key)[0]
    for category in ("even", "odd"):
        chosen = answers["category"] == category
        right = answers["exact_match"].cast(pl.Float64).filter(chosen)
        expected = OF_SCIPY[name](scored["value"].filter(chosen), right).statistic
        assert row[category] == pytest.approx(expected)


def test_one_model_has_its_coefficients_too(context_over, answers, scored):
    only = {"answers": answers, "made": scored.filter(pl.col("model") == "fair")}
    tables = summarise(context_over(EXACT, only, SCORES))
    assert [row["model"] for row in found(tables, "within")] == ["fair", "fair"]


def test_two_scores_are_compared_on_the_same_answers(tables):
    rows = found(tables, "comparison")
    assert [row["correlation"] for row in rows] == ["Pearson", "Kendall tau-b", "Spearman"]
    for row in rows:
        assert (row["score"], row["against"]) == ("made.value", "made.noise")
        assert row["difference"].low > 0
        assert row["p (Holm)"] < 0.05


def test_a_judge_is_gold_and_no_score(context_over, answers, scored):
    config = Config(gold={"method": "made", "column": "value"})
    context = context_over(config, {"answers": answers, "made": scored}, SCORES)
    rows = found(summarise(context), "correlation")
    assert {row["score"] for row in rows} == {"made.noise"}


def test_a_column_of_the_dataset_is_gold(context_over, answers, scored):
    items = answers.unique("item", maintain_order=True).select("item")
    fields = [json.dumps({"hard": index % 3}) for index in range(len(items))]
    frames = {
        "answers": answers,
        "made": scored,
        "items": items.with_columns(fields=pl.Series(fields)),
    }
    config = Config(gold={"field": "hard"})
    rows = found(summarise(context_over(config, frames, SCORES)), "correlation")
    assert rows[0]["prompts"] == 120
    with pytest.raises(UsageError, match="no item has a number in the column 'soft'"):
        summarise(context_over(Config(gold={"field": "soft"}), frames, SCORES))


def label_file(path, scored, *, annotators=1):
    rows = scored.select("item", "model", "value").iter_rows(named=True)
    text = "".join(
        json.dumps({"item": row["item"], "model": row["model"], "label": row["value"] + shift})
        + "\n"
        for row in rows
        for shift in range(annotators)
    )
    path.write_text(text, encoding="utf-8")
    return path


def test_labels_of_answers_are_gold_averaged_over_annotators(
    context_over, answers, scored, tmp_path
):
    path = label_file(tmp_path / "labels.jsonl", scored, annotators=3)
    config = Config(gold={"labels": str(path)})
    frames = {"answers": answers, "made": scored}
    rows = found(summarise(context_over(config, frames, SCORES)), "correlation")
    perfect = next(row for row in rows if row["score"] == "made.value")
    assert perfect["Pearson"].value == pytest.approx(1.0)


def test_a_file_of_labels_is_looked_for_beside_the_recipe(tmp_path, scored):
    label_file(tmp_path / "labels.jsonl", scored)
    context = {"folder": str(tmp_path)}
    config = Config.model_validate({"gold": {"labels": "labels.jsonl"}}, context=context)
    assert config.gold.labels == str(tmp_path / "labels.jsonl")
    with pytest.raises(ValidationError, match=r"no such file: 'no\.jsonl'"):
        Config.model_validate({"gold": {"labels": "no.jsonl"}}, context=context)


def test_labels_that_are_words_are_no_gold(context_over, answers, scored, tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"item": "i0", "label": "good"}\n', encoding="utf-8")
    config = Config(gold={"labels": str(path)})
    with pytest.raises(UsageError, match=r"no label in labels\.jsonl is a number"):
        summarise(context_over(config, {"answers": answers, "made": scored}, SCORES))


def test_constant_gold_says_why_there_is_no_correlation(context_over, answers, scored):
    same = answers.with_columns(exact_match=pl.lit(True))  # noqa: FBT003
    context = context_over(EXACT, {"answers": same, "made": scored}, SCORES)
    assert found(summarise(context), "correlation")[0]["Pearson"].why == "gold is constant"


def test_gold_is_named_in_one_way():
    with pytest.raises(ValidationError, match="give one of"):
        Config(gold={"exact_match": True, "field": "x"})


def test_the_models_are_ordered_by_each_score_and_by_gold(tables):
    rows = {row["score"]: row for row in found(tables, "ranking")}
    assert rows["made.value"]["order found"] == "good > fair > poor"
    assert rows["made.value"]["Kendall tau-b"].value == 1.0
    # Of the six orderings of three models, two agree or disagree as much.
    assert rows["made.value"]["p"] == pytest.approx(2 / 6)


def test_models_whose_means_differ_by_rounding_alone_have_no_order(context_over, answers, scored):
    # Values within a model of mean 0 but for rounding, as the z-scores of glass_box are.
    turned = scored.with_columns(
        value=(pl.col("value") - pl.col("value").mean().over("model")) * 1e3
    )
    means = turned.group_by("model").agg(pl.col("value").mean())["value"]
    assert means.n_unique() > 1
    assert means.abs().max() < 1e-9
    tables = summarise(context_over(EXACT, {"answers": answers, "made": turned}, SCORES))
    row = next(row for row in found(tables, "ranking") if row["score"] == "made.value")
    assert row["order found"] == "fair = good = poor"
    assert row["Kendall tau-b"].why == "all models are tied"


def test_answers_to_a_prompt_and_prompts_are_told_apart(context_over, answers, scored):
    """One score knows how hard a prompt is and nothing of answers, the other the opposite."""
    right = answers["exact_match"].cast(pl.Float64)
    frame = scored.with_columns(gold=right)
    hard = pl.col("gold").mean().over("item")
    noise = 0.01 * pl.col("noise")
    frame = frame.with_columns(value=hard, noise=pl.col("gold") - hard + noise).drop("gold")
    tables = summarise(context_over(EXACT, {"answers": answers, "made": frame}, SCORES))
    rows = {row["score"]: row for row in found(tables, "prompts")}
    difficulty, answer = rows["made.value"], rows["made.noise"]
    assert difficulty["within prompts"].value == 0
    assert difficulty["across prompts"].value == pytest.approx(1)
    assert answer["within prompts"].low > 0.5
    assert answer["across prompts"].low < 0 < answer["across prompts"].high
    taus, means = [], []
    both = frame.with_columns(gold=right)
    for item in both.partition_by("item", maintain_order=True):
        means.append((item["noise"].mean(), item["gold"].mean()))
        if item["gold"].n_unique() > 1:
            taus.append(scipy.stats.kendalltau(item["noise"], item["gold"]).statistic)
    assert answer["within prompts"].value == pytest.approx(sum(taus) / len(taus), rel=1e-9)
    assert (answer["of"], answer["prompts"]) == (len(taus), 120)
    rho = scipy.stats.spearmanr(pl.DataFrame(means, orient="row").to_numpy()).statistic
    assert answer["across prompts"].value == pytest.approx(rho, rel=1e-9)


def test_one_answer_a_prompt_gives_no_table_of_prompts(context_over, answers, scored):
    one = (pl.col("model") == "good",)
    frames = {"answers": answers.filter(*one), "made": scored.filter(*one)}
    tables = summarise(context_over(EXACT, frames, SCORES))
    assert "meta_evaluation.prompts" not in {table.key for table in tables}
