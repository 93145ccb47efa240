"""Share of the judge's probability that was on the requested labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LOW: Final = 0.5
"""Mass under which a judgment is unreliable."""

MOSTLY: Final = 0.5
"""Share of unreliable readings from which on a judge is not to be trusted."""

_TINY: Final = 5e-4


@dataclass(frozen=True, slots=True)
class CoverageSummary:
    """Label mass over n readings; nan where there are none.

    Attributes:
        mean: Mean mass on the labels, in [0, 1].
        percentile_5: 5th percentile.
        share_low: Share of readings with a mass below one half.
        n: Readings with a known mass (each order of a pair is one).
        n_unknown: Readings whose mass is not known.
    """

    mean: float
    percentile_5: float
    share_low: float
    n: int
    n_unknown: int


def summarise_coverage(coverage: Floats) -> CoverageSummary:
    """Summary of label masses, any shape; nan is unknown."""
    values = coverage.reshape(-1)
    known = values[~np.isnan(values)]
    n_unknown = int(values.size - known.size)
    if not known.size:
        return CoverageSummary(np.nan, np.nan, np.nan, 0, n_unknown)
    return CoverageSummary(
        float(known.mean()),
        float(np.quantile(known, 0.05)),
        float((known < LOW).mean()),
        int(known.size),
        n_unknown,
    )


def is_untrusted(n_low: int, n: int) -> bool:
    """Return True if at least half of n readings, `n_low` of them, have little label mass."""
    return n > 0 and n_low >= MOSTLY * n


def distrust(masses: Mapping[str, Floats]) -> str:
    """Return a warning about judges that do not answer in the form asked; empty for none.

    Args:
        masses: Label masses of each judge's readings, any shape; nan is unknown.
    """
    found = {judge: summarise_coverage(mass) for judge, mass in masses.items()}
    bad = {
        judge: one
        for judge, one in found.items()
        if is_untrusted(round(one.share_low * one.n) if one.n else 0, one.n)
    }
    if not bad:
        return ""
    each = []
    for judge, one in bad.items():
        mean = f"{one.mean:.2f}" if one.mean >= 100 * _TINY else f"{one.mean:.0e}"
        each.append(
            f"{judge} does not answer in the form asked (in {100 * one.share_low:.0f} % of its "
            f"readings under half of its probability is on the labels, mean {mean})"
        )
    said = "; ".join(each)
    return f"Not to be trusted: {said}. Scores, win rates, ratings and orders by it mean nothing."
