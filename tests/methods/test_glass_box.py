"""The method glass_box: what it asks, and what its rows hold."""

import math

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from orchestrator.ask import AskFailed, GenerateAsk
from orchestrator.contracts.method import schema_of
from orchestrator.judgment import glass_box as formulas
from orchestrator.judgment.glass_box import entropy_bounds
from orchestrator.methods import glass_box
from orchestrator.methods._glass_box import AUGMENTABLE, orientation
from orchestrator.methods.glass_box import Config
from orchestrator.methods.glass_box import Kind as GlassBox
from orchestrator.prompts.glass_box import SYSTEM_POOL
from orchestrator.records import (
    TOKEN_FEATURES,
    Failure,
    Generation,
    Item,
    Message,
    Scored,
    TopLogprobs,
    Unit,
)
from tests.methods.glass_box_model import (
    ITEM,
    Model,
    close,
    ids_of,
    rows_of,
    values_of,
)

EVERYTHING = Config(
    features=("vocabulary", "attention", "code"),
    alternatives=2,
    vocabulary_size=10,
    calibration=True,
    illustration=True,
    decoding_ensemble={"passes": 3, "top_k": 5},
    augmented=AUGMENTABLE,
    prompt_ensemble={"redraw": True},
)
ANSWERS = ("ab", "c", "d", "e", *"1234567")


def test_an_answer_is_read_off_one_pass_over_its_own_tokens():
    model = Model("ab")
    (row,) = rows_of(model)
    (asked,) = model.scored()
    assert (asked.token_ids, asked.messages) == ((97, 98), ITEM.messages)
    assert set(asked.features) == {"entropy", "vocab_logprob_var", "vocab_mean_logp_logit"}
    lp = np.array([-0.97, -0.98])
    assert row["mean_logprob"] == close(lp.mean())
    assert row["sum_logprob"] == close(lp.sum())
    assert row["sentence_prob"] == close(math.exp(lp.sum()))
    assert row["token_logprob_var"] == close(lp.var())
    assert row["token_prob_var"] == close(np.exp(lp).var())
    for column, name in (
        ("softmax_entropy", "entropy"),
        ("vocab_logprob_var", "vocab_logprob_var"),
        ("vocab_mean_logp_logit", "vocab_mean_logp_logit"),
    ):
        assert row[column] == close(values_of(name, ITEM.messages, 2).mean())
    assert (row["n_tokens"], row["undefined"], row["scorer"]) == (2, None, "m")


def test_a_row_holds_what_its_schema_says():
    (row,) = rows_of(Model(*ANSWERS), EVERYTHING)
    assert row.keys() <= schema_of(glass_box.Kind).keys()
    filled = {name for name, value in row.items() if value is not None}
    assert filled >= GlassBox(EVERYTHING).scores.keys() - {"combo", "combo_of_model"}


def test_attention_is_its_least_and_its_mean():
    (row,) = rows_of(Model("ab"), Config(features=("attention",)))
    assert (row["attention_entropy_min"], row["attention_entropy_avg"]) == (0.5, 2.0)
    assert row["softmax_entropy"] is None


def test_the_codes_numbers_are_read_with_the_end_of_the_turn():
    model = Model("ab")
    (row,) = rows_of(model, Config(features=("code",)))
    plain, code = model.scored()
    assert (plain.end_of_turn, code.end_of_turn) == (False, True)
    assert row["n_tokens"] == 2
    expected = values_of("compat_logprob", ITEM.messages, 3).mean()
    assert row["code_logprobs"] == close(expected)


def test_an_answer_that_was_cut_off_has_no_end_of_the_turn():
    model = Model("ab", finish="length")
    (row,) = rows_of(model, Config(features=("code",), end_of_turn=True))
    assert not any(ask.end_of_turn for ask in model.scored())
    assert row["truncated"]


def test_the_end_of_the_turn_may_count():
    (row,) = rows_of(Model("ab"), Config(end_of_turn=True))
    assert row["n_tokens"] == 3


def test_bounds_of_the_entropy_are_means_of_the_tokens_bounds():
    (row,) = rows_of(Model("ab"), Config(features=(), alternatives=2, vocabulary_size=10))
    lower, upper = entropy_bounds(np.log(np.full((2, 2), 0.25)), 10)
    assert upper is not None
    assert row["softmax_entropy"] is None
    assert row["softmax_entropy_low"] == close(lower.mean())
    assert row["softmax_entropy_high"] == close(upper.mean())


