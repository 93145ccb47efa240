"""Tests and confidence sequences of a bounded mean that hold at every look (testing by betting).

Somebody who does not believe that a mean is at most `null` bets on each value before it is known.
If the mean is at most `null`, no way of betting makes the capital grow in expectation, so it ever
reaches 1/p with probability at most p (Ville's inequality): looking after each prompt, and stopping
whenever one likes, is allowed for. What the capital has not refuted is a confidence sequence.

Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B
86(1), 2024 (arXiv 2010.09686): the capital process, "diversified Kelly" betting (the mean of the
capitals of fixed fractions) and the process without replacement, whose conditional mean under the
null is what the values not seen yet would have to make up for.

Departures: values are in [-1, 1]; the two sides are two processes, each with a level of its own.
Values that come in clusters are bet on cluster by cluster: the total of a cluster over the size of
the largest one, against `null` times its own size over that. The expected total is at most `null`
times the expected size exactly where the mean over items is at most `null`, however unlike the
sizes and however the items of a cluster depend on each other.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError

Floats = NDArray[np.float64]

FRACTIONS: Final = np.array([0.03, 0.06, 0.12, 0.2, 0.3, 0.42, 0.56, 0.72, 0.88, 0.97])
"""Shares of the capital that may be lost at one value; each holds a tenth of it at the start."""

_STEPS: Final = 40
# Sums of values are exact to far less than this; a certainty must not rest on rounding.
_ROUNDING: Final = 1e-9


class Capital:
    """Capital against "the mean is at most `null`" of several series side by side.

    With a `population` the question is the mean of so many values, of which those seen are drawn
    without replacement; a missing one then counts as 0 in their sum, which leaves the sign of the
    sum as it is. Without it the values are independent draws, and a missing one is no draw; they
    may be totals of clusters (see above).

    Args:
        n_series: Series.
        null: Shape () or (n_series,), in [-1, 1].
        population: Values there are in all, missing ones included; None for independent draws.

    Attributes:
        n: Values each series has had, missing ones included; shape (n_series,).
    """

    def __init__(
        self, n_series: int, *, null: Floats | float = 0.0, population: int | None = None
    ) -> None:
        self._null = np.broadcast_to(np.asarray(null, np.float64), (n_series,))
        self._population = population
        self._log = np.zeros((n_series, FRACTIONS.size))
        self._sum = np.zeros(n_series)
        self.n = np.zeros(n_series, np.int64)

    def add(
        self,
        values: Floats,
        which: NDArray[np.bool_] | None = None,
        *,
        sizes: Floats | None = None,
    ) -> Floats:
        """Bet on more values.

        Args:
            values: Shape (n, n_series), in [-1, 1] or nan for missing, in the order of the draws.
            which: Series to go on with, shape (n_series,); the others stay as they are.
            sizes: Shape (n, n_series), of independent draws that are clusters: how many items each
                has of the most that there can be, in [0, 1]; the value is in [-size, size]. None
                where all are single items.

        Returns:
            Log capital after each value, shape (n, series gone on with); inf where the null has
            become impossible.

        Raises:
            StatisticsError: If a value is outside [-1, 1], there are more than the population, or
                clusters are drawn from one.
        """
        at = np.arange(self._sum.size) if which is None else np.flatnonzero(which)
        x = np.asarray(values, np.float64)[:, at]
        if np.any(np.abs(x) > 1.0 + _ROUNDING):
            raise StatisticsError("values to bet on must be in [-1, 1]")
        start = self._sum[at]
        sums = np.vstack([start, start + np.cumsum(np.nan_to_num(x), axis=0)])
        certain = np.zeros(x.shape, np.bool_)
        if self._population is None:
            shares = None if sizes is None else sizes[:, at]
            steps = _log_growth(x, np.broadcast_to(self._null[at], x.shape), shares)
            steps = np.where(np.isnan(x)[..., None], 0.0, steps)
        elif sizes is not None:
            raise StatisticsError(
                "cluster sizes need an infinite population; of a finite one, items are drawn singly"
            )
        else:
            left = self._population - self.n[at] - np.arange(len(x) + 1)[:, None]
            if np.any(left < 0):
                raise StatisticsError(f"more values than the population has ({self._population})")
            total = self._population * self._null[at]
            steps = _log_growth(np.nan_to_num(x), (total - sums[:-1]) / np.maximum(left[:-1], 1))
            # Not even -1 for each value that is left would bring the sum down to the null.
            certain = sums[1:] - left[1:] > total + _ROUNDING
        logs = self._log[at] + np.cumsum(steps, axis=0)
        if len(x):
            self._log[at], self._sum[at] = logs[-1], sums[-1]
            self.n[at] += len(x)
        top = logs.max(axis=2, keepdims=True)
        path: Floats = np.log(np.mean(np.exp(logs - top), axis=2)) + top[..., 0]
        return np.where(certain, np.inf, path)


def _log_growth(x: Floats, mean: Floats, size: Floats | None = None) -> Floats:
    """Log growth by fraction f: 1 + f (x - mean) / (1 + mean), at least 1 - f; 0 for mean <= -1.

    With a size, of a cluster, it is 1 + f (x - size mean) / (1 + mean), at least 1 - f size.
    """
    room = 1.0 + mean
    possible = room > _ROUNDING
    expected = mean if size is None else size * mean
    relative = np.where(possible, (x - expected) / np.where(possible, room, 1.0), 0.0)
    grown: Floats = np.log1p(FRACTIONS * relative[..., None])
    return grown


def confidence_sequence(
    values: Floats, *, error: float, population: int | None = None, sizes: Floats | None = None
) -> tuple[Floats, Floats]:
    """Bounds of the means after all values, which hold although one looked after each.

    Args:
        values: Shape (n, n_series), in [-1, 1] or nan, in the order of the draws.
        error: Of each of the two sides, in (0, 1).
        population: As for `Capital`; the mean is then over all of it, with 0 for missing values.
        sizes: As for `Capital.add`; the mean is over items.

    Returns:
        Lower and upper bounds in [-1, 1], each of shape (n_series,).
    """
    low = _lower_bound(values, error, population, sizes)
    return low, -_lower_bound(-values, error, population, sizes)


def _lower_bound(
    values: Floats, error: float, population: int | None, sizes: Floats | None
) -> Floats:
    """The lowest mean never refuted; bisected, since capital falls as the null grows."""
    n_series = values.shape[1]
    refuted, kept = np.full(n_series, -1.0), np.full(n_series, 1.0)
    if not len(values):
        return refuted
    for _ in range(_STEPS):
        middle = (refuted + kept) / 2
        path = Capital(n_series, null=middle, population=population).add(values, sizes=sizes)
        is_refuted = path.max(axis=0) >= -np.log(error)
        refuted = np.where(is_refuted, middle, refuted)
        kept = np.where(is_refuted, kept, middle)
    return refuted
