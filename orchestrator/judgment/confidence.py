"""Confidence in an answer from the most likely tokens of each position, and from several samples.

Self-certainty: Kang, Zhao and Song, "Scalable Best-of-N Selection for Large Language Models via
Self-Certainty" (2025, arXiv 2502.18581). Token, group and tail confidence: Fu et al., "Deep Think
with Confidence" (2025, arXiv 2508.15260). Semantic entropy: Kuhn, Gal and Farquhar, "Semantic
Uncertainty" (ICLR 2023), and Farquhar et al., "Detecting hallucinations in large language models
using semantic entropy" (Nature 630, 2024). Natural logarithms throughout.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from orchestrator.errors import StatisticsError
from orchestrator.judgment.distribution import EXCESS
from orchestrator.records import Floats

_ROUNDING: Final = 1e-6
"""Mass that rounding to float32 may hide; the mass of the rest is taken to be larger by so much."""


def token_confidence(top_logprobs: ArrayLike) -> tuple[Floats, int]:
    """C_t = -(1/k) sum_j ln p_t(j) over the k most likely tokens (Fu et al., Eq. 2).

    It is larger where the distribution is more peaked, since the tokens behind the first are then
    less likely. A token that is not listed is at most as likely as those that are, so that the mean
    over the listed ones is a lower bound. `top_logprobs` have shape (T, k), nan where a position
    lists fewer.

    Returns:
        C_t, shape (T,), nan where no token is listed; and the number of positions that list fewer
        than k tokens: what they have is a lower bound.

    Raises:
        StatisticsError: If there are not two axes, or no tokens are listed at all.
    """
    listed = _listed(top_logprobs)
    known = np.isfinite(listed)
    n_known = known.sum(axis=1)
    total = -np.where(known, listed, 0.0).sum(axis=1)
    values = np.where(n_known > 0, total / np.maximum(n_known, 1), np.nan)
    return values, int((n_known < listed.shape[1]).sum())


def group_confidence(
    confidence: ArrayLike, window: int, tail: int, bottom: float = 0.1
) -> tuple[float, float, float, float]:
    """Mean, lowest group, bottom groups and tail of token confidences (Fu et al., Eq. 3 to 7).

    The mean is over all tokens (the paper's average trace confidence), the lowest that of the
    least confident group, the bottom the mean over the least confident share of groups, the tail
    the mean over the last tokens.

    Groups are all windows of `window` successive tokens, which overlap; an answer that is shorter
    is one group. The bottom groups are the lowest share of them, rounded down, and at least one.
    `confidence` has shape (T,), `tail` counts the last tokens. All is nan if there are no tokens or
    one is not known.

    Raises:
        StatisticsError: If `window` or `tail` is below 1 or `bottom` is no share.
    """
    values = np.asarray(confidence, dtype=np.float64)
    if window < 1 or tail < 1 or not 0 < bottom <= 1:
        raise StatisticsError(
            f"a window and a tail of at least 1 token and a share of groups above 0 and at most 1 "
            f"expected, got {window}, {tail} and {bottom}"
        )
    if not values.size or not np.isfinite(values).all():
        return (float("nan"),) * 4
    mean = float(values.mean())
    # One group is the mean to the last bit, so that equal measures correlate equally with gold.
    groups = np.array([mean])
    if window < len(values):
        groups = np.sort(np.convolve(values, np.full(window, 1 / window), mode="valid"))
    n_bottom = max(1, int(len(groups) * bottom))
    lowest, bottom_ones = float(groups[0]), float(groups[:n_bottom].mean())
    return mean, lowest, bottom_ones, float(values[-tail:].mean())


def self_certainty_low(top_logprobs: ArrayLike, vocabulary: int) -> Floats:
    """A lower bound of self-certainty at each position, from the k most likely of V tokens.

    With r the mass that is not listed, sum ln p over the V - k other tokens is at most (V - k) ln(r
    / (V - k)), all of them being alike, and at most (V - k) ln p_k, since none is more likely than
    the last that is listed. Nothing bounds self-certainty from above: a single token may have any
    probability close to 0. The bound is self-certainty itself where k = V. `top_logprobs` are raw
    ln p over the whole vocabulary, shape (T, k), nan where a position lists fewer. Returns shape
    (T,); nan where no token is listed, or the listed numbers are no distribution.

    Raises:
        StatisticsError: If there are not two axes, no tokens are listed at all, or more than V.
    """
    listed = _listed(top_logprobs)
    known = np.isfinite(listed)
    n_known = known.sum(axis=1)
    if n_known.max(initial=0) > vocabulary:
        raise StatisticsError(f"{n_known.max()} tokens are listed of a vocabulary of {vocabulary}")
    rest = 1 - np.where(known, np.exp(np.where(known, listed, 0.0)), 0.0).sum(axis=1)
    n_rest = vocabulary - n_known
    alike = np.log(np.maximum(rest, 0) + _ROUNDING) - np.log(np.maximum(n_rest, 1))
    least = np.where(known, listed, np.inf).min(axis=1)
    of_rest = np.where(n_rest > 0, n_rest * np.minimum(alike, least), 0.0)
    total = np.where(known, listed, 0.0).sum(axis=1) + of_rest
    is_known = (n_known > 0) & (rest >= -EXCESS)
    return np.where(is_known, -np.log(vocabulary) - total / vocabulary, np.nan)


def semantic_entropy(logprobs: ArrayLike | None, meanings: Sequence[int]) -> float:
    """-sum_c P(c) ln P(c) over the meanings of samples, weighed by their likelihood.

    P(c) is the sum of p(s) over the samples of a meaning, divided by that over all samples
    (Farquhar et al. 2024, Eq. 5). `logprobs`, shape (N,), are ln p of each sample; the papers take
    the mean over its tokens; None counts all samples alike, which is the discrete form that they
    define after that equation. Meanings are N numbers, equal where samples mean the same. nan if
    there are no samples or one has no log-probability.

    Raises:
        StatisticsError: If there are not as many meanings.
    """
    alike = np.zeros(len(meanings)) if logprobs is None else logprobs
    values, numbers = np.asarray(alike, dtype=np.float64), np.asarray(meanings, dtype=np.int64)
    if values.shape != numbers.shape:
        raise StatisticsError(
            f"one meaning a sample expected, got {len(meanings)} for {values.shape}"
        )
    if not values.size or not np.isfinite(values).all():
        return float("nan")
    if len(set(meanings)) == 1:
        return 0.0
    weights = values - logsumexp(values)
    of_meaning = np.array([logsumexp(weights[numbers == one]) for one in np.unique(numbers)])
    return float(-(np.exp(of_meaning) * of_meaning).sum())


def predictive_entropy(logprobs: ArrayLike) -> float:
    """-(1/N) sum_s ln p(s) over samples: entropy without regard to meaning.

    `logprobs`, shape (N,), are ln p of each sample; the mean over its tokens is the
    length-normalised form. nan if there are none or one is not known.
    """
    values = np.asarray(logprobs, dtype=np.float64)
    return float(-values.mean()) if values.size else float("nan")


def _listed(top_logprobs: ArrayLike) -> Floats:
    listed = np.asarray(top_logprobs, dtype=np.float64)
    if listed.ndim != 2 or not listed.shape[1]:
        raise StatisticsError(f"log-probabilities of shape (T, k) expected, got {listed.shape}")
    return listed
