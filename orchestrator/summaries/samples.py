"""Samples: how much the mean log-probability of answers to one question varies, and its curve."""

import numpy as np
import polars as pl

from orchestrator.clusters import OVER
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
from orchestrator.ranking.cells import METHODS, basis_of, comparisons, mean_of, share_of, without_n

_PERCENTILES = (0, 10, 25, 50, 75, 90, 100)
_MODELS = table_columns(
    "model | mean ell: signed | variance: number | distinct: percent",
    "exact match: percent | samples: count | no ell: count",
)
_CURVES = (Column("model"), *(Column(f"{at} %", "number") for at in _PERCENTILES))


class SamplesSummary(Summary[MethodSettings]):
    """Variation of the mean log-probability of answers to one question, and its curve."""

    reads_alone = True
    reads = (
        "item", "category", "model", "turn", "ell", "exact_match", "status", "cause",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """One line a model: level, variance within a question, repeated texts; then the curves."""
        rows = context.rows
        if rows.is_empty():
            return []
        good, level = rows.filter(pl.col("status") == "ok"), context.confidence_level
        # Different texts to a question, by their hashes.
        parts = [
            part.filter(pl.col("status") == "ok").select("model", "item", pl.col("text").hash())
            for part in context.slices_of(context.sources[0], ("model", "item", "text", "status"))
        ]
        counts = pl.concat(parts).unique().group_by("model").len() if parts else pl.DataFrame()
        distinct = dict(counts.iter_rows())
        lines: list[list[Cell]] = []
        curves: list[list[Cell]] = []
        for (model,), group in good.group_by("model", maintain_order=True):
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
                    distinct[model] / len(group),
                    right,
                    len(group),
                    group["ell"].null_count(),
                ]
            )
            of_questions = [
                np.percentile(values.to_numpy(), _PERCENTILES)
                for (_,), part in group.group_by("item", maintain_order=True)
                if len(values := part["ell"].drop_nulls())
            ]
            curve: list[Cell] = [Measured(None, why="no ell")] * len(_PERCENTILES)
            if of_questions:
                curve = [float(value) for value in np.mean(of_questions, axis=0)]
            curves.append([str(model), *curve])
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
