"""Random choice of the rows that people label, uniform or with known unequal probabilities."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNIFORM_PART: Final = 0.5
"""Share of labels that are spread uniformly, whatever the judge says of itself.

A judge that is sure and wrong is seen only by labels of what it is sure of.
"""


def inclusion_probabilities(uncertainty: Floats, n_labels: int) -> Floats:
    """Probability in (0, 1] of each row to be labelled, shape (n,), sum `n_labels`.

    Half of the labels are uniform, half proportional to the uncertainty: the choice that is best
    for the mean is proportional to the root of the expected squared error of the score, since all
    rows have the same influence on it (Zrnic and Candes 2024, Active Statistical Inference,
    arXiv:2403.03208, who mix it with a uniform rule too).

    Args:
        uncertainty: Shape (n,), not negative: expected size of the error of each score.
        n_labels: From 1 to n.

    Raises:
        StatisticsError: If there are not so many rows, or an uncertainty is negative or nan.
    """
    n = uncertainty.size
    if not 1 <= n_labels <= n:
        raise StatisticsError(f"cannot choose {n_labels} of {n} rows")
    if not (np.isfinite(uncertainty).all() and (uncertainty >= 0.0).all()):
        raise StatisticsError("uncertainties must be finite and not negative")
    total = uncertainty.sum()
    by_doubt = uncertainty / total if total > 0.0 else np.full(n, 1.0 / n)
    weights = UNIFORM_PART / n + (1.0 - UNIFORM_PART) * by_doubt
    found = np.zeros(n)
    certain = np.zeros(n, dtype=np.bool_)
    while True:
        left = n_labels - int(certain.sum())
        if left > 0 and not certain.all():
            found = np.where(certain, 1.0, weights * left / weights[~certain].sum())
        else:
            found = np.where(certain, 1.0, 0.0)
        # What would have to be chosen more than once is chosen for certain, and the rest shared.
        over = ~certain & (found >= 1.0)
        if not over.any():
            return np.minimum(found, 1.0)
        certain |= over


def systematic_sample(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """Choose rows with the given probabilities, as many as they add up to, in random order.

    Systematic sampling of the rows in random order (Madow 1949): each
    row is chosen with exactly its probability.

    Args:
        probabilities: Shape (n,), in [0, 1].
        rng: Source of the order and of the start.

    Returns:
        Indices of the rows, shape (m,), m the sum of the probabilities up to rounding.
    """
    order = rng.permutation(probabilities.size)
    ends = np.cumsum(probabilities[order])
    # Rounding must not make or lose a row.
    total = round(float(ends[-1])) if ends.size else 0
    ends = ends * (total / ends[-1]) if total else ends
    places = np.searchsorted(ends, rng.random() + np.arange(total), side="right")
    chosen = order[np.minimum(places, probabilities.size - 1)]
    result: Ints = rng.permutation(chosen).astype(np.int64)
    return result
