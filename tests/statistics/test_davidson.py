"""Davidson's model over traces, against the same likelihood integrated and solved otherwise."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.judgments import davidson

SCALE = 2.0
NODES = np.polynomial.legendre.leggauss(300)


def drawn(n_pairs, n_traces, nu, sigma, seed=0):
    rng = np.random.default_rng(seed)
    gaps = rng.normal(0.0, sigma, n_pairs)
    shares = np.stack([np.exp(gaps / 2), np.full(n_pairs, nu), np.exp(-gaps / 2)], axis=1)
    shares /= shares.sum(axis=1, keepdims=True)
    counts = np.array([rng.multinomial(n_traces, one) for one in shares], float)
    return counts, shares[:, 0] - shares[:, 2]


def moments(count, nu, sigma):
    """The likelihood of one pair's counts, and expectations given them, by Gauss and Legendre."""
    nodes, weights = NODES
    gaps = 10 * sigma * nodes
    chances = np.stack([np.exp(gaps / 2), np.full(gaps.size, nu), np.exp(-gaps / 2)])
    chances /= chances.sum(axis=0)
    density = scipy.stats.norm.pdf(gaps, scale=sigma) * 10 * sigma * weights
    joint = density * np.prod(chances ** np.array(count)[:, None], axis=0)
    values = (gaps / sigma) ** 2, chances[1], chances[0] - chances[2]
    return joint.sum(), *(float((joint * value).sum() / joint.sum()) for value in values)


@pytest.mark.parametrize("case", [(12, 6, 0.6, 1.5, 1), (10, 12, 0.15, 0.7, 1)])
def test_it_is_the_maximum_of_the_likelihood_with_every_pair_integrated_out(case):
    counts, _ = drawn(*case)
    preferred, nu, sigma = davidson(counts)

    def score(at):
        found = [moments(one, math.exp(at[1]), math.exp(at[0])) for one in counts]
        by_sigma = sum(one[1] - 1 for one in found) + 1 - (math.exp(at[0]) / SCALE) ** 2
        by_nu = sum(n[1] - n.sum() * one[2] for n, one in zip(counts, found, strict=True))
        return [by_sigma, by_nu]

    exact = scipy.optimize.root(score, [math.log(sigma) + 0.01, math.log(nu) - 0.01], tol=1e-13).x
    assert [math.log(sigma), math.log(nu)] == pytest.approx(exact, rel=1e-9, abs=1e-9)
    by_quadrature = [moments(one, nu, sigma)[3] for one in counts]
    assert preferred == pytest.approx(by_quadrature, rel=1e-9, abs=1e-9)

    def likelihood(nu, sigma):
        logs = sum(math.log(moments(one, nu, sigma)[0]) for one in counts)
        return logs + math.log(sigma) - 0.5 * (sigma / SCALE) ** 2

    best = likelihood(nu, sigma)
    for other in ((nu * 1.05, sigma), (nu / 1.05, sigma), (nu, sigma * 1.05), (nu, sigma / 1.05)):
        assert likelihood(*other) < best


@pytest.mark.parametrize("n_traces", [1, 2, 8])
def test_few_traces_are_nearer_to_the_truth_by_it_than_by_their_margin(n_traces):
    counts, truth = drawn(400, n_traces, 0.5, 1.5)
    preferred, _, _ = davidson(counts)
    margin = (counts[:, 0] - counts[:, 2]) / n_traces
    assert np.mean((preferred - truth) ** 2) < 0.8 * np.mean((margin - truth) ** 2)


def test_of_many_traces_it_is_the_margin_and_its_parameters_are_those_drawn_by():
    counts, _ = drawn(300, 4000, 0.5, 1.0)
    preferred, nu, sigma = davidson(counts)
    assert preferred == pytest.approx((counts[:, 0] - counts[:, 2]) / 4000, abs=2e-3)
    assert nu == pytest.approx(0.5, rel=0.01)
    assert sigma == pytest.approx(1.0, rel=0.1)


some_counts = st.lists(
    st.tuples(*[st.integers(0, 12)] * 3).filter(any), min_size=1, max_size=12
).map(lambda rows: np.array(rows, float))


@settings(deadline=None)
@given(some_counts)
def test_it_goes_with_the_margin_and_turns_with_the_sides(counts):
    preferred, nu, sigma = davidson(counts)
    assert np.isfinite(preferred).all()
    assert (np.abs(preferred) < 1).all()
    assert nu >= 0
    assert sigma >= 0
    margin = counts[:, 0] - counts[:, 2]
    away = np.abs(preferred) > 1e-9
    assert (np.sign(preferred) == np.sign(margin))[away].all()
    assert preferred[margin == 0] == pytest.approx(0, abs=1e-12)
    turned, *same = davidson(counts[:, ::-1])
    assert turned == pytest.approx(-preferred, abs=1e-7)
    assert same == pytest.approx([nu, sigma], rel=1e-6)


def test_more_traces_of_one_margin_are_believed_more():
    counts = np.array([[2, 0, 0], [20, 0, 0], [3, 0, 1], [30, 0, 10], [5, 2, 5]], float)
    preferred, _, _ = davidson(counts)
    assert preferred[1] > preferred[0]
    assert preferred[3] > preferred[2] > preferred[4]
    assert preferred[4] == pytest.approx(0, abs=1e-12)


def test_ties_alone_prefer_neither():
    preferred, nu, sigma = davidson(np.array([[0, 4, 0], [0, 1, 0]], float))
    assert preferred.tolist() == [0, 0]
    assert (nu, sigma) == (math.inf, 0)


@pytest.mark.parametrize(
    "counts",
    [
        np.zeros((2, 3)),
        np.ones((2, 2)),
        np.ones(3),
        np.zeros((0, 3)),
        [[1, -1, 2]],
        [[1, np.nan, 2]],
    ],
)
def test_what_is_no_table_of_counts_is_refused(counts):
    with pytest.raises(StatisticsError):
        davidson(np.array(counts, float))
