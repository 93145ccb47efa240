"""Quality of judgments: probability on the requested labels, effect of the order shown."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.means import clustered_share
from orchestrator.statistics.results import Estimate, Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOW: Final = 0.5
"""Mass under which a judgment is unreliable."""


@dataclass(frozen=True, slots=True)
class CoverageSummary:
    """Label mass over n readings; nan where there are none.

    Attributes:
        mean: Mean mass on the labels, in [0, 1].
        percentile_5: 5th percentile.
        share_low: Share of readings with a mass below the threshold, one half by default.
        n: Readings with a known mass (each order of a pair is one).
        n_unknown: Readings whose mass is not known.
    """

    mean: float
    percentile_5: float
    share_low: float
    n: int
    n_unknown: int


def summarise_coverage(coverage: Floats, low: float = LOW) -> CoverageSummary:
    """Summary of label masses.

    Masses are in [0, 1], of any shape, nan unknown; one under `low` is a low reading.
    """
    values = coverage.reshape(-1)
    known = values[~np.isnan(values)]
    n_unknown = int(values.size - known.size)
    if not known.size:
        return CoverageSummary(np.nan, np.nan, np.nan, 0, n_unknown)
    return CoverageSummary(
        float(known.mean()),
        float(np.quantile(known, 0.05)),
        float((known < low).mean()),
        int(known.size),
        n_unknown,
    )


TIE: Final = 1e-9
"""Distance from one half up to which a preference decides for neither."""


@dataclass(frozen=True, slots=True)
class PositionEffects:
    """Effects of the order over judgments in both orders; the three shares add up to 1.

    Attributes:
        bias: Mean preference for the answer presented first, minus one half; in [-0.5, 0.5].
        flip_rate: Share of judgments whose winner is the other one in the other order. This and
            the next two are over pairs of answers that differ: equal answers have no winner that
            could flip.
        half_flip_rate: Share in which one order decides and the other is a tie.
        consistency: Share with the same decision (A, B or tie) in both orders.
    """

    bias: Estimate
    flip_rate: Estimate
    half_flip_rate: Estimate
    consistency: Estimate


@dataclass(frozen=True, slots=True)
class Orders:
    """Judgments made in both orders: arrays of shape (n,).

    Attributes:
        prompts: Prompt of each judgment, in [0, n_prompts).
        prefer_ab: P(A better) with A presented first, a tie as half.
        prefer_ba: P(A better) with B presented first.
        decision_ab: 1 for A, -1 for B, 0 for a tie, with A presented first; see `decisions`.
        decision_ba: The same with B presented first.
        differ: Whether the two answers differ.
    """

    prompts: Ints
    prefer_ab: Floats
    prefer_ba: Floats
    decision_ab: Floats
    decision_ba: Floats
    differ: NDArray[np.bool_]


def decisions(better: Floats, tie: Floats, worse: Floats) -> Floats:
    """The likeliest of three verdicts: 1, 0 or -1; a draw between better and worse is a tie.

    Not the sign of the mean preference: where a judge is sure of a tie, that sign is noise.
    """
    result: Floats = np.where(
        (better > worse + TIE) & (better > tie),
        1.0,
        np.where((worse > better + TIE) & (worse > tie), -1.0, 0.0),
    )
    return result


def position_effects(orders: Orders, n_prompts: int, confidence_level: float) -> PositionEffects:
    """Position bias and flips with intervals over prompts."""

    def share(values: Floats, chosen: NDArray[np.bool_]) -> Estimate:
        prompts = orders.prompts[chosen]
        counts = np.bincount(prompts, minlength=n_prompts).astype(np.float64)
        sums = np.bincount(prompts, values[chosen], minlength=n_prompts).astype(np.float64)
        return clustered_share(sums, counts, confidence_level)

    one, two, differ = orders.decision_ab, orders.decision_ba, orders.differ
    first = share(0.5 * (orders.prefer_ab + 1.0 - orders.prefer_ba), np.ones_like(differ))
    interval = first.interval
    if interval is not None:
        low, high = interval.low - 0.5, interval.high - 0.5
        interval = Interval(low, high, interval.confidence_level)
    return PositionEffects(
        bias=replace(first, value=first.value - 0.5, interval=interval),
        flip_rate=share((one * two < 0).astype(np.float64), differ),
        half_flip_rate=share(((one != two) & (one * two == 0)).astype(np.float64), differ),
        consistency=share((one == two).astype(np.float64), differ),
    )
