"""Sequential Elo as peer evaluation publishes it: seeded, many orders at once.

An Elo rating depends on the order of the battles, which is nothing but chance. The published
convention is the median over resamples of single battles. Bradley-Terry (`ratings.rate`) has no
order, and intervals over prompts.

Source: LLM-self-eval (oceanypt) and FastChat's `compute_elo`; Elo 1978.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.resampling import Resampling
from orchestrator.statistics.results import checked_level

Rows = NDArray[np.int32]

K_FACTOR: Final = 4.0
SCALE: Final = 400.0
BASE: Final = 10.0
INITIAL: Final = 1000.0

_CHUNK_CELLS: Final = 2**24
_STEPS: Final = 256


def sequential_elo(battles: Pairs, scores: Floats, orders: Rows) -> Floats:
    """Ratings after the battles in each of R orders, shape (R, M).

    r_first += K (s - e), r_second -= K (s - e), e = 1 / (1 + 10^((r_second - r_first) / 400)), with
    K = 4 and all ratings 1000 at first. All orders advance together, a battle at a time.

    Args:
        battles: n of them, between two models each.
        scores: Shape (n,): 1 where the first wins, 0 where the second does, 0.5 for a tie. A battle
            without a result is left out and counted by the caller, never a tie.
        orders: Indices of battles, which may repeat, shape (R, L).

    Raises:
        StatisticsError: If the shapes differ, a model meets itself, or a score is not in [0, 1].
    """
    shapes = {one.shape for one in (battles.prompts, battles.first, battles.second, scores)}
    if len(shapes) != 1 or scores.ndim != 1:
        raise StatisticsError(f"battles need columns of one shape (n,), got {shapes}")
    if not np.all((scores >= 0.0) & (scores <= 1.0)):
        raise StatisticsError("scores must be in [0, 1]; drop battles without a result")
    if np.any(battles.first == battles.second):
        raise StatisticsError("a model is compared with itself")
    n_orders, length = orders.shape
    ratings = np.full(n_orders * battles.n_models, INITIAL)
    rows = np.arange(n_orders) * battles.n_models
    slope = math.log(BASE) / SCALE
    for begin in range(0, length, _STEPS):
        battle = np.ascontiguousarray(orders[:, begin : begin + _STEPS].T)
        one, two = battles.first[battle] + rows, battles.second[battle] + rows
        for a, b, s in zip(one, two, scores[battle], strict=True):
            r_a, r_b = ratings[a], ratings[b]
            moved = K_FACTOR * (s - 1.0 / (1.0 + np.exp(slope * (r_b - r_a))))
            ratings[a] = r_a + moved
            ratings[b] = r_b - moved
    return ratings.reshape(n_orders, battles.n_models)


def bootstrap_elo(
    battles: Pairs, scores: Floats, resampling: Resampling
) -> tuple[Floats, Floats, Floats]:
    """The published convention: median and percentiles over resamples of single battles.

    It takes the battles of one prompt as independent, so the percentiles, at the confidence level,
    mix order and chance and are no interval over prompts. `resampling` says how many resamples;
    1,000 as published. Returns the medians, lower and upper percentiles, shape (M,) each; of a
    model without battles the initial rating.
    """
    level = checked_level(resampling.confidence_level)
    n, n_resamples = scores.size, resampling.n_resamples
    most = max(1, _CHUNK_CELLS // max(n, 1))
    sizes = [min(most, n_resamples - begin) for begin in range(0, n_resamples, most)]
    chosen = (resampling.rng.integers(n, size=(size, n), dtype=np.int32) for size in sizes)
    drawn = np.concatenate([sequential_elo(battles, scores, one) for one in chosen])
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(drawn, (tail, 1.0 - tail), axis=0)
    return np.median(drawn, axis=0), low, high
