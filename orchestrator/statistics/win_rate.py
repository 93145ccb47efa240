"""Win rates of every model against every other, and against all, with intervals over prompts."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.clustered import Shares, clustered_shares
from orchestrator.statistics.prompt_sums import PromptSums

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WinRates:
    """Mean preference for the row's model over the column's; arrays of shape (M, M).

    Attributes:
        values: In [0, 1], ties as half; nan on the diagonal and where two were never compared.
        low: nan where there is no interval (see `statistics.clustered`).
        high: Likewise.
        n_judgments: Comparisons; 0 on the diagonal.
        n_prompts: Prompts that they come from.
    """

    values: Floats
    low: Floats
    high: Floats
    n_judgments: Ints
    n_prompts: Ints


def win_rates(sums: PromptSums, confidence_level: float) -> WinRates:
    """Win rates of M models against each other."""
    parts = [clustered_shares(*block, confidence_level) for block in sums.dense_blocks()]
    if parts:
        columns = (field.name for field in fields(Shares))
        joined = {name: np.concatenate([getattr(one, name) for one in parts]) for name in columns}
        shares = Shares(**joined)
    else:
        shares = clustered_shares(*sums.dense(), confidence_level)
    n_judgments = np.rint(shares.n_judgments).astype(np.int64)
    return WinRates(
        _mirrored(sums, shares.values, 1.0 - shares.values, np.nan),
        _mirrored(sums, shares.low, 1.0 - shares.high, np.nan),
        _mirrored(sums, shares.high, 1.0 - shares.low, np.nan),
        _mirrored(sums, n_judgments, n_judgments, 0.0).astype(np.int64),
        _mirrored(sums, shares.n_prompts, shares.n_prompts, 0.0).astype(np.int64),
    )


def mean_preferences(sums: PromptSums, confidence_level: float) -> Shares:
    """Each model's mean preference over all its comparisons, arrays of shape (M,).

    It depends on whom a model was compared with; ratings do not, where the model holds.
    """
    wins = sums.by_model(sums.wins, sums.counts - sums.wins)
    return clustered_shares(wins, sums.model_counts, confidence_level)


def _mirrored(
    sums: PromptSums, upper: NDArray[np.generic], lower: NDArray[np.generic], fill: float
) -> Floats:
    result = np.full((sums.n_models, sums.n_models), fill)
    result[sums.first, sums.second] = upper
    result[sums.second, sums.first] = lower
    return result
