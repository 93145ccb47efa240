"""Resampling of prompts: the jackknife, the bootstrap, and sign-flip tests."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics import student
from orchestrator.statistics.results import Estimate, Interval, checked_level
from orchestrator.statistics.student import degrees_of_freedom

_CHUNK_BYTES: Final = 4 * 2**20
# Numbers per value up to which a table of all of them is kept.
_MOST_SPARSE: Final = 16


def prompt_weights(
    n_prompts: int, n_resamples: int, rng: np.random.Generator, *, row_bytes: int = 0
) -> Iterator[Floats]:
    """Chunks of multinomial weights, shape (b, n_prompts), that add up to `n_resamples` rows.

    Rows do not depend on the chunking. `row_bytes` is what else the caller holds for each row, and
    bounds the chunk.

    Raises:
        StatisticsError: If there is no prompt.
    """
    if n_prompts < 1:
        raise StatisticsError("resampling needs at least one prompt")
    rows = max(1, _CHUNK_BYTES // (16 * n_prompts + row_bytes))
    for done in range(0, n_resamples, rows):
        weights = np.empty((min(rows, n_resamples - done), n_prompts))
        for row in weights:
            row[:] = np.bincount(rng.integers(n_prompts, size=n_prompts), minlength=n_prompts)
        yield weights


MIN_PROMPTS: Final = 3
"""Prompts under which no interval is given."""

JACKKNIFE: Final = "jackknife over prompts, t quantile"
"""Name of the method of `Jackknifed.estimate`."""

ENUMERATED: Final = 12
"""Prompts up to which all sign flips are gone through: 2 ** 12."""

_NO_SPREAD: Final = 1e-12
_CHUNK_CELLS: Final = 2**20


@dataclass(frozen=True, slots=True)
class Resampling:
    """Settings of resampling: number of draws, their source, and the level.

    Attributes:
        n_resamples: At least 1,000 for a level of 95 %.
        rng: Source of the draws.
        confidence_level: In (0, 1).
    """

    n_resamples: int
    rng: np.random.Generator
    confidence_level: float = 0.95


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale on which a statistic is nearly normal with constant spread, for its intervals.

    Attributes:
        forward: To that scale.
        slope: Derivative of `forward`.
        back: From that scale.
    """

    forward: Callable[[float], float]
    slope: Callable[[float], float]
    back: Callable[[float], float]


PLAIN: Final = Scale(lambda r: r, lambda _: 1.0, lambda z: z)
FISHER: Final = Scale(math.atanh, lambda r: 1.0 / (1.0 - r * r), math.tanh)
ARCSINE: Final = Scale(
    math.asin,
    lambda r: 1.0 / math.sqrt(1.0 - r * r),
    lambda z: math.sin(min(max(z, -0.5 * math.pi), 0.5 * math.pi)),
)


@dataclass(frozen=True, slots=True)
class Jackknifed:
    """A statistic and what each of P prompts adds to its error.

    Differences and averages of statistics over the same prompts are those of their values and of
    their errors.

    Attributes:
        value: The statistic.
        errors: Shape (P,), sum 0; the root of their sum of squares is the standard error. nan
            where the statistic is undefined without a prompt.
    """

    value: float
    errors: Floats

    @property
    def standard_error(self) -> float:
        """Jackknife standard error (Efron and Stein 1981, doi:10.1214/aos/1176345462)."""
        # A product by BLAS would depend on its number of threads, and be slow where these wait.
        return math.sqrt(float(np.square(self.errors).sum()))

    @property
    def n_prompts(self) -> int:
        """P."""
        return int(self.errors.size)

    def minus(self, other: "Jackknifed") -> "Jackknifed":
        """The difference of two statistics over the same prompts."""
        return Jackknifed(self.value - other.value, self.errors - other.errors)

    def estimate(
        self,
        method: str,
        sizes: Floats,
        confidence_level: float,
        scale: Scale = PLAIN,
        n_strata: int = 1,
    ) -> Estimate:
        """Return it with Student's interval over prompts of these sizes (`student_interval`)."""
        found = student_interval(
            self.value, self.standard_error, sizes, confidence_level, scale, n_strata
        )
        interval, why = (None, found) if isinstance(found, str) else (found, None)
        return Estimate(self.value, interval, sizes.size, method, why)


def jackknifed(value: float, left_out: Floats) -> Jackknifed:
    """Errors from the values without each prompt, shape (P,)."""
    n = left_out.size
    return Jackknifed(value, math.sqrt((n - 1) / n) * (left_out.mean() - left_out))


def jackknife_sums(parts: Floats, statistic: Callable[[Floats], Floats]) -> Jackknifed:
    """A function of sums over prompts.

    `parts`, shape (P, K), are each prompt's share of the K sums; `statistic` takes sums of shape
    (B, K) and gives shape (B,).
    """
    total = parts.sum(axis=0, keepdims=True)
    return jackknifed(float(statistic(total)[0]), statistic(total - parts))


def mean_of_sums(sums: Floats) -> Floats:
    """Means from counts and sums, columns of shape (B, 2); nan where nothing was counted."""
    given = sums[:, 0] > 0.0
    return np.where(given, sums[:, 1] / np.where(given, sums[:, 0], 1.0), np.nan)


