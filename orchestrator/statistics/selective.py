"""Selective judging: the largest share of a judge's verdicts whose error rate is certified.

Verdicts are kept from the surest on, and the rest goes to people. Thresholds of sureness are fixed
without the labels, at shares of all verdicts. One after another they are tested for "the error rate
of what is kept is above `risk`", from the least share on that the number of labels can show, until
one test does not reject: fixed-sequence testing (Angelopoulos, Bates, Candès, Jordan and Lei 2021,
"Learn then test", arXiv 2110.01052, section 4.3; for judges Jung, Brahman and Choi 2024, arXiv
2407.18370). The first true hypothesis is rejected with probability at most `error`, so that the
last threshold passed has an error rate of at most `risk` with probability 1 - `error` or more,
whatever the judge is worth. SCOPE (arXiv 2602.13110) bounds the rate on average over samples only.

How many verdicts are kept is random, so the test is of a mean over prompts without a denominator,

    E[mean over the labelled verdicts of a prompt of (wrong - risk) kept] >= 0,

by Gaffke's test with one prompt that was not seen and lies at the worst end, 1 - risk
(`orchestrator.statistics.bounded_mean`). Prompts with a label count alike; where all have as many
verdicts, the rate is that of verdicts, and of unequal ones each counts by its chance of a label.
With one label a prompt the p-value is the binomial tail P(B(n, risk) <= wrong) of the n labels that
are kept, up to 5 % more by its approximation. Below 0.3 that is never less than the tail of a draw
without replacement (of 20 to 1,000 verdicts, checked), so that with each verdict as a prompt the
certificate is one for the verdicts of a run, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics import bounded_mean
from orchestrator.statistics.resampling import codes_of

METHOD: Final = "learn then test, one-sided bounds"

SHARES: Final = np.arange(1, 21) / 20.0
"""Shares of all verdicts at which thresholds are placed; verdicts that are as sure go together."""

_MOST_ERRORS: Final = 3
_MOST_LABELS: Final = 10**9
_HALVINGS: Final = 40
_EQUAL: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Kept:
    """Kept verdicts at each of k thresholds, from the surest on.

    Attributes:
        least: Shape (k,), the sureness from which on verdicts are kept, descending.
        shares: Shape (k,), the share of all verdicts that is kept.
        wrong: Shape (k, n), of each prompt with labels: the kept and wrong part of its labels.
        sizes: Shape (k, n), the kept part.
        n_labels: Shape (k,), labelled verdicts that are kept.
    """

    least: Floats
    shares: Floats
    wrong: Floats
    sizes: Floats
    n_labels: Ints

    @property
    def n_prompts(self) -> int:
        """n, the prompts with labels."""
        return int(self.sizes.shape[1])

    @property
    def rates(self) -> Floats:
        """Shape (k,), error rates of the kept labels, prompts counting alike; nan without any."""
        sizes = self.sizes.sum(axis=1)
        result: Floats = np.divide(
            self.wrong.sum(axis=1), sizes, out=np.full(sizes.size, np.nan), where=sizes > 0.0
        )
        return result

    def p_values(self, risk: float | Floats) -> Floats:
        """P-values of "the error rate is above `risk`", shape (k,); 1 where no label is kept.

        `risk`, in (0, 1), is one number, or one for each threshold.
        """
        above = np.broadcast_to(np.asarray(risk, np.float64), self.shares.shape)[:, None]
        apart = (self.wrong - above * self.sizes) / (2.0 * (1.0 - above))
        # On the scale on which the prompt that was not seen lies at 1 and the mean tested at 0.5.
        found = 0.5 * bounded_mean.p_values(0.5 + apart, np.ones_like(apart))
        # Two-sided p-values say no more than that one is above one half.
        return np.where((apart.sum(axis=1) < 0.0) & (found < 0.5), found, 1.0)

    def bounds(self, error: float) -> tuple[Floats, Floats]:
        """Lower and upper bounds of the error rates, shape (k,): each holds with 1 - `error`."""
        right = Kept(self.least, self.shares, self.sizes - self.wrong, self.sizes, self.n_labels)
        ends = []
        for one in (right, self):
            low, high = np.zeros(self.shares.size), np.ones(self.shares.size)
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                is_bound = one.p_values(middle) <= error
                low, high = np.where(is_bound, low, middle), np.where(is_bound, middle, high)
            ends.append(high)
        return 1.0 - ends[0], ends[1]


def kept(sureness: Floats, wrong: Floats, clusters: Ints) -> Kept:
    """Return what is kept at each threshold.

    All have shape (n,): `sureness` is larger for surer verdicts, `wrong` is in [0, 1], nan where
    there is no label, and `clusters` are any whole numbers, verdicts of one depending on each
    other. The labels are a random choice of the verdicts.

    Raises:
        StatisticsError: If the shapes differ, a sureness is not finite, no verdict has a label, or
            one is outside [0, 1].
    """
    if not (sureness.shape == wrong.shape == clusters.shape):
        raise StatisticsError("sureness, labels and clusters need one shape (n,)")
    known = ~np.isnan(wrong)
    if not known.any():
        raise StatisticsError("no verdict has a label")
    if not np.isfinite(sureness).all() or wrong[known].min() < 0.0 or wrong[known].max() > 1.0:
        raise StatisticsError("sureness must be finite, and labels of wrong verdicts in [0, 1]")
    descending = np.sort(sureness)[::-1]
    places = np.ceil(SHARES * sureness.size - _EQUAL).astype(np.int64) - 1
    least = np.unique(descending[places])[::-1]
    shares = np.searchsorted(-descending, -least, side="right") / sureness.size
    prompts = codes_of(clusters[known])
    counts = np.bincount(prompts)
    is_kept = sureness[known] >= least[:, None]
    sizes, of_wrong = (
        np.stack([np.bincount(prompts, row, counts.size) / counts for row in values])
        for values in (is_kept.astype(np.float64), is_kept * wrong[known])
    )
    return Kept(least, shares, of_wrong, sizes, is_kept.sum(axis=1))


def first_tested(found: Kept, risk: float, error: float) -> int:
    """Return the place of the share at which the tests for a risk begin.

    It depends on the number of prompts alone: where the labels to expect allow for up to three
    errors, as many as still fit into half of the prompts. A larger risk can begin further on.
    """
    needed = [least_labels(risk, error, wrong) for wrong in range(_MOST_ERRORS + 1)]
    fitting = [one for one in needed if one <= 0.5 * found.n_prompts]
    share = max(fitting, default=needed[0]) / found.n_prompts
    return min(int(np.searchsorted(found.shares, share - _EQUAL)), found.shares.size - 1)


def certified(found: Kept, risk: float, error: float) -> tuple[int, bool]:
    """Return the place of the largest share that is certified, and True; else of the first tested.

    Args:
        found: From `kept`.
        risk: Error rate of the kept verdicts that is not to be exceeded, in (0, 1).
        error: Probability with which it may be, in (0, 1).
    """
    start = first_tested(found, risk, error)
    failed = np.flatnonzero(found.p_values(risk)[start:] > error)
    n_passed = int(failed[0]) if failed.size else found.shares.size - start
    return start + max(n_passed - 1, 0), n_passed > 0


def most_kept(candidates: Sequence[Kept], risk: float, error: float) -> tuple[int, int, bool]:
    """Return which of several keeps most at its part of the error, and its place (`certified`)."""
    found = [certified(one, risk, error / len(candidates)) for one in candidates]
    kept_by = [
        is_kept * one.shares[at] for one, (at, is_kept) in zip(candidates, found, strict=True)
    ]
    which = int(np.argmax(kept_by))
    return which, *found[which]


def least_labels(risk: float, error: float, wrong: float) -> int:
    """Return the labels of which so many may be wrong for a risk to be certified.

    Source: Clopper and Pearson 1934 (doi:10.1093/biomet/26.4.404).
    """
    high = math.ceil(wrong) + 1
    while scipy.special.bdtr(wrong, high, risk) > error:
        high *= 2
    numbers = np.arange(math.ceil(wrong) + 1, high + 1)
    return int(numbers[np.argmax(scipy.special.bdtr(wrong, numbers, risk) <= error)])


def labels_needed(share: float, rate: float, risk: float, error: float) -> int | None:
    """Return the labels of all verdicts that certify a share if errors go on at a rate.

    None for a rate that is not below `risk`, or nan, or so near that 10**9 labels would not do. One
    label a prompt is assumed.
    """
    if not rate < risk:
        return None
    n = least_labels(risk, error, 0)
    while scipy.special.bdtr(math.ceil(rate * n), n, risk) > error:
        n = math.ceil(1.02 * n) + 1
        if n > _MOST_LABELS:
            return None
    return math.ceil(n / share)
