"""Reliability of several judges without gold: the model of Dawid and Skene, with soft votes.

Each case has one true label k with probability prior_k, and judge j gives verdict l to a case of
label k with probability confusion_jkl, independently of the other judges. Of a verdict only the
judge's distribution vote_ijl is known; the likelihood is the mean over verdicts drawn from it:

    L = prod_i sum_k prior_k prod_j sum_l vote_ijl confusion_jkl

For votes that are certain it is that of Dawid and Skene 1979 (doi:10.2307/2346806). Counting shares
of votes instead, prod_l confusion_jkl ** vote_ijl, is no model of divided judges: its maximum can
be one where no judge tells anything. The maximum is found by expectation maximisation with squared
extrapolation (Varadhan and Roland 2008, doi:10.1111/j.1467-9469.2007.00585.x), from several starts.
Judges who err together break the model: `dependence` measures it.
"""

from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.means import clustered_shares
from orchestrator.statistics.resampling import Resampling, prompt_weights

SMOOTHING: Final = 1.0
"""Votes added to each row of a confusion matrix, spread over its labels, so that none is 0."""

N_STARTS: Final = 10

_MAX_ROUNDS: Final = 1000
_SETTLED: Final = 1e-9
_RESAMPLE_ROUNDS: Final = 100
_RESAMPLE_SETTLED: Final = 3e-4
_LEAST: Final = 1e-10
_SAME_MAXIMUM: Final = 1e-3
_NO_SPREAD: Final = 1e-4
"""Variance of a judge's errors up to which they have no correlation."""


@dataclass(frozen=True, slots=True)
class Votes:
    """Votes of J judges for K labels on n cases; every judge has voted on every case.

    Attributes:
        shares: Shape (n, J, K), distributions over the labels.
        prompts: Shape (n,), prompt or cluster of prompts, from 0 on.
        mirror: If the sides of a case are arbitrary, the label that each label becomes when they
            are swapped, as (2, 1, 0) for A, tie, B. Nothing then depends on which side is A. Empty
            if swapping sides has no meaning.
    """

    shares: Floats
    prompts: Ints
    mirror: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.shares.ndim != 3 or self.prompts.shape != self.shares.shape[:1]:
            raise StatisticsError(f"votes need shape (n, J, K), got {self.shares.shape}")
        if not np.allclose(self.shares.sum(axis=2), 1.0, atol=1e-6) or np.any(self.shares < 0.0):
            raise StatisticsError("votes must be distributions; drop cases that a judge missed")
        swapped = tuple(self.mirror[k] for k in self.mirror)
        if self.mirror and (
            len(self.mirror) != self.shares.shape[2] or swapped != tuple(range(len(self.mirror)))
        ):
            raise StatisticsError(f"{self.mirror} does not swap the labels in pairs")


