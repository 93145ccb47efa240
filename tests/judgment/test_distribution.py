import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.judgment.distribution import from_logprobs

NAN, INF = math.nan, math.inf
logprobs = st.lists(st.floats(-60, -2.4), min_size=1, max_size=9)
masses = st.lists(st.floats(1e-6, 0.11), min_size=2, max_size=9)


def defined(value):
    assert value is not None
    return value


def test_exact_distribution_is_renormalised_and_reports_the_mass():
    result = from_logprobs([math.log(0.2), math.log(0.6)])
    assert result.probabilities == pytest.approx((0.25, 0.75), abs=1e-12)
    assert result.coverage == pytest.approx(0.8, abs=1e-12)
    assert result.exact
    assert result.low == result.high == result.probabilities


def test_true_zero_is_a_known_probability():
    result = from_logprobs([-INF, math.log(0.3)])
    assert result.probabilities == (0.0, 1.0)
    assert result.exact


def test_nothing_known_is_undefined_and_not_uniform():
    result = from_logprobs([NAN, NAN], [-3.0, -3.0])
    assert result.probabilities is None
    assert math.isnan(result.coverage)
    assert "known" in defined(result.undefined)
    assert all(math.isnan(bound) for bound in result.mean_bounds([0.0, 1.0]))


@pytest.mark.parametrize("values", [[-INF, -INF], [-INF, NAN]])
def test_no_mass_on_any_label_is_undefined(values):
    result = from_logprobs(values)
    assert result.probabilities is None
    assert result.coverage == 0.0


def test_mass_above_one_is_undefined():
    assert from_logprobs([-0.1, -0.2]).probabilities is None
    assert from_logprobs([INF, -0.2]).probabilities is None


def test_rounding_above_one_is_clamped():
    assert from_logprobs([math.log(0.5), math.log(0.5001)]).coverage == 1.0


def test_labels_far_below_the_vocabulary_keep_their_ratio():
    result = from_logprobs([-1000.0, -1000.0 + math.log(3)])
    assert result.probabilities == pytest.approx((0.25, 0.75))
    assert result.coverage == 0.0


def test_missing_label_is_zero_with_an_interval_from_its_bound():
    result = from_logprobs([math.log(0.6), NAN], [math.log(0.6), math.log(0.2)])
    assert result.probabilities == (1.0, 0.0)
    assert not result.exact
    assert result.low == pytest.approx((0.75, 0.0))
    assert result.high == pytest.approx((1.0, 0.25))
    assert result.coverage == pytest.approx(0.6)


def test_missing_bound_leaves_the_mass_nobody_holds():
    result = from_logprobs([math.log(0.6), NAN])
    assert defined(result.high)[1] == pytest.approx(0.4)


@pytest.mark.parametrize(("values", "upper"), [([], None), ([-1.0], [-1.0, -1.0])])
def test_wrong_lengths_are_refused(values, upper):
    with pytest.raises(StatisticsError):
        from_logprobs(values, upper)


@given(logprobs)
def test_probabilities_sum_to_one(values):
    result = from_logprobs(values)
    assert sum(defined(result.probabilities)) == pytest.approx(1.0, abs=1e-12)
    assert result.coverage == pytest.approx(sum(map(math.exp, values)), rel=1e-9)


@given(logprobs, st.randoms())
def test_order_of_labels_does_not_matter(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    plain = defined(from_logprobs(values).probabilities)
    mixed = from_logprobs([values[i] for i in order]).probabilities
    assert mixed == pytest.approx([plain[i] for i in order], abs=1e-12)


@given(masses, st.data())
def test_intervals_hold_the_truth(truth, data):
    hidden = data.draw(st.lists(st.booleans(), min_size=len(truth), max_size=len(truth)))
    if all(hidden):
        hidden[0] = False
    seen = [NAN if gone else math.log(p) for p, gone in zip(truth, hidden, strict=True)]
    upper = [math.log(min(2 * p, 1.0)) for p in truth]
    result = from_logprobs(seen, upper)
    shares = [p / sum(truth) for p in truth]
    for share, low, high in zip(shares, defined(result.low), defined(result.high), strict=True):
        assert low - 1e-12 <= share <= high + 1e-12
    assert result.coverage - 1e-12 <= sum(truth)
    values = [float(i) for i in range(len(truth))]
    least, most = result.mean_bounds(values)
    mean = sum(i * share for i, share in enumerate(shares))
    assert least - 1e-9 <= mean <= most + 1e-9


def test_mean_bounds_of_an_exact_distribution_are_its_mean():
    result = from_logprobs([math.log(0.5), math.log(0.25), math.log(0.25)])
    assert result.mean_bounds([1.0, 0.5, 0.0]) == pytest.approx((0.625, 0.625))


def test_reference_softmax_over_scores(reference):
    inputs, outputs = reference("judge.blog.1")
    shift = math.log(sum(map(math.exp, inputs["logits"])))
    result = from_logprobs([value - shift for value in inputs["logits"]])
    assert result.probabilities == pytest.approx(outputs["probs"], abs=1e-9)


def test_reference_score_of_two_tokens(reference):
    inputs, outputs = reference("judge.multitoken.1")
    one, zero = inputs["P(first='1')"], inputs["P(second='0'|'1')"]
    others = list(inputs["P(first=s) for 2..9"].values())
    masses = [one * (1 - zero), *others, one * zero]
    result = from_logprobs([math.log(mass) for mass in masses])
    mean = sum(score * p for score, p in enumerate(defined(result.probabilities), start=1))
    assert mean == pytest.approx(outputs["mean_correct"], abs=1e-9)
