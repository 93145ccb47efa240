"""How much the order of presentation decides a pairwise judgment."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.clustered import clustered_share
from orchestrator.statistics.results import Estimate, Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIE: Final = 1e-9
"""Distance from one half up to which a preference decides for neither."""


@dataclass(frozen=True, slots=True)
class PositionEffects:
    """Effects of the order over judgments in both orders; shares add up to 1.

    Attributes:
        bias: Mean preference for the answer presented first, minus one half; in [-0.5, 0.5].
        flip_rate: Share of judgments whose winner is the other one in the other order.
        half_flip_rate: Share in which one order decides and the other is a tie.
        consistency: Share with the same decision (A, B or tie) in both orders.
    """

    bias: Estimate
    flip_rate: Estimate
    half_flip_rate: Estimate
    consistency: Estimate


def position_effects(
    prompts: Ints, prefer_ab: Floats, prefer_ba: Floats, n_prompts: int, confidence_level: float
) -> PositionEffects:
    """Position bias and flips with intervals over prompts.

    Args:
        prompts: Shape (n,), prompt of each judgment, in [0, n_prompts).
        prefer_ab: Shape (n,), P(A better) with A presented first, a tie as half.
        prefer_ba: Shape (n,), P(A better) with B presented first.
        n_prompts: Prompts.
        confidence_level: In (0, 1).
    """
    counts = np.bincount(prompts, minlength=n_prompts).astype(np.float64)

    def share(values: Floats) -> Estimate:
        sums = np.bincount(prompts, values, minlength=n_prompts).astype(np.float64)
        return clustered_share(sums, counts, confidence_level)

    one, two = _decisions(prefer_ab), _decisions(prefer_ba)
    return PositionEffects(
        bias=_shifted(share(0.5 * (prefer_ab + 1.0 - prefer_ba)), -0.5),
        flip_rate=share((one * two < 0).astype(np.float64)),
        half_flip_rate=share(((one != two) & (one * two == 0)).astype(np.float64)),
        consistency=share((one == two).astype(np.float64)),
    )


def _decisions(preference: Floats) -> Floats:
    gap = preference - 0.5
    result: Floats = np.where(np.abs(gap) <= TIE, 0.0, np.sign(gap))
    return result


def _shifted(estimate: Estimate, shift: float) -> Estimate:
    interval = estimate.interval
    if interval is not None:
        low, high = interval.low + shift, interval.high + shift
        interval = Interval(low, high, interval.confidence_level)
    return Estimate(
        estimate.value + shift, interval, estimate.n, estimate.method, estimate.undefined
    )
