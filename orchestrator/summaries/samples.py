"""Samples: how much the mean log-probability of answers to one question varies, and its curve."""

import numpy as np
import polars as pl

from orchestrator.clusters import OVER, codes
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    Measured,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import (
    METHODS,
    basis_of,
    comparisons,
    good_rows,
    groups,
    mean_of,
    numbered,
    share_of,
    without_n,
)

_PERCENTILES = (0, 10, 25, 50, 75, 90, 100)
_MODELS = table_columns(
    "model | mean ell: signed | variance: number | distinct: percent",
    "exact match: percent | samples: count | no ell: count",
)
_CURVES = (Column("model"), *(Column(f"{at} %", "number") for at in _PERCENTILES))

_READS = ("item", "model", "turn", "ell", "exact_match", "status")


class SamplesSummary(Summary[MethodSettings]):
    """Variation of the mean log-probability of answers to one question, and its curve."""

    reads_alone = True
    reads = ("status",)

    def summarise(self, context: Context) -> list[Table]:
        """One line a model: level, variance within a question, repeated texts; then the curves."""
        if context.rows.is_empty():
            return []
        # Different texts to a question are told apart by their hashes.
        rows = numbered(context, _READS, text=pl.col("text").hash())
        good, level = good_rows(rows), context.confidence_level
        lines: list[list[Cell]] = []
        curves: list[list[Cell]] = []
        for (model,), group in groups(good, "model"):
            of_question = group.group_by("item", *OVER, maintain_order=True).agg(
                variance=pl.col("ell").drop_nulls().var(ddof=1)
            )
            right = None
            if group["exact_match"].count():
                right = share_of(group, pl.col("exact_match"), level).value
            lines.append(
                [
                    str(model),
                    without_n(mean_of(group, pl.col("ell"), level)),
                    without_n(mean_of(of_question, pl.col("variance"), level)),
                    group.select("item", "text").n_unique() / len(group),
                    right,
                    len(group),
                    group["ell"].null_count(),
                ]
            )
            curves.append([str(model), *_curve(group)])
        notes = [
            "ell: mean log-probability per token, in nats; variance: of ell within a question, "
            "mean over questions; expected to be smaller for better models",
            "distinct: share of samples whose text had not occurred before",
            METHODS,
        ]
        return [
            make_table(
                "samples",
                "Samples",
                _MODELS,
                lines,
                basis=basis_of(rows),
                notes=notes,
                comparisons=comparisons(good, pl.col("ell"), level),
            ),
            make_table(
                "samples.curve",
                "Curve of ell",
                _CURVES,
                curves,
                notes=[
                    "ell at each percentile of a question's samples (0 %: the least likely), mean "
                    "over questions; a flat curve is a small variance"
                ],
            ),
        ]


def _curve(rows: pl.DataFrame) -> list[Cell]:
    """Return percentiles of the samples of a question, mean over questions."""
    known = rows.select("item", "ell").drop_nulls("ell").sort("item", "ell")
    if known.is_empty():
        return [Measured(None, why="no ell")] * len(_PERCENTILES)
    values, counts = known["ell"].to_numpy(), np.bincount(codes(known["item"]))
    first = np.cumsum(counts) - counts
    found: list[Cell] = []
    for percentile in _PERCENTILES:
        place = percentile / 100.0 * (counts - 1)
        low = place.astype(np.int64)
        below, above = values[first + low], values[first + np.minimum(low + 1, counts - 1)]
        found.append(float((below + (above - below) * (place - low)).mean()))
    return found
