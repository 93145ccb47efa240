"""Dawid and Skene's model: held against crowd-kit, what made the votes, and its laws.

The reference values come from crowd-kit 1.4.2 with NumPy 2.4.6 in an environment of its own:
`DawidSkene(n_iter=20000, tol=1e-13).fit(frame)` of the votes of `certain()`, read from `priors_`,
`errors_` and `probas_`.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.dawid_skene import Votes, dependence, fit_dawid_skene, uncertainty
from orchestrator.statistics.resampling import Resampling

MIRROR = (2, 1, 0)
RIGHT = (0.9, 0.75, 0.6, 0.5)


def certain(n=60, right=RIGHT, seed=7, n_labels=3):
    """Verdicts of judges who err independently; the errors are spread evenly."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(n_labels, n, p=[0.5, 0.2, 0.3])
    even = np.eye(n_labels)
    rows = [(1 - a) / 2 + even * (a - (1 - a) / 2) for a in right]
    said = [[rng.choice(n_labels, p=row[t]) for row in rows] for t in truth]
    return Votes(even[np.array(said)], np.arange(n)), truth


def fitted(votes, **more):
    return fit_dawid_skene(votes, np.random.default_rng(0), **more)


def test_agrees_with_crowd_kit():
    votes, _ = certain()
    fit = fitted(votes, smoothing=0.0)
    assert fit.prior == pytest.approx([0.452369, 0.222761, 0.32487], abs=2e-6)
    assert fit.confusion[0] == pytest.approx(
        np.array(
            [[0.895822, 0.059293, 0.044885], [0.200923, 0.799077, 0], [0, 0.241659, 0.758341]]
        ),
        abs=2e-6,
    )
    assert fit.confusion[3] == pytest.approx(
        np.array(
            [[0.355973, 0.345458, 0.298569], [0.203597, 0.655848, 0.140555],
             [0.23686, 0.249213, 0.513927]]
        ),
        abs=2e-6,
    )  # fmt: skip
    assert fit.posterior[0] == pytest.approx([0.006249, 0.95989, 0.033861], abs=2e-6)
    # Where votes are certain, mean votes are the confusion matrices.
    assert fit.shares == pytest.approx(fit.confusion, abs=1e-6)


def test_finds_what_made_the_votes():
    votes, truth = certain(n=3000)
    fit = fitted(votes)
    assert fit.accuracy() == pytest.approx(RIGHT, abs=0.05)
    equal = (votes.shares.mean(axis=1).argmax(axis=1) == truth).mean()
    assert (fit.posterior.argmax(axis=1) == truth).mean() > equal
    assert (fit.n_agreeing, fit.settled) == (10, True)


def test_divided_votes_do_not_hide_the_truth():
    # Counting shares of such votes has its greatest likelihood where no judge tells anything.
    votes, truth = certain(n=600)
    noise = np.random.default_rng(1).dirichlet(np.ones(3), votes.shares.shape[:2])
    fit = fitted(replace(votes, shares=0.5 * votes.shares + 0.5 * noise))
    assert (fit.posterior.argmax(axis=1) == truth).mean() > 0.75
    assert np.all(np.diff(fit.accuracy()) < 0.0)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_labels_keep_their_names_whatever_the_start(seed):
    votes, truth = certain(n=400, right=(0.8, 0.7, 0.7))
    fit = fit_dawid_skene(votes, np.random.default_rng(seed), n_starts=3)
    assert np.all(np.einsum("jkk->jk", fit.shares) > 1 / 3)
    assert (fit.posterior.argmax(axis=1) == truth).mean() > 0.7


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_side_of_an_answer_does_not_matter(seed):
    votes, _ = certain(n=80)
    votes = replace(votes, mirror=MIRROR)
    flip = np.random.default_rng(seed).random(80) < 0.5
    turned = np.where(flip[:, None, None], votes.shares[:, :, ::-1], votes.shares)
    one, two = fitted(votes, n_starts=1), fitted(replace(votes, shares=turned), n_starts=1)
    assert two.shares == pytest.approx(one.shares, abs=1e-6)
    assert one.shares == pytest.approx(one.shares[:, ::-1, ::-1], abs=1e-12)
    turned_back = np.where(flip[:, None], two.posterior[:, ::-1], two.posterior)
    assert turned_back == pytest.approx(one.posterior, abs=1e-6)


def test_independent_judges_have_no_dependence_and_copies_have():
    votes, _ = certain(n=2000)
    alone = dependence(votes, fitted(votes))
    assert np.abs(alone[np.triu_indices(4, k=1)]).max() < 0.08
    copies = votes.shares.copy()
    copied = np.random.default_rng(2).random(2000) < 0.3
    copies[copied, 3] = copies[copied, 2]
    related = replace(votes, shares=copies)
    assert dependence(related, fitted(related))[2, 3] > 0.1


def test_intervals_hold_the_fit_and_are_never_of_no_width():
    votes, _ = certain(n=200)
    fit = fitted(votes)
    found = uncertainty(votes, fit, Resampling(200, np.random.default_rng(0)))
    assert np.all((found.accuracy[0] < fit.accuracy()) & (fit.accuracy() < found.accuracy[1]))
    agreed = replace(votes, shares=votes.shares[:, [0, 0, 0]])
    same = fitted(agreed)
    sure = uncertainty(agreed, same, Resampling(200, np.random.default_rng(0)))
    assert same.accuracy() == pytest.approx(np.ones(3), abs=1e-3)
    # Wilson's for 200 of 200
    assert sure.accuracy[0] == pytest.approx(np.full(3, 0.981), abs=0.003)
    assert np.isnan(dependence(agreed, same)).all()


def test_prompts_that_repeat_themselves_say_no_more():
    votes, _ = certain(n=100)
    twice = Votes(np.tile(votes.shares, (2, 1, 1)), np.tile(votes.prompts, 2))
    one, two = (
        uncertainty(v, fitted(v, smoothing=1e-6), Resampling(200, np.random.default_rng(0)))
        for v in (votes, twice)
    )
    assert np.diff(two.accuracy, axis=0) == pytest.approx(np.diff(one.accuracy, axis=0), rel=0.15)


@pytest.mark.parametrize(
    ("shares", "mirror", "why"),
    [
        (np.full((4, 2, 3), np.nan), (), "drop cases"),
        (np.full((4, 2, 3), 0.5), (), "distributions"),
        (np.full((4, 2, 2), 0.5), (1, 2, 0), "in pairs"),
        (np.full((4, 1, 2), 0.5), (), "two judges"),
        (np.full((4, 2), 0.5), (), "shape"),
    ],
)
def test_what_are_no_votes_is_refused(shares, mirror, why):
    with pytest.raises(StatisticsError, match=why):
        fitted(Votes(shares, np.arange(4), mirror))