def test_without_the_size_of_the_vocabulary_there_is_no_upper_bound():
    (row,) = rows_of(Model("ab"), Config(features=(), alternatives=2))
    assert row["softmax_entropy_low"] is not None
    assert row["softmax_entropy_high"] is None


def test_the_reference_is_scored_under_the_same_conversation():
    model = Model("ab")
    (row,) = rows_of(model, Config(calibration=True))
    _, asked = model.scored()
    assert (asked.text, asked.token_ids, asked.messages) == ("right", (), ITEM.messages)
    lp = -ids_of("right") / 100
    assert row["reference_mean_logprob"] == close(lp.mean())
    assert row["reference_sent_prob"] == close(formulas.sent_prob_ref(lp))
    assert row["mean_logprob_calibrated"] == close(row["mean_logprob"] - lp.mean())
    printed = row["softmax_entropy"] - row["reference_sent_prob"]
    assert row["softmax_entropy_calibrated_printed"] == close(printed)


@pytest.mark.parametrize("feature", AUGMENTABLE)
def test_any_feature_of_the_softmax_distribution_can_be_illustrated_and_calibrated(feature):
    # Table 2 of the paper: Softmax-Var is `token_prob_var` by its formula.
    config = Config(calibration=True, illustration="own", augmented=(feature,))
    model = Model("ab")
    (row,) = rows_of(model, config)
    example = (Message("user", "q1"), Message("assistant", "right"))
    under = Item(key="k", messages=(*example, Message("user", "q1")))
    (alone,) = rows_of(Model("ab"), unit=Unit(under, ("m",)))
    (reference,) = rows_of(Model("right"))
    assert row[f"illustrated_{feature}"] == close(alone[feature])
    assert row[f"{feature}_calibrated"] == close(row[feature] - reference[feature])
    printed = row[feature] - row["reference_sent_prob"]
    assert row[f"{feature}_calibrated_printed"] == close(printed)
    filled = [name for name in GlassBox(config).scores if "illustrated" in name]
    assert filled == [f"illustrated_{feature}"]


def test_an_item_without_a_reference_is_not_calibrated():
    bare = Item(key="k", messages=ITEM.messages)
    (row,) = rows_of(Model("ab"), Config(calibration=True), Unit(bare, ("m",)))
    assert row["mean_logprob"] is not None
    assert row.get("mean_logprob_calibrated") is None


def test_passes_of_the_decoding_ensemble_are_draws_of_their_own():
    model = Model("ab", "c", "dd", "e")
    (row,) = rows_of(model, Config(decoding_ensemble={"passes": 3, "top_k": 5}))
    first, *passes = model.generated()
    assert [(one.sampling.top_k, one.sampling.temperature) for one in passes] == [(5, 1.0)] * 3
    assert len({one.key(b"m", 0) for one in (first, *passes)}) == 4
    sp = np.array([-0.99, -1.0, -1.01])
    assert (row["decoding_exp"], row["decoding_var"]) == (close(sp.mean()), close(sp.var()))
    assert row["decoding_exp_prob"] == close(np.exp(sp).mean())
    # SentProb as printed is the product over the tokens: "dd" has two.
    products = np.exp([-0.99, -2.0, -1.01])
    assert row["decoding_exp_product"] == close(products.mean())
    assert row["decoding_var_product"] == close((products**2).mean() - products.mean() ** 2)
    assert (row["decoding_passes"], row["answer"]) == (3, "ab")
    assert len(model.scored()) == 1


def test_empty_passes_do_not_count_and_one_is_no_ensemble():
    (row,) = rows_of(Model("ab", "c", "", " "), Config(decoding_ensemble={"passes": 3}))
    assert (row["decoding_passes"], row["decoding_exp"], row["decoding_var"]) == (1, None, None)


def test_the_prompt_ensemble_scores_the_same_answer_under_each_system_prompt():
    item = Item(key="k", messages=(Message("system", "own"), Message("user", "q1")))
    model = Model("ab")
    (row,) = rows_of(model, Config(prompt_ensemble={}), Unit(item, ("m",)))
    _, *passes = model.scored()
    assert [ask.messages for ask in passes] == [
        (Message("system", prompt), Message("user", "q1")) for prompt in SYSTEM_POOL
    ]
    assert {ask.token_ids for ask in passes} == {(97, 98)}
    assert (row["prompting_passes"], row["prompting_var"]) == (7, close(0))


