import math

import numpy as np
import pytest

from orchestrator.judgment import pairwise
from orchestrator.judgment.distribution import from_logprobs
from orchestrator.judgment.pointwise import compare_scores, describe_scores, score_table
from tests.methods.judging import choice
from tests.methods.test_pairwise import first_shown, scored
from tests.oracles import pairwise as oracle

COMPARISONS = {
    "mode": "diff_mode",
    "rounded_mean": "diff_rounded_mean",
    "median": "diff_median",
    "first_percentile": "diff_1pct",
    "mean": "diff_mean",
    "ram": "diff_ram",
    "quantile": "diff_quantiles",
    "superiority": "diff_probsup",
}


def test_softmax_over_scores(reference):
    inputs, outputs = reference("judge.blog.1")
    shift = math.log(sum(map(math.exp, inputs["logits"])))
    read = from_logprobs([value - shift for value in inputs["logits"]])
    assert read.probabilities == pytest.approx(outputs["probs"], abs=1e-9)
    found = describe_scores(outputs["probs"], inputs["scores"])
    for name, theirs in (("mode", "mode"), ("mean", "mean"), ("entropy", "entropy_nats")):
        assert found[name] == pytest.approx(outputs[theirs], abs=1e-9), name
    assert found["std"] ** 2 == pytest.approx(outputs["variance"], abs=1e-9)
    assert found["median"] == pytest.approx(outputs["median"], abs=1e-9)
    assert found["lower_semideviation"] == pytest.approx(outputs["lower_semidev"], abs=1e-9)


@pytest.mark.parametrize("case", ["judge.pointwise.1", "judge.pointwise.3"])
def test_pointwise_comparisons(reference, case):
    inputs, outputs = reference(case)
    table = score_table([inputs["p1"], inputs["p2"]])
    found = compare_scores(table, np.array([0]), np.array([1]))
    for ours, theirs in COMPARISONS.items():
        assert found[ours][0] == pytest.approx(outputs[theirs], abs=1e-9), ours


@pytest.mark.parametrize("case", ["judge.pointwise.1", "judge.pointwise.3"])
def test_pointwise_summaries(reference, case):
    inputs, outputs = reference(case)
    p = [inputs["p1"], inputs["p2"]]
    found, top = score_table(p), len(p[0]) - 1
    for i in (0, 1):
        mean, semideviation = outputs[f"mean{i + 1}"], outputs[f"lower_semidev{i + 1}"]
        assert found["mean"][i] / top == pytest.approx(mean, abs=1e-9)
        assert found["lower_semideviation"][i] / top == pytest.approx(semideviation, abs=1e-9)
        assert mean - semideviation == pytest.approx(outputs[f"RAM{i + 1}"], abs=1e-9)
    std = math.sqrt(found["variance"].sum()) / top
    assert std == pytest.approx(outputs["std_diff"], abs=1e-9)


@pytest.mark.parametrize("case", ["judge.pairwise_ranking.1", "judge.pairwise_ranking.3"])
def test_pairwise_ranking(reference, case):
    inputs, outputs = reference(case)
    one, two = inputs["order1_AB"], inputs["order2_BA"]
    found = pairwise.judge_pair(one, two)
    for theirs, ours in {"mode": "mode", "medi": "median", "mean": "mean"}.items():
        for suffix, order in {"s1": "pre", "s2": "post"}.items():
            value = found[f"{ours}_{order}"]
            assert value == pytest.approx(outputs[f"{theirs}_{suffix}"][0], abs=1e-9)
    assert found["prefer_a"] == pytest.approx(outputs["P_A_better_plus_half_tie_s1"][0], abs=1e-9)
    symmetric = oracle.symmetrised([one], [two])
    assert symmetric == pytest.approx(np.array(outputs["sym_probs"]), abs=1e-9)
    means = {"s1": symmetric[0], "order1": one, "order2": two}
    for name, p in means.items():
        raw = np.dot(p, [2, 1, 0, -1, -2])
        assert raw == pytest.approx(outputs[f"raw_mean_{name}"][0], abs=1e-9)


def test_preference_of_the_first_order(reference):
    inputs, _ = reference("judge.pairwise_ranking.1")
    assert pairwise.judge_pair(inputs["order1_AB"], [0.2] * 5)["prefer_a_ab"] == pytest.approx(0.65)


def test_a_score_of_two_tokens(reference):
    inputs, outputs = reference("judge.multitoken.1")
    one, zero = inputs["P(first='1')"], inputs["P(second='0'|'1')"]
    ten, alone = outputs["P(10)"], outputs["P(1)"]
    assert (one * zero, one * (1 - zero)) == pytest.approx((ten, alone), abs=1e-9)
    masses = [alone, *inputs["P(first=s) for 2..9"].values(), ten]
    read = from_logprobs([math.log(mass) for mass in masses])
    scores = range(1, 11)
    found = describe_scores(read.probabilities or (), scores)
    # The reference does not renormalise; the labels hold all the mass.
    assert read.coverage == pytest.approx(1.0, abs=1e-9)
    assert found["mean"] == pytest.approx(outputs["mean_correct"], abs=1e-9)
    wrong = [one, *inputs["P(first=s) for 2..9"].values(), 0.0]
    assert np.dot(wrong, scores) == pytest.approx(outputs["mean_if_10_read_as_1"], abs=1e-9)


def test_mean_scores_average_both_orders(reference):
    # The distributions of this case are in one that is kept to check with; these have its means.
    _, outputs = reference("judge.pairwise_scoring.2")
    a, b = outputs["score_A"], outputs["score_B"]

    def judge(ask):
        is_a = (first_shown(ask) == "a") == (ask.prefix.text == "")
        shift = -0.3 if first_shown(ask) == "a" else 0.3
        return choice(spread(a + shift if is_a else b - shift))

    row = scored(judge, scale=(1, 5))
    assert row["score_a"] == pytest.approx(a, abs=1e-9)
    assert row["score_b"] == pytest.approx(b, abs=1e-9)
    assert row["score_a"] - row["score_b"] == pytest.approx(outputs["diff"], abs=1e-9)


def spread(mean):
    """A distribution over 1..5 with a given mean, on the two neighbouring scores."""
    shares = [0.0] * 5
    below = int(mean)
    shares[below - 1], shares[below] = below + 1 - mean, mean - below
    return shares