def student_interval(
    value: float,
    standard_error: float,
    sizes: Floats,
    confidence_level: float,
    scale: Scale = PLAIN,
    n_strata: int = 1,
) -> Interval | str:
    """Interval with Student's t for prompts minus strata degrees of freedom, or why there is none.

    Here a prompt is what is sampled as a whole: a cluster of prompts where these belong together.
    The error is nan where it can't be had; `scale` is where the statistic is symmetric. Strata are
    groups of prompts that have a mean of their own. `sizes`, shape (n_prompts,), are the points of
    each, which lower the degrees of freedom where they differ (`degrees_of_freedom`).
    """
    level = checked_level(confidence_level)
    n_prompts = sizes.size
    if n_prompts < MIN_PROMPTS or n_prompts <= n_strata:
        return f"{n_prompts} independent prompts, too few for an interval"
    dof = float(degrees_of_freedom(sizes[:, None])[0]) + 1 - n_strata
    if dof < 1:
        return f"{n_prompts} independent prompts of too unequal sizes for an interval"
    if math.isnan(standard_error):
        return "undefined when some prompts are left out: no interval"
    if standard_error <= _NO_SPREAD:
        return "no spread over prompts: no interval"
    if scale is not PLAIN and abs(value) >= 1.0 - _NO_SPREAD:
        return "perfect: no spread for an interval"
    reach = student.quantile(dof, level) * standard_error
    centre, reach = scale.forward(value), reach * scale.slope(value)
    return Interval(scale.back(centre - reach), scale.back(centre + reach), level)


def sign_flip_p_value(found: Jackknifed, resampling: Resampling) -> float:
    """Two-sided p-value of a statistic being 0, from flipping the signs of its pseudo-values.

    Exact where the prompts' pseudo-values are symmetric about 0, as those of an exchangeable pair
    are; else right for many prompts. All flips are gone through up to `ENUMERATED` prompts; beyond,
    p is (1 + flips at least as far) / (1 + flips drawn), never 0 (Phipson and Smyth 2010,
    doi:10.2202/1544-6115.1585). nan where errors are undefined or there is one prompt.
    """
    n = found.n_prompts
    if n < 2 or np.isnan(found.errors).any() or math.isnan(found.value):
        return math.nan
    pseudo = found.value + math.sqrt(n * (n - 1)) * found.errors
    # Flips that tie with what was seen are as far, whatever the rounding.
    seen = abs(pseudo.sum()) - 1e-9 * np.abs(pseudo).sum()
    if n <= ENUMERATED:
        bits = np.arange(2**n)[:, None] >> np.arange(n) & 1
        return float((np.abs((1.0 - 2.0 * bits) @ pseudo) >= seen).mean())
    rows = max(1, _CHUNK_CELLS // n)
    n_far = 0
    for done in range(0, resampling.n_resamples, rows):
        size = (min(rows, resampling.n_resamples - done), n)
        signs = 2.0 * resampling.rng.integers(2, size=size) - 1.0
        n_far += int((np.abs(signs @ pseudo) >= seen).sum())
    return (1 + n_far) / (1 + resampling.n_resamples)


def complete_rows(prompts: Ints, columns: Sequence[Floats]) -> tuple[Ints, list[Floats], int]:
    """Rows without nan: prompts as codes in [0, P), the columns, and how many rows were dropped.

    All have shape (n,).

    Raises:
        StatisticsError: If the shapes differ.
    """
    if any(column.shape != prompts.shape for column in columns) or prompts.ndim != 1:
        shapes = ", ".join(str(column.shape) for column in columns)
        raise StatisticsError(f"prompts {prompts.shape} and values {shapes} need one shape (n,)")
    kept = np.ones(prompts.shape, np.bool_)
    for column in columns:
        kept &= ~np.isnan(column)
    if not kept.all():
        prompts, columns = prompts[kept], [column[kept] for column in columns]
    return codes_of(prompts), list(columns), kept.size - prompts.size


def codes_of(values: Ints) -> Ints:
    """Return the place of each whole number among the different ones, from 0 on: shape (n,)."""
    if not values.size or values.min() < 0 or values.max() > _MOST_SPARSE * values.size:
        return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    there = np.zeros(int(values.max()) + 1, np.bool_)
    there[values] = True
    found: Ints = (np.cumsum(there) - 1)[values]
    return found


def sums_by_prompt(codes: Ints, columns: Sequence[Floats]) -> Floats:
    """Columns of shape (n,) added up by prompt: shape (P, K)."""
    summed = [np.bincount(codes, column).astype(np.float64) for column in columns]
    return np.stack(summed, axis=-1)


METHOD = "percentile bootstrap over prompts"


def bootstrapped(
    values: Floats,
    prompts: NDArray[np.int64],
    statistic: Callable[[Floats], float],
    resampling: Resampling,
) -> Estimate:
    """A statistic with its percentile interval; whole clusters of prompts are drawn.

    There is no interval for a single cluster, nor where the statistic of a resample is undefined.
    `values` have shape (n,), finite; clusters (n,) count 0, 1, ... without gaps. `statistic` takes
    values of shape (m,), m >= 1, and gives nan where it is undefined.
    """
    if not values.size:
        return Estimate(math.nan, None, 0, METHOD, "no values")
    value, n = float(statistic(values)), int(prompts.max()) + 1
    if math.isnan(value):
        return Estimate(math.nan, None, n, METHOD, "undefined for these values")
    if n < 2:
        return Estimate(value, None, n, METHOD, "one independent prompt: no interval")
    drawn = np.array(
        [
            statistic(np.repeat(values, row[prompts].astype(np.int64)))
            for weights in prompt_weights(n, resampling.n_resamples, resampling.rng)
            for row in weights
        ]
    )
    if np.isnan(drawn).any():
        return Estimate(value, None, n, METHOD, "undefined for some resamples: no interval")
    tail = 0.5 * (1.0 - resampling.confidence_level)
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return Estimate(
        value, Interval(float(low), float(high), resampling.confidence_level), n, METHOD
    )