def test_the_prompt_ensemble_may_draw_an_answer_under_each_system_prompt_too():
    # Section 2.2: "randomly choose a system prompt from a pre-designed prompt pool for each
    # inference".
    item = Item(key="k", messages=(Message("system", "own"), Message("user", "q1")))
    model = Model("ab", "c", "e")
    config = Config(prompt_ensemble={"prompts": ["one", "two"], "redraw": True})
    (row,) = rows_of(model, config, Unit(item, ("m",)))
    first, *redrawn = model.generated()
    assert [ask.messages for ask in redrawn] == [
        (Message("system", prompt), Message("user", "q1")) for prompt in ("one", "two")
    ]
    assert {ask.sampling for ask in redrawn} == {first.sampling}
    sp = np.array([-0.99, -1.01])
    assert (row["redrawn_exp"], row["redrawn_var"]) == (close(sp.mean()), close(sp.var()))
    assert row["redrawn_exp_product"] == close(np.exp(sp).mean())
    assert (row["prompting_passes"], row["redrawn_passes"]) == (2, 2)


def test_a_scorer_reads_redrawn_answers_under_their_own_prompts():
    config = Config(scorer="s", prompt_ensemble={"prompts": ["one", "two"], "redraw": True})
    model = Model("ab", "c", "e")
    (row,) = rows_of(model, config, Unit(ITEM, ("m",), "s"))
    read = [(ask.messages[0].content, ask.text) for ask in model.scored()[-2:]]
    assert read == [("one", "c"), ("two", "e")]
    assert row["redrawn_passes"] == 2


def test_another_model_reads_the_text_of_the_answer():
    model = Model("ab", "c", "d")
    config = Config(scorer="s", decoding_ensemble={"passes": 2})
    (row,) = rows_of(model, config, Unit(ITEM, ("m",), "s"))
    assert {ask.model for ask in model.generated()} == {"m"}
    assert [(ask.model, ask.text, ask.token_ids) for ask in model.scored()] == [
        ("s", "ab", ()), ("s", "c", ()), ("s", "d", ()),
    ]  # fmt: skip
    assert (row["model"], row["scorer"]) == ("m", "s")


def test_a_scorer_is_asked_and_not_evaluated():
    (combination,) = glass_box.Kind(Config(scorer="s")).combinations(["m"])
    assert (combination.models, combination.judge) == (("m",), "s")


def test_an_empty_answer_has_no_features_and_costs_no_score():
    model = Model("  ")
    (row,) = rows_of(model)
    assert (row["undefined"], row["n_tokens"], row["status"]) == ("empty answer", 0, "ok")
    assert model.scored() == []
    assert row["mean_logprob"] is None


def test_a_token_without_a_finite_log_probability_is_said():
    def model(ask):
        if isinstance(ask, GenerateAsk):
            return Generation("ab", "stop", token_ids=ids_of("ab"))
        return Scored(ids_of("ab"), np.array([-1, -np.inf], np.float32))

    (row,) = rows_of(model, Config(features=()))
    assert row["undefined"] == "a token has no finite log-probability"
    assert row["mean_logprob"] is None


def test_each_turn_is_scored_after_the_models_own_answers():
    item = Item(key="k", messages=ITEM.messages, followups=("q2",))
    model = Model("ab", "cd")
    first, second = rows_of(model, unit=Unit(item, ("m",)))
    assert (first["turn"], second["turn"]) == (1, 2)
    assert model.scored()[1].messages == (
        Message("user", "q1"), Message("assistant", "ab"), Message("user", "q2"),
    )  # fmt: skip


DRAW = Config(observe="draw", alternatives=2, vocabulary_size=10)


def test_what_came_with_the_draw_is_read_where_nothing_is_scored():
    top = TopLogprobs(np.zeros((2, 2), np.int32), np.log(np.full((2, 2), 0.25, np.float32)))
    model = Model("ab", top=top)
    (row,) = rows_of(model, DRAW)
    assert model.scored() == []
    assert (row["mean_logprob"], row["observed"]) == (close(-0.975), "draw")
    assert row["softmax_entropy"] is None
    assert row["softmax_entropy_low"] < row["softmax_entropy_high"]


@pytest.mark.parametrize(
    ("drawn", "why"),
    [
        ({"logprobs": None}, "the server gave no log-probabilities with the draw"),
        ({"raw": False}, "the draw's log-probabilities are not those of temperature 1"),
    ],
)
def test_a_draw_without_raw_log_probabilities_is_undefined(drawn, why):
    (row,) = rows_of(Model("ab", **drawn), Config(observe="draw"))
    assert (row["undefined"], row["mean_logprob"]) == (why, None)


