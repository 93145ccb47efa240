"""Sequential Elo as peer evaluation publishes it: seeded, many orders at once.

An Elo rating depends on the order of the battles, which is nothing but chance: `rate_elo` gives the
median over random orders, the spread over orders, and apart from it an interval over prompts.
`bootstrap_elo` follows the published convention, the median over resamples of single battles,
whose spread is neither. Bradley-Terry (`ratings.rate`) has no order and is the default elsewhere.

Source: LLM-self-eval (oceanypt) and FastChat's `compute_elo`; Elo 1978.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics import student
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.resampling import MIN_PROMPTS, Resampling, prompt_weights
from orchestrator.statistics.results import checked_level
from orchestrator.statistics.student import degrees_of_freedom

Rows = NDArray[np.int32]

K_FACTOR: Final = 4.0
SCALE: Final = 400.0
BASE: Final = 10.0
INITIAL: Final = 1000.0

METHOD: Final = "Elo: median over orders; variance component of resampled prompts, t quantile"
METHOD_BATTLES: Final = "Elo: median and percentiles over resampled battles, as published"

_NO_SPREAD: Final = 1e-12
_CHUNK_CELLS: Final = 2**24
_STEPS: Final = 256


@dataclass(frozen=True, slots=True)
class Battles(Pairs):
    """Battles between two models each.

    Attributes:
        score: Shape (n,): 1 where the first wins, 0 where the second does, 0.5 for a tie.

    Raises:
        StatisticsError: If the shapes differ, a model meets itself, or a score is not in [0, 1]:
            a battle without a result is left out and counted by the caller, never a tie.
    """

    score: Floats

    def __post_init__(self) -> None:
        shapes = {column.shape for column in (self.prompts, self.first, self.second, self.score)}
        if len(shapes) != 1 or self.score.ndim != 1:
            raise StatisticsError(f"battles need columns of one shape (n,), got {shapes}")
        if not np.all((self.score >= 0.0) & (self.score <= 1.0)):
            raise StatisticsError("scores must be in [0, 1]; drop battles without a result")
        if np.any(self.first == self.second):
            raise StatisticsError("a model is compared with itself")

    @property
    def n(self) -> int:
        """Battles."""
        return int(self.score.size)


@dataclass(frozen=True, slots=True)
class EloRatings:
    """Elo ratings of M models; arrays of shape (M,).

    Attributes:
        values: Median over random orders of all battles; the initial rating without battles.
        order_low: Lower percentile over orders, at the confidence level: chance, not evidence.
        order_high: Upper percentile over orders.
        low: Lower bound of the interval over prompts; nan where there is none.
        high: Upper bound.
        wins: Battles won; ties excluded, as the published "number of wins".
        ties: Battles tied.
        n_battles: Battles fought.
        n_prompts: Prompts with a battle, over all models.
        n_orders: Orders drawn.
        confidence_level: Of both intervals.
        method: Names them.
        notes: Plain sentences on what is undefined.
    """

    values: Floats
    order_low: Floats
    order_high: Floats
    low: Floats
    high: Floats
    wins: Ints
    ties: Ints
    n_battles: Ints
    n_prompts: int
    n_orders: int
    confidence_level: float
    method: str
    notes: tuple[str, ...]


def expected_score(first: float, second: float) -> float:
    """Return 1 / (1 + 10^((second - first) / 400)), the win rate that two ratings predict."""
    return float(1.0 / (1.0 + BASE ** ((second - first) / SCALE)))


def sequential_elo(battles: Battles, orders: Rows | None = None) -> Floats:
    """Ratings after the battles in each of R orders, shape (R, M).

    r_first += K (s - e), r_second -= K (s - e), e = 1 / (1 + 10^((r_second - r_first) / 400)), with
    K = 4 and all ratings 1000 at first. All orders advance together, a battle at a time. `orders`,
    shape (R, L), are indices of battles, which may repeat; n stands for no battle, and None is the
    one order in which they are given.
    """
    if orders is None:
        orders = np.arange(battles.n, dtype=np.int32)[None]
    n_orders, length = orders.shape
    first, second = np.append(battles.first, 0), np.append(battles.second, 0)
    score = np.append(battles.score, 0.5)
    gain = np.append(np.full(battles.n, K_FACTOR), 0.0)
    ratings = np.full(n_orders * battles.n_models, INITIAL)
    rows = np.arange(n_orders) * battles.n_models
    slope = math.log(BASE) / SCALE
    for begin in range(0, length, _STEPS):
        battle = np.ascontiguousarray(orders[:, begin : begin + _STEPS].T)
        one, two = first[battle] + rows, second[battle] + rows
        scores, gains = score[battle], gain[battle]
        for a, b, s, k in zip(one, two, scores, gains, strict=True):
            r_a, r_b = ratings[a], ratings[b]
            moved = k * (s - 1.0 / (1.0 + np.exp(slope * (r_b - r_a))))
            ratings[a] = r_a + moved
            ratings[b] = r_b - moved
    return ratings.reshape(n_orders, battles.n_models)


def rate_elo(battles: Battles, resampling: Resampling) -> EloRatings:
    """Ratings with the spread over orders and, apart from it, an interval over prompts.

    Each resample of the prompts is run in two independent orders. What the two share varies with
    the prompts only, so the covariance of the two ratings is the variance over prompts without that
    of the order; times n / (n - 1) for n prompts, with Student's t quantile. Where it is not
    positive the order hides it, and there is no interval. `resampling` says how many orders, and
    resamples of prompts; at least 1,000 for 95 %.
    """
    level = checked_level(resampling.confidence_level)
    rng = resampling.rng
    in_order = np.arange(battles.n, dtype=np.int32)
    orders = (
        rng.permuted(np.tile(in_order, (size, 1)), axis=1)
        for size in _chunks(resampling.n_resamples, battles.n)
    )
    shuffled = _ratings(battles, orders)
    tail = 0.5 * (1.0 - level)
    values = np.median(shuffled, axis=0)
    order_low, order_high = np.quantile(shuffled, (tail, 1.0 - tail), axis=0)
    prompts, codes = np.unique(battles.prompts, return_inverse=True)
    low = high = np.full(battles.n_models, np.nan)
    notes: tuple[str, ...] = ()
    if prompts.size < MIN_PROMPTS:
        notes = (f"{prompts.size} prompts, too few for an interval",)
    else:
        drawn = _ratings(
            battles, _resampled_prompts(codes.reshape(-1), resampling.n_resamples, rng)
        )
        one, two = drawn[0::2], drawn[1::2]
        shared = ((one - one.mean(axis=0)) * (two - two.mean(axis=0))).sum(axis=0)
        variance = shared / max(len(one) - 1, 1) * prompts.size / (prompts.size - 1)
        error = np.sqrt(np.where(variance > _NO_SPREAD, variance, np.nan))
        sizes = np.bincount(codes.reshape(-1)).astype(np.float64)
        dof = float(degrees_of_freedom(sizes[:, None])[0])
        reach = student.quantile(dof, level) * error
        low, high = values - reach, values + reach
        if np.isnan(error).any():
            notes = ("no interval where the variance between prompts is estimated as 0",)
    return EloRatings(
        values,
        order_low,
        order_high,
        low,
        high,
        *_counts(battles),
        int(prompts.size),
        len(shuffled),
        level,
        METHOD,
        notes,
    )


def bootstrap_elo(battles: Battles, resampling: Resampling) -> EloRatings:
    """The published convention: median (and percentiles) over resamples of single battles.

    It takes the battles of one prompt as independent, so `low` to `high` mixes order and chance and
    is not an interval over prompts: they are nan, and the percentiles stand under `order_low`.
    `resampling` says how many resamples; 1,000 as published.
    """
    level = checked_level(resampling.confidence_level)
    n = battles.n
    chosen = (
        resampling.rng.integers(n, size=(size, n), dtype=np.int32)
        for size in _chunks(resampling.n_resamples, n)
    )
    drawn = _ratings(battles, chosen)
    tail = 0.5 * (1.0 - level)
    none = np.full(battles.n_models, np.nan)
    return EloRatings(
        np.median(drawn, axis=0),
        np.quantile(drawn, tail, axis=0),
        np.quantile(drawn, 1.0 - tail, axis=0),
        none,
        none,
        *_counts(battles),
        int(np.unique(battles.prompts).size),
        len(drawn),
        level,
        METHOD_BATTLES,
        ("no interval over prompts: single battles were resampled",),
    )


def _ratings(battles: Battles, orders: Iterator[Rows]) -> Floats:
    parts = [sequential_elo(battles, chunk) for chunk in orders]
    return np.concatenate(parts) if parts else np.full((1, battles.n_models), np.nan)


def _chunks(n_rows: int, length: int, *, multiple: int = 1) -> Iterator[int]:
    """Sizes of chunks of rows that stay in bounds."""
    most = max(multiple, _CHUNK_CELLS // max(length, 1) // multiple * multiple)
    for begin in range(0, n_rows, most):
        yield min(most, n_rows - begin)


def _resampled_prompts(codes: Ints, n_resamples: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Two orders of the battles of each resample of the prompts, in rows next to each other."""
    n_prompts, n = int(codes.max()) + 1, codes.size
    sizes = np.bincount(codes, minlength=n_prompts)
    for weights in prompt_weights(n_prompts, n_resamples, rng, row_bytes=8 * n):
        length = int((weights @ sizes).max())
        rows = np.full((2 * len(weights), length), n, dtype=np.int32)
        for i, row in enumerate(weights):
            chosen = np.repeat(np.arange(n, dtype=np.int32), row[codes].astype(np.int64))
            rows[2 * i : 2 * i + 2, : chosen.size] = chosen
        begin = 0
        for size in _chunks(len(rows), length, multiple=2):
            yield rng.permuted(rows[begin : begin + size], axis=1)
            begin += size


def _counts(battles: Battles) -> tuple[Ints, Ints, Ints]:
    m = battles.n_models
    wins = np.bincount(battles.first[battles.score > 0.5], minlength=m)
    wins += np.bincount(battles.second[battles.score < 0.5], minlength=m)
    both = np.concatenate((battles.first, battles.second))
    tied = np.tile(battles.score == 0.5, 2)
    return wins, np.bincount(both[tied], minlength=m), np.bincount(both, minlength=m)
