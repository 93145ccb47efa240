"""Test of the mean of values in [0, 1] over independent units, and its exact inversion.

Source: Gaffke 2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of
a nonnegative variable"; Learned-Miller and Thomas 2019, arXiv:1905.06208. It is the Bayesian
bootstrap with one unit that was not seen and lies at the worst end. With independent E ~ Exp(1),
unit j of size s_j and total T_j, and a unit not seen of size s_0 = sum s^2 / sum s:

    p_up(m)  = P(sum E_j (T_j - m s_j) + E_0 s_0 (1 - m) >= 0)
    p_low(m) = P(sum E_j (T_j - m s_j) - E_0 s_0 m <= 0)
    p(m) = min(1, 2 min(p_up, p_low))

and the interval is {m: p(m) > error}. Values that are 0 or 1 give Clopper and Pearson's interval, n
equal values c the p-value 2 (m / c)^n for c above m. Nothing is drawn and nothing is tuned. That
the test never errs more often than it may is proven for two-valued units and conjectured for
others; no counterexample is known. Unequal units (clusters of prompts) are our extension. Measured
in `docs/statistics.md`.

Probabilities of sums of exponentials are by saddlepoint (Lugannani and Rice 1980,
doi:10.2307/1426607, in Barndorff-Nielsen's form): 0 to 5 % above the exact ones.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import scipy

from orchestrator.records import Floats

METHOD: Final = "Gaffke's test of a bounded mean, inverted"

_CELLS: Final = 2**14
"""Rows times units that are worked on at once, so that they stay in the processor's cache."""
_STEPS: Final = 80
_SETTLED: Final = 1e-10
_TINY: Final = 1e-300
_EQUAL: Final = 1e-12


def least_units(error: float) -> int:
    """Return the number of units below which no mean can differ from one half, whatever they say.

    `error` is of both sides together, in (0, 1).
    """
    return math.ceil(math.log2(2.0 / error) - _EQUAL)


