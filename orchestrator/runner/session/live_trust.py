"""Trust in the judges of a run while it runs, by the rule of the reports on the judgments so far.

Apart from `live_ranking`, which a run needs before its first request: this computes with frames.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from orchestrator.columns import PairColumns
from orchestrator.ranking.trust import Tally
from orchestrator.records import Row
from orchestrator.statistics.trust import Ground, Thresholds

_LEVELS: Final = pl.List(pl.Float64())
_COLUMNS: Final[dict[str, pl.DataType]] = {
    "status": pl.String(),
    "parsed": pl.Boolean(),
    "same_text": pl.Boolean(),
    "winner_ab": pl.String(),
    "winner_ba": pl.String(),
    "p_ab": _LEVELS,
    "p_ba": _LEVELS,
    "prefer_a_ab": pl.Float64(),
    "prefer_a_ba": pl.Float64(),
    "coverage_ab": pl.Float64(),
    "coverage_ba": pl.Float64(),
}
"""Columns that the rule on judges reads, besides the judge."""


class LiveTrust:
    """Judges of one method."""

    def __init__(self, pairs: PairColumns, n_clusters: int, thresholds: Thresholds) -> None:
        columns = {"status": "status", **pairs.columns()}
        self._columns = {name: columns[name] for name in _COLUMNS if name in columns}
        self._n_clusters = n_clusters
        self._thresholds = thresholds
        self._tallies: dict[str, Tally] = {}

    def add(self, judge: str, rows: Sequence[tuple[int, Row]]) -> None:
        """Count rows of a judge, each with the number of its cluster of prompts."""
        series: list[pl.Series] = [pl.Series("judge", [judge] * len(rows), pl.String())]
        series += [
            _column(name, [row.get(column) for _, row in rows])
            for name, column in self._columns.items()
        ]
        tally = self._tallies.get(judge)
        if tally is None:
            tally = self._tallies[judge] = Tally(self._n_clusters, self._thresholds)
        tally.add(pl.DataFrame(series), np.array([cluster for cluster, _ in rows], np.int64))

    def grounds(self, confidence_level: float) -> Mapping[str, tuple[Ground, ...]]:
        """Return the findings against each judge; none against one that may be trusted yet."""
        return {judge: tally.grounds(confidence_level) for judge, tally in self._tallies.items()}


def _column(name: str, values: Sequence[object]) -> pl.Series:
    dtype = _COLUMNS[name]
    widths = {len(value) if isinstance(value, list) else -1 for value in values}
    if dtype == _LEVELS and len(widths) == 1 and min(widths) > 0:
        # Lists of one length, as they are save where a unit failed, are read at once.
        return pl.Series(name, np.array(values, np.float64)).arr.to_list()
    return pl.Series(name, values, dtype)
