"""Judges that do not answer in the form asked, found from the rows of a method."""

import numpy as np
import polars as pl

from orchestrator.statistics.coverage import distrust

_MASSES = ("coverage", "coverage_ab", "coverage_ba")


def distrusted(rows: pl.DataFrame) -> dict[str, str]:
    """Return a warning for each judge, empty where it can be trusted.

    Args:
        rows: Of one method; those without a judge, or without label masses, give no warning.
    """
    # A method from outside may mean something else by the name.
    masses = [name for name in _MASSES if name in rows.columns and rows[name].dtype.is_numeric()]
    if not masses or "judge" not in rows.columns:
        return {}
    found = {}
    for (judge,), own in rows.group_by("judge", maintain_order=True):
        read = own.select(pl.col(masses).cast(pl.Float64)).to_numpy().astype(np.float64)
        found[str(judge)] = distrust({str(judge): read})
    return found