def test_a_failure_fails_the_unit():
    def model(ask):
        if isinstance(ask, GenerateAsk):
            return Generation("ab", "stop", token_ids=ids_of("ab"))
        return Failure("unsupported", "no", permanent=True)

    with pytest.raises(AskFailed):
        rows_of(model)


@pytest.mark.parametrize(
    "settings",
    [
        {"observe": "draw", "calibration": True},
        {"observe": "draw", "features": ["vocabulary"]},
        {"observe": "draw", "scorer": "s"},
        {"combo": ["mood"]},
        {"combo": ["reference_mean_logprob"]},
        {"decoding_ensemble": {"passes": 1}},
        {"features": ["mood"]},
        {"augmented": ["mood"]},
        {"augmented": ["attention_entropy_min"]},
    ],
)
def test_settings_that_can_not_be_are_refused(settings):
    with pytest.raises(ValidationError):
        Config.model_validate(settings)


def test_the_plan_knows_the_features_and_every_request():
    found = {stage.name: stage for stage in GlassBox(EVERYTHING).stages(["m"])}
    asked = Model(*ANSWERS)
    rows_of(asked, EVERYTHING)
    n_scores = sum(stage.per_item for stage in found.values() if stage.ask == "score")
    assert n_scores == len(asked.scored())
    assert (found["draws"].per_item, found["redrawn answers"].per_item) == (3, 7)
    assert len(asked.generated()) == 1 + 3 + 7
    needed = {name for stage in found.values() for name in stage.features}
    assert needed == {name for ask in asked.scored() for name in ask.features}
    assert needed == {*TOKEN_FEATURES, "attention_entropy"}


def test_a_reference_is_needed_only_where_it_is_used():
    assert glass_box.Kind(Config()).needs() == frozenset()
    assert glass_box.Kind(Config(calibration=True)).needs() == {"reference"}


def test_scores_are_the_columns_that_are_filled_with_their_direction():
    found = GlassBox(Config()).scores
    assert found["softmax_entropy"] == -1
    assert found["vocab_logprob_var"] == found["combo"] == 1
    assert not any(name.startswith(("attention", "code", "decoding")) for name in found)
    everything = GlassBox(EVERYTHING).scores
    assert everything["decoding_var_prob"] == everything["illustrated_softmax_entropy"] == -1
    assert "reference_sent_prob" not in everything
    assert "softmax_entropy_low" not in everything


def frame(**columns):
    n = len(columns["softmax_entropy"])
    return pl.DataFrame({"model": ["m"] * n, "scorer": ["m"] * n, **columns})


def test_a_combination_is_made_over_all_rows_and_over_those_of_a_model():
    rows = frame(
        softmax_entropy=[1.0, 2.0, 3.0, 5.0], vocab_logprob_var=[4.0, 9.0, 1.0, 2.0]
    ).with_columns(model=pl.Series(["a", "a", "b", "b"]))
    found = glass_box.Kind(Config()).derive(rows)
    columns = {name: rows[name].to_numpy() for name in Config().combo}
    assert found["combo"].to_list() == close(formulas.combo(columns).tolist())
    first = formulas.combo({name: array[:2] for name, array in columns.items()})
    assert found["combo_of_model"].to_list()[:2] == close(first.tolist())


def test_every_feature_with_a_direction_can_be_combined_in_that_direction():
    config = EVERYTHING.model_copy(update={"combo": ()})
    names = [name for name in glass_box.Kind(config).scores if not name.startswith("combo")]
    values = np.array([1.0, 2.0, 4.0])
    for name in names:
        (chosen,) = Config(combo=[name]).combo
        rows = pl.DataFrame({"model": ["m"] * 3, "scorer": ["m"] * 3, chosen: values})
        found = glass_box.Kind(Config(combo=[name])).derive(rows)
        z_scores = orientation(name) * (values - values.mean()) / values.std()
        assert found["combo"].to_list() == close(z_scores.tolist())


def test_a_row_that_lacks_a_feature_has_no_combination():
    rows = frame(softmax_entropy=[1.0, None, 3.0], vocab_logprob_var=[4.0, 9.0, 1.0])
    found = glass_box.Kind(Config()).derive(rows)
    assert found["combo"][1] is None
    assert found["combo"].null_count() == found["combo_of_model"].null_count() == 1
