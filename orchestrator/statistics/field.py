"""What each prompt says about a model among all the others, or about the difference of two.

A rating compares a model with the whole field. Where every two models were compared on every
prompt, the value of a pair (a, b) on a prompt is (1 + s_a - s_b) / 2 in [0, 1], with s the mean
preference for a model over all others. By the equations of the fit its mean is above one half
exactly where a is rated above b; for two models it is the preference for a.

Where comparisons are missing, a value is made of what the prompt adds to the fitted difference (its
influence): its mean and its meaning are the same, but it can leave [0, 1]. Then the range is
widened to the farthest value.

Means of these values have intervals by `bounded_mean`. Their ends become ratings by a monotone
function, the preferences that the fit expects, so that an interval of a difference leaves out 0
exactly where that of the mean leaves out one half.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.records import Floats, Ints
from orchestrator.statistics.bounded_mean import intervals, p_values
from orchestrator.statistics.bradley_terry import grounded, laplacian_of
from orchestrator.statistics.prompt_sums import PromptSums

EQUAL: Final = 1e-9
"""Difference of strengths up to which two models are tied."""

_FARTHEST: Final = 60.0
"""Natural-log strengths beyond which a bound is open: odds of 1e26."""
_STEPS: Final = 200
_SETTLED: Final = 1e-10
_CELLS: Final = 2**18


class _Values(NamedTuple):
    """Values of R pairs or models on n prompts.

    Attributes:
        totals: Shape (R, n), on a scale on which all are between 0 and their size.
        sizes: Shape (R, n).
        reach: Shape (R,): half of the range of values, at least one half; 1/2 is its middle.
    """

    totals: Floats
    sizes: Floats
    reach: Floats


@dataclass(frozen=True, slots=True)
class Field:
    """The comparisons of M models, as values of their pairs on n prompts (or clusters of them).

    Attributes:
        sums: The comparisons.
        strengths: Shape (M,), natural log, as fitted; may be infinite or nan.
        weights: Shape (n,), comparisons of each pair where all pairs have as many; else None.
        parts: Shape (n, M): summed preference for a model over all others, over the number of
            others; without `weights`, what the prompt adds to its strength.
    """

    sums: PromptSums
    strengths: Floats
    weights: Floats | None
    parts: Floats

    def places(self) -> Floats:
        """Return what models are ordered by, shape (M,); nan for those that cannot be ranked.

        Where every two models were compared on every prompt that is the mean preference for each:
        it has the order of the strengths, and is there where they have no finite value.
        """
        if self.weights is None:
            return self.strengths
        means = self.parts.sum(axis=0) / max(float(self.weights.sum()), 1.0)
        return np.where(self.played(), means, np.nan)

    def p_values(self, first: Ints, second: Ints) -> Floats:
        """Two-sided p-values of no difference, shape (P,); nan where there is no comparison.

        Indices of models have shape (P,).
        """
        found = np.empty(len(first))
        for part in self._blocks(len(first)):
            values = self._of_pairs(first[part], second[part])
            found[part] = p_values(values.totals, values.sizes)
        return found

    def differences(self, first: Ints, second: Ints, errors: Floats) -> tuple[Floats, Floats]:
        """Bounds of differences of natural-log strengths, shape (P,) both; infinite is open.

        Where a strength is not finite and these two are not all the models, they only say which one
        is better, if that is known. Indices of models have shape (P,), and so have `errors`, one
        minus the level of each interval.
        """
        low, high = np.full(len(first), np.nan), np.full(len(first), np.nan)
        for part in self._blocks(len(first)):
            a, b = first[part], second[part]
            values = self._of_pairs(a, b)
            ends = intervals(values.totals, values.sizes, errors[part])
            for found, end in zip((low, high), ends, strict=True):
                wanted = 4.0 * values.reach * (end - 0.5)
                found[part] = _solved(partial(self._expected_gap, a, b), wanted)
            is_open = np.isnan(low[part])
            low[part][is_open] = np.where(ends[0][is_open] > 0.5, EQUAL, -np.inf)
            high[part][is_open] = np.where(ends[1][is_open] < 0.5, -EQUAL, np.inf)
        return low, high

    def ratings(self, models: Ints, error: float) -> tuple[Floats, Floats]:
        """Bounds of natural-log strengths whose mean is 0, shape (R,) both; infinite is open.

        They are nan where no model has a finite strength. `models`, shape (R,), are indices of
        models that `played`; `error` is one minus the level of each interval.
        """
        values = self._of_models(models)
        bounds = intervals(values.totals, values.sizes, error)
        low, high = (
            _solved(partial(self._expected_share, models), 0.5 + 2.0 * values.reach * (bound - 0.5))
            for bound in bounds
        )
        own = self.strengths[models]
        n_placed = np.isfinite(self.strengths).sum()
        if not n_placed:
            return np.full(own.shape, np.nan), np.full(own.shape, np.nan)
        # The others move the other way, as the mean stays.
        shrink = np.where(np.isfinite(own), 1.0 - 1.0 / n_placed, 1.0)
        begin = np.where(np.isfinite(own), own, 0.0)
        return begin + shrink * low, begin + shrink * high

    def _blocks(self, n_rows: int) -> list[slice]:
        step = max(1, _CELLS // max(self.sums.n_prompts, 1))
        return [slice(begin, begin + step) for begin in range(0, n_rows, step)]

    def _of_pairs(self, first: Ints, second: Ints) -> _Values:
        parts = (self.parts[:, first] - self.parts[:, second]).T
        if self.weights is not None:
            sizes = np.broadcast_to(self.weights, parts.shape)
            return _Values(0.5 * (sizes + parts), sizes, np.full(len(first), 0.5))
        counts = self.sums.model_counts
        sizes = 0.5 * (counts[:, first] + counts[:, second]).T
        gaps = self._gaps(first, second)
        expected, slope = self._expected_gap(first, second, np.where(np.isfinite(gaps), gaps, 0.0))
        moved = sizes.sum(axis=1, keepdims=True) * slope[:, None] * parts
        values = _widened(0.5 * (sizes * (1.0 + expected[:, None]) + moved), sizes)
        for row in np.flatnonzero(~np.isfinite(gaps)):
            # Out of reach of each other: what they say of each other is all there is.
            direct = self.sums.between(int(first[row]), int(second[row]))
            values.totals[row], values.sizes[row], values.reach[row] = *direct, 0.5
        return values

    def _of_models(self, models: Ints) -> _Values:
        parts = self.parts[:, models].T
        if self.weights is not None:
            sizes = np.broadcast_to(self.weights, parts.shape)
            return _Values(parts, sizes, np.full(len(models), 0.5))
        sizes = self.sums.model_counts[:, models].T
        expected, slope = self._expected_share(models, np.zeros(len(models)))
        n_placed = np.isfinite(self.strengths).sum()
        slope = slope * n_placed / np.maximum(n_placed - 1, 1)
        moved = sizes.sum(axis=1, keepdims=True) * slope[:, None] * parts
        return _widened(sizes * expected[:, None] + moved, sizes)

    def _gaps(self, first: Ints, second: Ints) -> Floats:
        with np.errstate(invalid="ignore"):
            return self.strengths[first] - self.strengths[second]

    def _expected_gap(self, first: Ints, second: Ints, gap: Floats) -> tuple[Floats, Floats]:
        """Expected s_a - s_b of pairs with a difference around their midpoint, and its slope."""
        placed = np.where(np.isfinite(self.strengths), self.strengths, np.nan)
        middle = 0.5 * (placed[first] + placed[second])
        others = np.tile(self.played(), (len(first), 1))
        rows = np.arange(len(first))
        others[rows, first] = others[rows, second] = False
        n_others = others.sum(axis=1) + 1
        with np.errstate(invalid="ignore"):
            apart = np.where(others, middle[:, None] - self.strengths, np.nan)
            up = scipy.special.expit(apart + 0.5 * gap[:, None])
            down = scipy.special.expit(apart - 0.5 * gap[:, None])
        own = scipy.special.expit(gap)
        value = 2.0 * own - 1.0 + np.where(others, up - down, 0.0).sum(axis=1)
        slope = 2.0 * own * (1.0 - own)
        slope += 0.5 * np.where(others, up * (1.0 - up) + down * (1.0 - down), 0.0).sum(axis=1)
        return value / n_others, slope / n_others

    def _expected_share(self, models: Ints, shift: Floats) -> tuple[Floats, Floats]:
        """Expected mean preference for models that are stronger by `shift`, and its slope."""
        own = self.strengths[models]
        own = np.where(np.isfinite(own), own, 0.0)
        others = np.tile(self.played(), (len(models), 1))
        others[np.arange(len(models)), models] = False
        n_others = np.maximum(others.sum(axis=1), 1)
        apart = np.where(others, (own + shift)[:, None] - self.strengths, np.nan)
        share = scipy.special.expit(apart)
        value = np.where(others, share, 0.0).sum(axis=1)
        slope = np.where(others, share * (1.0 - share), 0.0).sum(axis=1)
        return value / n_others, slope / n_others

    def played(self) -> NDArray[np.bool_]:
        """Shape (M,): models of the field; where comparisons are missing, those that are placed."""
        if self.weights is None:
            return np.isfinite(self.strengths)
        found: NDArray[np.bool_] = self.sums.model_counts.sum(axis=0) > 0
        return found


def field_of(sums: PromptSums, strengths: Floats) -> Field:
    """Return the values behind fitted strengths.

    `strengths` have shape (M,), natural log, as fitted to the comparisons.
    """
    n_played = int(sums.model_counts.any(axis=0).sum())
    weights = np.bincount(sums.prompt, sums.counts, minlength=sums.n_prompts) / max(sums.n_pairs, 1)
    is_complete = sums.n_pairs == n_played * (n_played - 1) // 2 and bool(
        np.all(sums.counts == weights[sums.prompt])
    )
    if is_complete:
        won = sums.by_model(sums.wins, sums.counts - sums.wins)
        return Field(sums, strengths, weights, won / max(n_played - 1, 1))
    return Field(sums, strengths, None, influences(sums, strengths))


def influences(sums: PromptSums, strengths: Floats) -> Floats:
    """Return what each prompt adds to fitted strengths with mean 0, shape (n_prompts, M).

    They are the scores of the prompts times the inverse of the information; 0 for models without a
    finite strength. The sum of their squares is the sandwich variance (Liang and Zeger 1986,
    doi:10.1093/biomet/73.1.13).
    """
    placed = np.isfinite(strengths)
    theta = np.where(placed, strengths, 0.0)
    inside = placed[sums.first] & placed[sums.second]
    expected = scipy.special.expit(theta[sums.first] - theta[sums.second])
    counts = np.where(inside[sums.pair], sums.counts, 0.0)
    surplus = np.where(inside[sums.pair], sums.wins, 0.0) - counts * expected[sums.pair]
    scores = sums.by_model(surplus, -surplus)
    information = sums.by_pair(counts) * expected * (1.0 - expected)
    weights = np.zeros((sums.n_models, sums.n_models))
    weights[sums.first, sums.second] = weights[sums.second, sums.first] = information
    result: Floats = scores @ np.linalg.inv(grounded(laplacian_of(weights), placed))
    return np.where(placed, result, 0.0)


def _widened(totals: Floats, sizes: Floats) -> _Values:
    """Values in the range around one half that holds all of them, scaled to [0, 1]."""
    apart = totals - 0.5 * sizes
    weight = np.maximum(sizes.sum(axis=1, keepdims=True), 1e-300)
    usual = np.square(sizes).sum(axis=1, keepdims=True) / weight
    farthest = np.abs(apart) / np.maximum(np.maximum(sizes, usual), 1e-300)
    reach = np.maximum(0.5, farthest.max(axis=1, initial=0.0))
    return _Values(0.5 * sizes + 0.5 * apart / reach[:, None], sizes, reach)


def _solved(function: Callable[[Floats], tuple[Floats, Floats]], wanted: Floats) -> Floats:
    """Solve an increasing function of shape (R,), given with its slope, for the values `wanted`.

    Returns the arguments; infinite where none reaches the value, nan where the function is nan.
    """
    least, most = np.full(wanted.shape, -_FARTHEST), np.full(wanted.shape, _FARTHEST)
    at = np.zeros(wanted.shape)
    for _ in range(_STEPS):
        value, slope = function(at)
        least, most = np.where(value < wanted, at, least), np.where(value > wanted, at, most)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = at - (value - wanted) / slope
        inside = (moved > least) & (moved < most)
        moved = np.where(value == wanted, at, np.where(inside, moved, 0.5 * (least + most)))
        is_settled = np.abs(moved - at) < _SETTLED
        at = moved
        if is_settled.all():
            break
    lowest, _ = function(np.full(wanted.shape, -_FARTHEST))
    highest, _ = function(np.full(wanted.shape, _FARTHEST))
    found = np.where(wanted <= lowest, -np.inf, np.where(wanted >= highest, np.inf, at))
    return np.where(np.isnan(lowest), np.nan, found)