@dataclass(frozen=True, slots=True)
class DawidSkene:
    """The fit of greatest likelihood among the starts.

    Attributes:
        prior: Shape (K,).
        confusion: Shape (J, K, K): probability of each verdict (last axis) by true label.
        shares: Shape (J, K, K): mean vote by true label; the same as `confusion` where votes are
            certain, but for the smoothing.
        posterior: Shape (n, K), probability of each true label.
        log_likelihood: Of the votes, natural log, without the smoothing.
        n_starts: Starts tried.
        n_agreeing: Starts that ended at this maximum; the others ended lower.
        settled: True if this fit converged.
    """

    prior: Floats
    confusion: Floats
    shares: Floats
    posterior: Floats
    log_likelihood: float
    n_starts: int
    n_agreeing: int
    settled: bool

    def accuracy(self) -> Floats:
        """Return the mean share that each judge gives the true label, shape (J,)."""
        result: Floats = _accuracy(self.prior[None], self.shares[None])[0]
        return result


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Intervals of a fit by a bootstrap over prompts.

    Attributes:
        accuracy: Shape (2, J), low and high; nan for a single prompt.
        shares: Shape (2, J, K, K).
        dependence: Shape (2, J, J), at one level for all pairs of judges together (Bonferroni).
    """

    accuracy: Floats
    shares: Floats
    dependence: Floats


@dataclass(frozen=True, slots=True)
class _State:
    """B fits at once.

    Attributes:
        prior: Shape (B, K).
        confusion: Shape (B, J, K, K), true label before verdict.
        posterior: Shape (B, n, K).
        evidence: Shape (B, J, n, K), likelihood of each vote by true label.
        log_likelihood: Shape (B,).
    """

    prior: Floats
    confusion: Floats
    posterior: Floats
    evidence: Floats
    log_likelihood: Floats

    def parameters(self) -> Floats:
        """Return the priors and confusion matrices in a row, shape (B, K + J K K)."""
        size = len(self.prior)
        return np.concatenate([self.prior, self.confusion.reshape(size, -1)], axis=1)

    def aim(self, smoothing: float) -> Floats:
        """Return the objective that is maximised, shape (B,)."""
        rows: Floats = np.log(self.prior).sum(axis=1) + np.log(self.confusion).sum(axis=(1, 2, 3))
        result: Floats = self.log_likelihood + smoothing / self.prior.shape[1] * rows
        return result

    def replaced(self, other: "_State", where: NDArray[np.bool_]) -> "_State":
        """Return these fits with those of another state where `where`, shape (B,), is true."""

        def chosen(mine: Floats, theirs: Floats) -> Floats:
            shape = (-1,) + (1,) * (mine.ndim - 1)
            return np.where(where.reshape(shape), theirs, mine)

        return _State(
            chosen(self.prior, other.prior),
            chosen(self.confusion, other.confusion),
            chosen(self.posterior, other.posterior),
            chosen(self.evidence, other.evidence),
            chosen(self.log_likelihood, other.log_likelihood),
        )


def fit_dawid_skene(
    votes: Votes,
    rng: np.random.Generator,
    *,
    n_starts: int = N_STARTS,
    smoothing: float = SMOOTHING,
) -> DawidSkene:
    """Return the reliability of the judges, and what they say together.

    The first start takes the mean vote for the truth, the others blur it at random. The likelihood
    does not know the names of the true labels: of all ways to name them, the one is taken by which
    the judges are right most often. So judges who are mostly wrong can't be found out. `smoothing`
    votes are added to each row of a confusion matrix; 0 is greatest likelihood alone.

    Raises:
        StatisticsError: If there is no case or only one judge.
    """
    n, n_judges, n_labels = votes.shares.shape
    if not n or n_judges < 2:
        raise StatisticsError("reliability without gold needs cases judged by two judges or more")
    mean = votes.shares.mean(axis=1)
    blurred = mean[None] * rng.gamma(0.5, size=(max(n_starts, 1), n, n_labels)) + _LEAST
    blurred[0] = mean + _LEAST
    weights = np.ones((len(blurred), n))
    begin = _begun(votes, weights, blurred / blurred.sum(axis=2, keepdims=True), smoothing)
    state, settled = _climb(votes, weights, begin, smoothing, (_MAX_ROUNDS, _SETTLED))
    aims = state.aim(smoothing)
    best = int(np.argmax(aims))
    posterior = state.posterior[best]
    shares = _shares(votes, weights[:1], posterior[None])[0]
    names = _names(votes, state.prior[best], shares)
    return DawidSkene(
        state.prior[best][names],
        state.confusion[best][:, names],
        shares[:, names],
        posterior[:, names],
        float(state.log_likelihood[best]),
        len(blurred),
        int((aims > aims[best] - _SAME_MAXIMUM).sum()),
        settled,
    )


def dependence(votes: Votes, fit: DawidSkene) -> Floats:
    """Return the correlation of each two judges' votes given the true label, shape (J, J).

    It is 0 where judges err independently, as the model has it, and 1 for copies: the sum over
    labels of the covariances, by the root of the product of the variances. Where two of three
    judges err together, part of it enters their confusion matrices, and too little is left here.
    """
    weights = np.ones((1, len(votes.shares)))
    result: Floats = _dependence(votes, weights, fit.posterior[None])[0]
    return result


def uncertainty(votes: Votes, fit: DawidSkene, resampling: Resampling) -> Uncertainty:
    """Return percentile intervals of a fit; prompts are drawn, and the model fitted to each draw.

    Each draw starts at the fit of all prompts, so that labels keep their names. Intervals of
    accuracies and shares are no narrower than they would be if the true labels were known.
    """
    n, n_judges, n_labels = votes.shares.shape
    n_prompts = int(votes.prompts.max()) + 1
    found: tuple[list[Floats], ...] = ([], [], [])
    row_bytes = 8 * n * n_labels * (4 * n_judges + 8)
    limits = (_RESAMPLE_ROUNDS, _RESAMPLE_SETTLED)
    for drawn in prompt_weights(
        n_prompts, resampling.n_resamples, resampling.rng, row_bytes=row_bytes
    ):
        weights = drawn[:, votes.prompts]
        prior = np.repeat(fit.prior[None], len(drawn), axis=0)
        confusion = np.repeat(fit.confusion[None], len(drawn), axis=0)
        begin = _expected(votes, weights, prior, confusion)
        state, _ = _climb(votes, weights, begin, SMOOTHING, limits)
        shares = _shares(votes, weights, state.posterior)
        found[0].append(_accuracy(state.prior, shares))
        found[1].append(shares)
        found[2].append(_dependence(votes, weights, state.posterior))
    tail = 0.5 * (1.0 - resampling.confidence_level)
    tails = (tail, tail, tail / max(n_judges * (n_judges - 1) // 2, 1))
    bounds = [
        np.quantile(np.concatenate(one), [below, 1.0 - below], axis=0)
        for one, below in zip(found, tails, strict=True)
    ]
    if n_prompts < 2:
        bounds = [np.full_like(one, np.nan) for one in bounds]
    known = _if_truth_were_known(votes, fit, resampling.confidence_level)
    for at, least in enumerate(known):
        bounds[at] = np.stack(
            [np.minimum(bounds[at][0], least[0]), np.maximum(bounds[at][1], least[1])]
        )
    return Uncertainty(*bounds)


def _if_truth_were_known(votes: Votes, fit: DawidSkene, level: float) -> tuple[Floats, Floats]:
    """Return intervals of the shares given the posteriors, shapes (2, J) and (2, J, K, K).

    A bootstrap of judges who never disagree has no width; to know the truth would still leave this.
    """
    n, n_judges, n_labels = votes.shares.shape
    cases = [(votes.shares, fit.posterior)]
    if votes.mirror:
        swap = list(votes.mirror)
        cases.append((votes.shares[:, :, swap], fit.posterior[:, swap]))
    n_prompts = int(votes.prompts.max()) + 1

    def summed(values: Floats) -> Floats:
        result = np.zeros((n_prompts, *values.shape[1:]))
        np.add.at(result, votes.prompts, values)
        return result.reshape(n_prompts, -1)

    right = summed(np.einsum("nk,njk->nj", fit.posterior, votes.shares))
    shown = np.mean([np.einsum("nk,njl->njkl", p, v) for v, p in cases], axis=0)
    size = np.mean([p for _, p in cases], axis=0)
    sizes = np.broadcast_to(size[:, None, :, None], shown.shape)
    accuracy = clustered_shares(right, summed(np.ones((n, n_judges))), level)
    shares = clustered_shares(summed(shown), summed(sizes), level)
    shape = (n_judges, n_labels, n_labels)
    return (
        np.stack([accuracy.low, accuracy.high]),
        np.stack([shares.low.reshape(shape), shares.high.reshape(shape)]),
    )


def _climb(
    votes: Votes, weights: Floats, state: _State, smoothing: float, limits: tuple[int, float]
) -> tuple[_State, bool]:
    """Climb from B states to their maxima; return these and whether all converged.

    Two steps of expectation maximisation give a direction and its decay; where the point that they
    extrapolate to is lower than the second step, the second step is taken. `weights`, shape (B, n),
    are of the cases in each fit; `limits` the most rounds, and the largest change of a parameter by
    one step at rest.
    """
    n_rounds, settled = limits

    def step(at: _State) -> _State:
        return _expected(votes, weights, *_maximised(votes, weights, at, smoothing))

    for _ in range(n_rounds):
        one = step(state)
        two = step(one)
        first, second = one.parameters() - state.parameters(), two.parameters() - one.parameters()
        if max(np.abs(first).max(), np.abs(second).max()) < settled:
            return two, True
        decay = np.linalg.norm(second - first, axis=1)
        reach = np.linalg.norm(first, axis=1) / np.where(decay > 0.0, decay, np.inf)
        reach = np.maximum(reach, 1.0)[:, None]
        there = state.parameters() + 2.0 * reach * first + reach**2 * (second - first)
        far = step(_expected(votes, weights, *_unpacked(there, votes)))
        state = two.replaced(far, far.aim(smoothing) > two.aim(smoothing))
    return state, False


def _begun(votes: Votes, weights: Floats, posterior: Floats, smoothing: float) -> _State:
    """Return the states that posteriors of shape (B, n, K) lead to, by shares of votes."""
    weighed = weights[:, :, None] * posterior
    counts = np.swapaxes(weighed, 1, 2)[:, None] @ np.swapaxes(votes.shares, 0, 1)
    return _expected(votes, weights, *_normed(votes, weighed.sum(axis=1), counts, smoothing))


def _maximised(
    votes: Votes, weights: Floats, state: _State, smoothing: float
) -> tuple[Floats, Floats]:
    """Take the M-step: return priors (B, K) and confusion matrices (B, J, K, K)."""
    weighed = weights[:, :, None] * state.posterior
    # Expected verdicts: a label's part in the likelihood of the vote.
    part = np.swapaxes(weighed[:, None] / state.evidence, 2, 3)
    counts = state.confusion * (part @ np.swapaxes(votes.shares, 0, 1))
    return _normed(votes, weighed.sum(axis=1), counts, smoothing)


def _normed(votes: Votes, prior: Floats, counts: Floats, smoothing: float) -> tuple[Floats, Floats]:
    if votes.mirror:
        swap = list(votes.mirror)
        counts = 0.5 * (counts + counts[:, :, swap][:, :, :, swap])
        prior = 0.5 * (prior + prior[:, swap])
    n_labels = prior.shape[1]
    counts = np.maximum(counts + smoothing / n_labels, _LEAST)
    prior = np.maximum(prior + smoothing / n_labels, _LEAST)
    return (prior / prior.sum(axis=1, keepdims=True), counts / counts.sum(axis=3, keepdims=True))


def _unpacked(parameters: Floats, votes: Votes) -> tuple[Floats, Floats]:
    """Return the priors and confusion matrices of rows of parameters, kept within their bounds."""
    _, n_judges, n_labels = votes.shares.shape
    prior = parameters[:, :n_labels]
    confusion = parameters[:, n_labels:].reshape(-1, n_judges, n_labels, n_labels)
    prior, confusion = np.maximum(prior, _LEAST), np.maximum(confusion, _LEAST)
    return (
        prior / prior.sum(axis=1, keepdims=True),
        confusion / confusion.sum(axis=3, keepdims=True),
    )


def _expected(votes: Votes, weights: Floats, prior: Floats, confusion: Floats) -> _State:
    """Take the E-step: return posteriors and log-likelihoods."""
    evidence = np.swapaxes(votes.shares, 0, 1) @ np.swapaxes(confusion, 2, 3)
    evidence = np.maximum(evidence, _LEAST)
    joint = np.log(evidence).sum(axis=1) + np.log(prior)[:, None]
    top = joint.max(axis=2, keepdims=True)
    spread = np.exp(joint - top)
    total = spread.sum(axis=2, keepdims=True)
    likelihood = (weights * (top + np.log(total))[:, :, 0]).sum(axis=1)
    return _State(prior, confusion, spread / total, evidence, likelihood)


def _shares(votes: Votes, weights: Floats, posterior: Floats) -> Floats:
    """Return the mean votes by true label, shape (B, J, K, K)."""
    weighed = np.swapaxes(weights[:, :, None] * posterior, 1, 2)
    sums = weighed[:, None] @ np.swapaxes(votes.shares, 0, 1)
    if votes.mirror:
        swap = list(votes.mirror)
        sums = 0.5 * (sums + sums[:, :, swap][:, :, :, swap])
    result: Floats = sums / np.maximum(sums.sum(axis=3, keepdims=True), _LEAST)
    return result


def _accuracy(prior: Floats, shares: Floats) -> Floats:
    result: Floats = np.einsum("bk,bjkk->bj", prior, shares)
    return result


def _dependence(votes: Votes, weights: Floats, posterior: Floats) -> Floats:
    shares = votes.shares
    products = shares @ np.swapaxes(shares, 1, 2)
    n, n_judges, _ = shares.shape
    total = np.zeros((len(weights), n_judges, n_judges))
    for label in range(posterior.shape[2]):
        weighed = weights * posterior[:, :, label]
        size = np.maximum(weighed.sum(axis=1), _LEAST)[:, None, None]
        means = (weighed @ shares.reshape(n, -1)).reshape(-1, n_judges, shares.shape[2]) / size
        seen = (weighed @ products.reshape(n, -1)).reshape(-1, n_judges, n_judges)
        total += seen - size * (means @ np.swapaxes(means, 1, 2))
    spread = np.einsum("bjj->bj", total)
    scale = np.sqrt(np.maximum(spread[:, :, None] * spread[:, None, :], 0.0))
    known = scale > _NO_SPREAD * n
    return np.where(known, total / np.where(known, scale, 1.0), np.nan)


def _names(votes: Votes, prior: Floats, shares: Floats) -> list[int]:
    """Return the order of the true labels by which the judges are right most often."""
    right = np.einsum("k,jkl->kl", prior, shares)
    if votes.mirror:
        # Names that keep the sides arbitrary: A and B are swapped for each other, or not at all.
        swap = votes.mirror
        labels = range(len(swap))
        allowed: list[tuple[int, ...]] = [
            order
            for order in permutations(labels)
            if all(order[swap[k]] == swap[order[k]] for k in labels)
        ]
        return list(max(allowed, key=lambda order: float(right[list(order), labels].sum())))
    rows, columns = scipy.optimize.linear_sum_assignment(right, maximize=True)
    return [int(rows[columns == k][0]) for k in range(len(prior))]
