import polars as pl
import pytest

from orchestrator.analyses._orders import ValidationAnalysis
from orchestrator.analyses._orders import ValidationConfig as Config
from orchestrator.errors import UsageError
from tests.tables import by_name


def summarise(asked):
    config, context = asked
    return ValidationAnalysis(config).summarise(context)


def lines(tables):
    return by_name(tables[0])


def test_a_score_that_follows_the_truth_orders_the_models(context_over, answers, scored):
    frames = {"answers": answers, "made": scored}
    found = lines(summarise(context_over(Config(), frames, {"made": {"value": 1}})))
    line = found["made.value"]
    assert line["order found"] == "good > fair > poor"
    assert (line["right"], line["pairs right"], line["wrong"]) == ("yes", 3, 0)
    assert line["in resamples"] > 0.95


def test_the_orientation_of_a_score_turns_its_order(context_over, answers, scored):
    frames = {"answers": answers, "made": scored}
    found = lines(summarise(context_over(Config(), frames, {"made": {"value": -1}})))
    assert found["made.value"]["order found"] == "poor > fair > good"
    assert found["made.value"]["wrong"] == 3


def test_means_that_are_equal_but_for_rounding_give_no_order(context_over, answers, scored):
    # As a z-score within each model: every model's mean is 0, but for the last digits.
    value = pl.col("value")
    centred = scored.with_columns(value=((value - value.mean()) / value.std(ddof=0)).over("model"))
    assert centred.group_by("model").agg(value.mean().abs())["value"].max() < 1e-14
    frames = {"answers": answers, "made": centred}
    line = lines(summarise(context_over(Config(), frames, {"made": {"value": 1}})))["made.value"]
    assert sorted(line["order found"].split(" = ")) == ["fair", "good", "poor"]
    assert (line["right"], line["open"]) == ("no", 3)


def test_noise_resolves_no_pair(context_over, answers, scored):
    frames = {"answers": answers, "made": scored}
    found = lines(summarise(context_over(Config(), frames, {"made": {"noise": 1}})))
    assert found["made.noise"]["open"] == 3


def test_a_frame_of_pairs_gives_both_models_their_point(context_over, answers):
    pairs = pl.DataFrame(
        {"method": "pairs", "item": f"i{i}", "model_a": "poor", "model_b": "good", "prefer_a": p}
        for i, p in enumerate([0.1, 0.2, 0.0, 0.3] * 10)
    )
    frames = {"answers": answers, "pairs": pairs}
    config = Config(order=("good", "poor"))
    found = lines(summarise(context_over(config, frames, {"pairs": {"prefer_a": 1}})))
    assert found["pairs.prefer_a"]["order found"] == "good > poor"
    assert found["pairs.prefer_a"]["pairs right"] == 1


def test_a_missing_value_is_left_out(context_over, answers, scored):
    missing = scored.with_columns(value=pl.when(pl.col("model") != "fair").then("value"))
    frames = {"answers": answers, "made": missing}
    line = lines(summarise(context_over(Config(), frames, {"made": {"value": 1}})))["made.value"]
    assert (line["right"], line["in resamples"]) == ("undefined", None)


def test_without_a_known_order_there_is_nothing_to_check(context_over, scored):
    with pytest.raises(UsageError, match="the true order is unknown"):
        summarise(context_over(Config(), {"made": scored}, {"made": {"value": 1}}))


def test_a_score_that_is_not_there_is_named(context_over, answers, scored):
    config = Config(scores=({"method": "made", "column": "valu"},))
    context = context_over(config, {"answers": answers, "made": scored}, {"made": {"value": 1}})
    with pytest.raises(UsageError, match="has no numeric column 'valu'; available: turn, value"):
        summarise(context)
