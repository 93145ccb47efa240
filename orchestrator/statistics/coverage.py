"""Share of the judge's probability that was on the requested labels."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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

    Args:
        coverage: Masses in [0, 1], any shape; nan is unknown.
        low: Mass under which a reading is a low one.
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