def difference_ends(
    first: tuple[float, float] | None, second: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return the least and greatest first value minus a second one, of the ends of both."""
    if first is None or second is None:
        return None
    return first[0] - second[1], first[1] - second[0]


def interval_of_mean(
    totals: Floats, sizes: Floats, ends: tuple[float, float], error: float
) -> tuple[float, float]:
    """Return the interval of one mean of values between any ends.

    `totals` and `sizes` have shape (n,), as for `p_values`; `ends` are the least and greatest value
    there can be, `error` is one minus the confidence level.
    """
    low, high = ends
    least, most = intervals(*_scaled(totals, sizes, ends), error)
    return low + (high - low) * float(least[0]), low + (high - low) * float(most[0])


def p_value_of_zero(totals: Floats, sizes: Floats, ends: tuple[float, float]) -> float:
    """Return the two-sided p-value of a mean of 0, between the ends of `interval_of_mean`."""
    low, high = ends
    return float(p_values(*_scaled(totals, sizes, ends), -low / (high - low))[0])


def _scaled(totals: Floats, sizes: Floats, ends: tuple[float, float]) -> tuple[Floats, Floats]:
    """Totals on a scale on which the least value is 0 and the greatest 1, and sizes: (1, n)."""
    low, high = ends
    return np.clip((totals - low * sizes) / (high - low), 0.0, sizes)[None], sizes[None]


def p_values(totals: Floats, sizes: Floats, mean: float = 0.5) -> Floats:
    """Two-sided p-values of R means, shape (R,); nan where no unit has a size.

    `totals`, shape (R, n), are those of the units, between 0 and their size; `sizes`, shape (R, n),
    the values in each unit, or their weight: 0 where it has none. `mean`, in (0, 1), is tested.
    """
    return _in_blocks(lambda t, s, n: _p_values(t, s, n, mean), totals, sizes)


def intervals(totals: Floats, sizes: Floats, error: float | Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds of R means, shape (R,) both: where the p-value is `error`.

    `totals` and `sizes` are as for `p_values`; `error` is one minus the confidence level: a number,
    or one for each row.
    """
    errors = np.broadcast_to(np.asarray(error, np.float64), (len(totals),))
    high = _in_blocks(_upper, totals, sizes, errors)
    low = 1.0 - _in_blocks(_upper, sizes - totals, sizes, errors)
    return low, high


def _in_blocks(found: Callable[..., Floats], *arrays: Floats) -> Floats:
    """Apply a function to a block of rows at a time; rows without a unit give nan.

    It takes their arrays, and third how many units each column is: of many that are mostly alike,
    such as decisions, each is there once.
    """
    used = arrays[1].sum(axis=1) > 0
    kept = [array[used] for array in arrays] if not used.all() else list(arrays)
    rows = max(1, _CELLS // max(1, arrays[1].shape[1]))
    result = np.full(len(used), np.nan)
    parts = []
    for begin in range(0, int(used.sum()), rows):
        t, s, *others = (array[begin : begin + rows] for array in kept)
        counts = np.ones(s.shape[1])
        if rows == 1 and np.ptp(s) == 0.0:
            distinct, n_alike = np.unique(t, return_counts=True)
            t, s, counts = distinct[None], s[:, : distinct.size], n_alike.astype(np.float64)
        parts.append(found(t, s, counts, *others))
    result[used] = np.concatenate(parts) if parts else np.empty(0)
    return result


def _sum(values: Floats, counts: Floats) -> Floats:
    """Sums over units, given how many each column of (R, C) is: shape (R,)."""
    result: Floats = np.einsum("ij,j->i", values, counts)
    return result


def _unseen(sizes: Floats, counts: Floats) -> Floats:
    """Size of the unit that was not seen, shape (R, 1)."""
    return (_sum(np.square(sizes), counts) / _sum(sizes, counts))[:, None]


def _p_values(totals: Floats, sizes: Floats, counts: Floats, mean: float) -> Floats:
    apart = totals - mean * sizes
    is_low = _sum(apart, counts)[:, None] < 0
    worst = np.where(is_low, 1.0 - mean, mean) * _unseen(sizes, counts)
    values = np.concatenate([np.where(is_low, apart, -apart), worst], axis=1)
    result = np.ones(len(values))
    total, counts = _sum(sizes, counts), np.append(counts, 1.0)
    # Where the sum is expected to be above 0 its probability is about one half or more.
    go = np.flatnonzero(_sum(values, counts) < -_EQUAL * total)
    values = values[go]
    most = (1.0 - 1.0 / counts.sum()) / np.maximum(values.max(axis=1, initial=_TINY), _TINY)
    start = -_sum(values, counts) / np.maximum(_sum(np.square(values), counts), _TINY)
    tilt = _tilt(values, counts, np.clip(start, 0.0, 0.5 * most), most)
    root, correction, _ = _signed_root(values, counts, tilt)
    result[go] = np.minimum(1.0, 2.0 * scipy.special.ndtr(-(root + correction)))
    return result


def _tilt(values: Floats, counts: Floats, tilt: Floats, most: Floats) -> Floats:
    """Solve sum z / (1 - t z) = 0 for t in (0, most) in each row, by Newton steps within bounds."""
    least = np.zeros(len(values))
    for _ in range(_STEPS):
        tilted = values / (1.0 - tilt[:, None] * values)
        slope, curvature = _sum(tilted, counts), _sum(np.square(tilted), counts)
        least = np.where(slope < 0, tilt, least)
        most = np.where(slope >= 0, tilt, most)
        moved = tilt - slope / np.maximum(curvature, _TINY)
        is_settled = np.abs(moved - tilt) <= _SETTLED * np.abs(tilt)
        inside = (moved > least) & (moved < most)
        tilt = np.where(is_settled, tilt, np.where(inside, moved, 0.5 * (least + most)))
        if is_settled.all():
            break
    return tilt


def _signed_root(values: Floats, counts: Floats, tilt: Floats) -> tuple[Floats, Floats, Floats]:
    """Return w, log(u / w) / w, whose sum is a normal quantile of the tail, and 1 - t z."""
    shrunk = 1.0 - tilt[:, None] * values
    root = np.sqrt(np.maximum(2.0 * _sum(np.log(shrunk), counts), _TINY))
    spread = np.maximum(tilt * np.sqrt(_sum(np.square(values / shrunk), counts)), _TINY)
    # Where w is near 0 the correction is too, but is lost in rounding.
    correction = np.where(root < 1e-3, 0.0, np.log(spread / root) / root)
    return root, correction, shrunk


def _upper(totals: Floats, sizes: Floats, counts: Floats, errors: Floats) -> Floats:
    """Upper bounds: the means m with p_up(m) = error / 2.

    By Newton's method on the mean and the tilt together: the derivative of w^2 / 2 by m is
    t sum s / (1 - t z).
    """
    unseen = _unseen(sizes, counts)
    totals, sizes = np.hstack([totals, unseen]), np.hstack([sizes, unseen])
    counts = np.append(counts, 1.0)
    weight = _sum(sizes, counts)
    least, most = _sum(totals, counts) / weight, np.ones(len(totals))
    wanted = -scipy.special.ndtri(0.5 * errors)
    is_full = most - least < _EQUAL
    spread = np.sqrt(_sum(np.square(totals - least[:, None] * sizes), counts)) / weight
    mean = least + np.minimum(wanted * spread, 0.7 * (most - least))
    tilt = np.full(len(totals), np.nan)
    for _ in range(_STEPS):
        values = totals - mean[:, None] * sizes
        end = (1.0 - 1.0 / counts.sum()) / np.maximum(values.max(axis=1), _TINY)
        first = -_sum(values, counts) / np.maximum(_sum(np.square(values), counts), _TINY)
        first = np.clip(first, 0.0, 0.5 * end)
        start = np.where(np.isnan(tilt), first, np.clip(tilt, 1e-3 * end, 0.999 * end))
        tilt = _tilt(values, counts, start, end)
        root, correction, shrunk = _signed_root(values, counts, tilt)
        is_beyond = root + correction > wanted
        most, least = np.where(is_beyond, mean, most), np.where(is_beyond, least, mean)
        slope = np.maximum(tilt * _sum(sizes / shrunk, counts), _TINY)
        step = (np.square(np.maximum(wanted - correction, 1e-3)) - np.square(root)) / (2.0 * slope)
        is_settled = is_full | (np.abs(step) < _SETTLED) | (most - least < _SETTLED)
        inside = (mean + step > least) & (mean + step < most)
        moved = np.where(inside, mean + step, 0.5 * (least + most))
        mean = np.where(is_settled, mean, moved)
        if is_settled.all():
            break
    return np.where(is_full, 1.0, mean)
