"""Student's t: quantiles, intervals, p-values, corrections for few clusters of unlike sizes; power.

Degrees of freedom below 1, as clusters of very unequal sizes have them, count as 1: there the
quantile grows without bound and an interval would say nothing.
"""

import math
from statistics import NormalDist
from typing import Final, overload

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.records import Floats
from orchestrator.statistics.results import Interval

# Small-sample corrections of a variance over clusters of unlike sizes.
#
# Few large clusters among small ones say less of the spread than as many equal ones: with n / (n -
# 1) and Student's t for n - 1, intervals of 10 to 20 clusters of 1 to 9 items cover 92 to 94 %
# instead of 95 (`benchmarks/clusters.py`). With n clusters of one size the corrections are just
# these.
#
# Source: Bell and McCaffrey 2002 (Survey Methodology 28(2)), for clusters whose means are of one
# variance, as they are where the points of a cluster are much alike.


N_POWERS: Final = 5
_LEAST: Final = 1e-300


def degrees_of_freedom(sizes: Floats) -> Floats:
    """Satterthwaite's degrees of freedom of the variance of a mean over points in clusters.

    `sizes` have shape (n, K): points of each cluster, by quantity; 0 where it has none. Returns
    shape (K,); 0 for fewer than two clusters.
    """
    n, even = _counted(sizes)
    most: Floats = np.maximum(n - 1.0, 0.0)
    if even.all():
        return most
    powers = np.stack([(sizes**k).sum(axis=0) for k in range(1, N_POWERS + 1)])
    return np.where(even, most, from_powers(powers, n))


def variance_factor(sizes: Floats) -> Floats:
    """Factor that makes the sum of squared residuals of a mean, by cluster, an unbiased variance.

    Sizes are as for `degrees_of_freedom`. Returns shape (K,); n / (n - 1) for n clusters of one
    size, else more; 1 for fewer than two.
    """
    n, even = _counted(sizes)
    least = np.where(n > 1, n / np.maximum(n - 1.0, 1.0), 1.0)
    if even.all():
        return least
    powers = np.stack([(sizes**k).sum(axis=0) for k in (1, 2, 3)])
    return np.where(even, least, factor_from_powers(powers, n))


def _counted(sizes: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Clusters by quantity, and where all are of one size: there the costly powers are spared."""
    n = (sizes > 0).sum(axis=0)
    largest = sizes.max(axis=0, initial=0.0)
    return n, np.where(sizes > 0, sizes, largest).min(axis=0, initial=np.inf) == largest


def factor_from_powers(powers: Floats, n: Floats | NDArray[np.int64]) -> Floats:
    """The same from sums of the first three powers of the sizes, or more, of n clusters."""
    total = np.where(powers[0] > 0, powers[0], 1.0)
    squares, cubes = powers[1] / total**2, powers[2] / total**3
    trace = squares * (1.0 + squares) - 2.0 * cubes
    known = np.asarray(n) > 1
    return np.where(known, squares / np.where(known, trace, 1.0), 1.0)


def from_powers(powers: Floats, n: Floats | NDArray[np.int64]) -> Floats:
    """The same from sums of the first five powers of the sizes, shape (5, K), of n clusters."""
    total = np.where(powers[0] > 0, powers[0], 1.0)
    _, s2, s3, s4, s5 = (power / total**k for k, power in enumerate(powers, start=1))
    # Trace of the residuals' covariance and of its square.
    trace = s2 * (1.0 + s2) - 2.0 * s3
    square = (1.0 + 4.0 * s2) * s4 - 4.0 * s5 + s2**4 - 4.0 * s2**2 * s3 + 2.0 * s3**2
    result: Floats = np.where(n > 1, trace**2 / np.maximum(square, _LEAST), 0.0)
    return np.clip(result, 0.0, np.maximum(n - 1.0, 0.0))


@overload
def quantile(dof: float, level: float) -> float: ...
@overload
def quantile(dof: Floats, level: float) -> Floats: ...
def quantile(dof: float | Floats, level: float) -> float | Floats:
    """Return the number of standard errors on each side of a two-sided interval.

    Args:
        dof: Degrees of freedom, of any shape, which is that of the result.
        level: In (0, 1).
    """
    found = scipy.special.stdtrit(np.maximum(dof, 1.0), 0.5 + 0.5 * level)
    return np.asarray(found, np.float64) if isinstance(dof, np.ndarray) else float(found)


def interval_around(value: float, error: float, dof: float, level: float) -> Interval | None:
    """Return the interval around a value; None without degrees of freedom or a finite error."""
    if not (dof > 0 and math.isfinite(error)):
        return None
    reach = quantile(dof, level) * error
    return Interval(value - reach, value + reach, level)


def p_value(value: float, error: float, dof: float) -> float:
    """Return the two-sided p-value of a true value of 0.

    It is below one minus a level exactly where the interval of that level excludes 0. It is nan
    without degrees of freedom or a positive error.
    """
    if not (dof > 0 and error > 0):
        return math.nan
    return float(2.0 * scipy.special.stdtr(max(dof, 1.0), -abs(value) / error))


POWER: Final = 0.8
"""Share of samples that are to tell a difference from none, where units are counted."""
MOST: Final = 100_000
"""Beyond this a number of units is no plan: a difference so small is not told from none."""


def units_needed(difference: float, end: float, n: int, level: float) -> int:
    """Units of which `POWER` of the samples would tell a mean difference like this one from 0.

    By the normal approximation (Cohen 1988, section 2.4): an interval's end is z standard errors
    away, which shrink with the root of the number of units, and a sample's difference falls below
    the true one by more than its quantile at `POWER` in all but that share. A difference that
    was seen in few units is itself uncertain, and so is the number; `MOST` + 1 for more.

    Args:
        difference: As it was seen, not 0.
        end: End of its interval that is nearer to 0 or beyond.
        n: Independent units that it was seen in.
        level: Confidence level of the interval.
    """
    z = NormalDist().inv_cdf(0.5 + 0.5 * level)
    error = abs(difference - end) / z
    shrink = (z + NormalDist().inv_cdf(POWER)) * error
    if shrink > abs(difference) * math.sqrt(MOST / n):
        return MOST + 1
    return math.ceil(n * (shrink / difference) ** 2)
