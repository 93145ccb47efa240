"""Tables of statistics: one number a model, of a column of a method's rows."""

from typing import Final

import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.contracts.context import Context
from orchestrator.contracts.summary import Statistic
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.scores import score, source_of
from orchestrator.statistics.resampling import METHOD, Resampling, bootstrapped
from orchestrator.tables import Cell, Column, Table, make_table, measured

_DIGITS: Final = 3


class Estimates:
    """The table of one statistic."""

    def __init__(self, statistic: Statistic) -> None:
        self._statistic = statistic

    def summarise(self, context: Context) -> list[Table]:
        """Return one line for each model of the method.

        Raises:
            UsageError: If there is no such method, or no such column of numbers in its rows.
        """
        config = self._statistic.config
        source = source_of(context, config.method)
        points = score(context, source, config.column).points
        lines: list[list[Cell]] = []
        for (model,), rows in points.group_by("model", maintain_order=True):
            known = rows.drop_nulls("value")
            found = bootstrapped(
                known["value"].to_numpy().astype(np.float64),
                codes(known[CLUSTER]) if len(known) else np.zeros(0, np.int64),
                self._statistic.of,
                Resampling(context.n_resamples, context.rng(), context.confidence_level),
            )
            missing = len(rows) - len(known)
            lines.append([str(model), without_n(measured(found)), len(known), missing])
        columns = (
            Column("model"),
            Column(self._statistic.title, "number", _DIGITS),
            Column("rows", "count"),
            Column("missing", "count"),
        )
        title = f"{config.method}.{config.column}: {self._statistic.title}"
        basis = prompt_words(points.filter(pl.col("value").is_not_null()))
        notes = [f"interval: {METHOD}; missing: failed rows, and rows without a value"]
        return [make_table(context.name, title, columns, lines, basis=basis, notes=notes)]
