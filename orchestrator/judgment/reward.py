"""Rewards: one number of a reward model's outputs, and the preference between two of them.

The preference is the model of Bradley and Terry with which reward models are trained:
P(A better) = sigma((r_A - r_B) / T). Sources: Bradley and Terry 1952; Ouyang et al. 2022
(arXiv 2203.02155), equation 1. Aggregating the places of a process reward model by the least or by
the product is Lightman et al. 2023 (arXiv 2305.20050), section 2.6 and appendix F.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.records import Floats

Places = Literal["last", "mean", "min", "product"]


def reward_of(
    values: NDArray[np.floating],
    *,
    by_place: bool,
    output: int | None = None,
    weights: Sequence[float] | None = None,
    places: Places | None = None,
) -> float:
    """Return the one number that stands for a reward model's outputs.

    At each place it is the only output, the one numbered `output`, or the sum of all times
    `weights`; over several places it is the last, the mean, the least, or with "product" the sum of
    ln sigma(x): the log-probability that every step is right. `values` have shape (P, K): K outputs
    at P places, P = 1 for a model that does not rate places (`by_place`). `output` counts from 0,
    `weights` have shape (K,).

    Raises:
        ValueError: If the settings don't fit the shape; the text says which shape came and what to
            set.
    """
    n_places, n_outputs = values.shape
    shape = f"{n_outputs} outputs" if n_outputs != 1 else "1 output"
    if by_place:
        shape += f" at each of {n_places} places"
    wide = values.astype(np.float64)
    if weights is not None:
        if len(weights) != n_outputs:
            raise ValueError(f"the reward model gave {shape}, and 'weights' has {len(weights)}")
        rated: Floats = wide @ np.array(weights, dtype=np.float64)
    elif output is not None or n_outputs == 1:
        if (output or 0) >= n_outputs:
            raise ValueError(f"the reward model gave {shape}, and 'output' is {output}, from 0 on")
        rated = wide[:, output or 0]
    else:
        raise ValueError(
            f"the reward model gave {shape}: set 'output' to one of 0 to {n_outputs - 1}, or "
            f"'weights' to {n_outputs} numbers"
        )
    if not by_place:
        if places is not None:
            raise ValueError(
                f"the reward model gave {shape} for the whole conversation, and 'places' is for a "
                "model that rates places; omit it"
            )
        return float(rated[0])
    if places is None:
        raise ValueError(
            f"the reward model gave {shape} (tokens or steps): set 'places' to last, mean, min or "
            "product"
        )
    return _over_places(rated, places)


def _over_places(rated: Floats, places: Places) -> float:
    match places:
        case "last":
            return float(rated[-1])
        case "mean":
            return float(rated.mean())
        case "min":
            return float(rated.min())
        case "product":
            return float(-np.logaddexp(0.0, -rated).sum())


def preference(reward_a: float, reward_b: float, temperature: float = 1.0) -> float:
    """Return P(A better), in [0, 1]: sigma((r_A - r_B) / T).

    Rewards are finite; T, the temperature, is above 0.
    """
    gap = (reward_a - reward_b) / temperature
    if gap >= 0:
        return 1.0 / (1.0 + math.exp(-gap))
    odds = math.exp(gap)
    return odds / (1.0 + odds)
