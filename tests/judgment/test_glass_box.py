"""Glass-box features: an independent implementation's numbers, and what must hold for any input."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from orchestrator.errors import StatisticsError
from orchestrator.judgment import glass_box
from tests.oracles.glass_box import aligned_features, attention_entropy, code_features, entropy

OF = {name: formula for name, (_, formula) in glass_box.FORMULAS.items()}
finite = st.floats(-50, 50)
logprob_arrays = hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-30, 0))
columns = hnp.arrays(np.float64, st.integers(2, 30), elements=st.floats(-1e3, 1e3))


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.fixture
def paper(reference):
    given, wanted = reference("glassbox.paper.1")
    rows = np.log(np.array(given["p_t_v"]))
    return rows, rows[np.arange(len(rows)), given["chosen"]], wanted


def test_sentence_probability_is_the_papers(paper):
    _, chosen, wanted = paper
    assert OF["sentence_prob"](chosen) == close(wanted["SentProb_product"])
    assert glass_box.sum_logprob(chosen) == close(wanted["log_SentProb"])
    assert OF["mean_logprob"](chosen) == close(wanted["mean_logprob"])


def test_softmax_entropy_is_the_papers(paper):
    rows, _, wanted = paper
    assert entropy(rows).tolist() == close(wanted["entropy_per_step_nats"])
    found = glass_box.mean_over_tokens(entropy(rows))
    assert found == close(wanted["Softmax_Ent"])
    flipped = glass_box.ORIENTATION["softmax_entropy"] * found
    assert flipped == close(wanted["Softmax_Ent_sign_flipped(higher=better)"])


def test_softmax_variance_is_that_of_the_population(paper):
    _, chosen, wanted = paper
    of_probs, of_logs = OF["token_prob_var"](chosen), OF["token_logprob_var"](chosen)
    assert of_probs == close(wanted["Softmax_Var_on_probs_pop"])
    assert of_logs == close(wanted["Softmax_Var_on_logprobs_pop"])
    n = len(chosen)
    unbiased = of_probs * n / (n - 1)
    assert unbiased == close(wanted["Softmax_Var_on_probs_sample_ddof1"])


@pytest.fixture
def sequence(reference):
    given, wanted = reference("glassbox.code.1")
    return (given["logits_LxV"], given["sequence_ids"], given["prefix_len"]), wanted


def test_the_released_codes_features_are_its_own(sequence):
    arguments, wanted = sequence
    found = code_features(*arguments)
    assert found.logprob.tolist() == close(wanted["terms_logprobs_code"])
    assert glass_box.mean_over_tokens(found.logprob) == close(wanted["code_logprobs"])
    product = glass_box.mean_over_tokens(found.vocab_mean_logp_logit)
    assert product == close(wanted["code_logprobs_entropy"])
    variance = glass_box.mean_over_tokens(found.vocab_logprob_var)
    assert variance == close(wanted["code_logprobs_variance"])


def test_aligned_features_are_the_papers_positions(sequence):
    arguments, wanted = sequence
    found = aligned_features(*arguments)
    assert found.logprob.tolist() == close(wanted["aligned_token_logprobs"])
    pairs = {
        "aligned_mean_logprob": OF["mean_logprob"](found.logprob),
        "aligned_Softmax_Ent_paper": glass_box.mean_over_tokens(found.entropy),
        "aligned_Softmax_Var_paper_logprobs_pop": OF["token_logprob_var"](found.logprob),
        "aligned_Softmax_Var_paper_probs_pop": OF["token_prob_var"](found.logprob),
        "aligned_vocab_var_ddof1_mean": glass_box.mean_over_tokens(found.vocab_logprob_var),
        "aligned_mean_logp_times_logit": glass_box.mean_over_tokens(found.vocab_mean_logp_logit),
    }
    for name, value in pairs.items():
        assert value == close(wanted[name]), name


@pytest.mark.parametrize(
    ("name", "signs"),
    [
        ("zscore_sum_-ent_-var", (-1, -1)),
        ("zscore_sum_ent_var", (1, 1)),
    ],
)
def test_combinations_are_sums_of_normalised_features(reference, name, signs):
    given, wanted = reference("glassbox.combo.1")
    orientation = dict(zip(("ent", "var"), signs, strict=True))
    found = glass_box.combo(given, orientation)
    assert found.tolist() == close(wanted[name])


def test_calibration_is_the_printed_one_and_that_of_the_prose(reference):
    given, wanted = reference("glassbox.calibration.1")
    logprobs, feature = np.log(given["ref_token_probs"]), given["answer_feature"]
    printed, prose = glass_box.sent_prob_ref(logprobs), -OF["mean_logprob"](logprobs)
    assert printed == close(wanted["SentProbRef_as_printed_-p_log_p"])
    assert prose == close(wanted["SentProbRef_prose_mean_neg_logprob"])
    assert feature - printed == close(wanted["calibrated_as_printed"])
    assert feature - prose == close(wanted["calibrated_prose"])


def test_ensembles_have_a_mean_and_a_population_variance(reference):
    given, wanted = reference("glassbox.ensemble.1")
    found = glass_box.ensemble(given["sentence_level_scores_SP_n"])
    assert found[0] == close(wanted["Unt_Exp"])
    assert found[1] == close(wanted["Unt_Var_pop"])
    found = glass_box.ensemble(given["same_as_probs"])
    assert found[0] == close(wanted["Unt_Exp_on_probs"])
    assert found[1] == close(wanted["Unt_Var_on_probs_pop"])


def test_one_pass_is_no_ensemble():
    assert all(math.isnan(value) for value in glass_box.ensemble([-0.4]))


def test_attention_entropy_is_the_printed_sum():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(9), size=(2, 3, 4))[..., :5]
    found = attention_entropy(weights)
    for layer, head in np.ndindex(2, 3):
        total = sum(a * math.log(a) for row in weights[layer, head] for a in row)
        assert found[layer, head] == close(-total / 5)
    assert OF["attention_entropy_min"](found) == found.min()
    assert OF["attention_entropy_avg"](found) == close(found.mean())


def test_attention_of_zero_adds_nothing():
    assert attention_entropy([[1.0, 0.0], [0.5, 0.5]]) == close(math.log(2) / 2)


@pytest.mark.parametrize(
    "feature",
    [
        pytest.param(formula, id=name)
        for name, formula in {**OF, "sent_prob_ref": glass_box.sent_prob_ref}.items()
    ],
)
def test_nothing_has_no_feature(feature):
    assert math.isnan(feature([]))


def test_an_impossible_token_makes_a_mean_minus_infinite_and_a_variance_undefined():
    logprobs = [-0.5, -math.inf]
    assert OF["mean_logprob"](logprobs) == -math.inf
    assert OF["sentence_prob"](logprobs) == 0
    assert math.isnan(OF["token_logprob_var"](logprobs))
    assert OF["token_prob_var"](logprobs) == close((math.exp(-0.5) / 2) ** 2)
    assert glass_box.sent_prob_ref(logprobs) == close(0.25 * math.exp(-0.5))


def test_a_feature_that_is_the_same_for_all_adds_nothing():
    features = {"softmax_entropy": [2.0, 2.0, 2.0], "vocab_logprob_var": [1.0, 2.0, 3.0]}
    alone = glass_box.combo({"vocab_logprob_var": features["vocab_logprob_var"]})
    assert glass_box.combo(features).tolist() == alone.tolist()


def test_an_item_that_lacks_a_feature_has_no_combination_and_does_not_count():
    features = {"softmax_entropy": [1.0, math.nan, 3.0], "vocab_logprob_var": [4.0, 5.0, 7.0]}
    found = glass_box.combo(features)
    assert math.isnan(found[1])
    others = {name: [values[0], values[2]] for name, values in features.items()}
    assert found[[0, 2]].tolist() == glass_box.combo(others).tolist()


@pytest.mark.parametrize("features", [{}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": [[1.0]]}])
def test_features_of_several_lengths_can_not_be_combined(features):
    with pytest.raises(StatisticsError, match="one length"):
        glass_box.combo(features, {"a": 1, "b": 1})


def test_a_feature_without_an_orientation_can_not_be_combined():
    with pytest.raises(StatisticsError, match="not stated for mood"):
        glass_box.combo({"mood": [1.0, 2.0]})


@given(logprob_arrays)
def test_variances_are_not_negative_and_means_lie_within(logprobs):
    assert OF["token_logprob_var"](logprobs) >= 0
    assert 0 <= OF["token_prob_var"](logprobs) <= 0.25 + 1e-12
    low, high = logprobs.min(), logprobs.max()
    assert low - 1e-9 <= OF["mean_logprob"](logprobs) <= high + 1e-9


@given(columns, st.floats(0.1, 10), st.floats(-100, 100))
def test_combinations_do_not_depend_on_a_features_unit(values, factor, shift):
    moved = factor * values + shift
    if np.ptp(values) < 1e-3:
        return
    found = glass_box.combo({"sum_logprob": moved})
    plain = glass_box.combo({"sum_logprob": values})
    np.testing.assert_allclose(found, plain, atol=1e-6)
