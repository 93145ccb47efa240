import numpy as np
import pytest

from orchestrator.judgment.similarity import idf_weights
from tests.oracles.bertscore import bertscore_from_similarity, f_beta


@pytest.mark.parametrize("case", ["bertscore.1", "bertscore.2"])
def test_greedy_matching(reference, case):
    inputs, outputs = reference(case)
    found = bertscore_from_similarity(inputs["sim_hyp_x_ref"], inputs["w_hyp"], inputs["w_ref"])
    assert found == pytest.approx((outputs["P"], outputs["R"], outputs["F1"]), abs=1e-9)


def test_f_beta(reference):
    _, outputs = reference("bertscore.1")
    precision, recall = outputs["P"], outputs["R"]
    assert f_beta(precision, recall, 0.0) == pytest.approx(outputs["F_beta0"], abs=1e-9)
    assert f_beta(precision, recall, 0.2) == pytest.approx(outputs["F_beta0.2"], abs=1e-9)


def test_special_tokens_stay_candidates(reference):
    inputs, outputs = reference("bertscore.2")
    inner = np.asarray(inputs["sim_hyp_x_ref"])[:, 1:-1]
    without = bertscore_from_similarity(inner, inputs["w_hyp"], inputs["w_ref"][1:-1])
    expected = outputs["P_if_special_tokens_excluded_from_max"]
    assert without.precision == pytest.approx(expected, abs=1e-9)
    assert expected < outputs["P"]


def test_idf(reference):
    inputs, outputs = reference("bertscore.idf.1")
    # A token that is in no reference.
    found = idf_weights({**inputs["doc_freq"], "unseen": 0}, inputs["num_refs"])
    assert found == pytest.approx(outputs, abs=1e-9)
