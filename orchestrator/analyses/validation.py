"""Validation of methods: the order they give models of known skill, and its certainty.

The truth is measured (exact match with references) or stated (`order`). For each score of each
method the models are ordered by their mean; a pair is resolved where the interval of the difference
leaves out 0. What a method gets wrong is a finding to print, not a number to tune.
"""

import math
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.analyses._gold import level_means
from orchestrator.clusters import CLUSTER, codes
from orchestrator.contracts.context import answers_of
from orchestrator.plugin import (
    Analysis,
    Cell,
    Context,
    Settings,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import n_prompts, order_words
from orchestrator.ranking.scores import Score, ScoreRef, collect
from orchestrator.statistics.agreement import ORDER_METHOD, ordering
from orchestrator.statistics.resampling import Resampling

_COLUMNS: Final = table_columns(
    "score | order found | right | in resamples: percent | pairs right: count",
    "wrong: count | open: count | prompts: count",
)
_MODELS: Final = table_columns("model | exact match: percent | answers: count")


class Config(Settings):
    """Settings of `validation`."""

    order: tuple[str, ...] | None = Field(
        None,
        description="Models from best to worst. Default: the order by exact match.",
        min_length=2,
    )
    scores: tuple[ScoreRef, ...] = Field(
        (), description="Scores to validate. Default: every score of every method."
    )


class ValidationAnalysis(Analysis[Config]):
    """Test of whether methods rank models of known skill correctly, with confidence."""

    def summarise(self, context: Context) -> list[Table]:
        """One line a score, then what the true order rests on."""
        # Models with the share of answers equal to the reference, best first
        known = pl.DataFrame(schema={"model": pl.String, "share": pl.Float64, "n": pl.UInt32})
        answers = answers_of(context.frames, ("model", "exact_match"))
        if not answers.is_empty():
            known = (
                answers.filter(pl.col("exact_match").is_not_null())
                .group_by("model", maintain_order=True)
                .agg(share=pl.col("exact_match").mean(), n=pl.len())
                .sort("share", descending=True, maintain_order=True)
            )
        config = self.config
        order = config.order or tuple(known["model"].to_list())
        if len(order) < 2:
            raise UsageError(
                f"{context.name}: the true order is unknown because no answer has a reference; "
                "set 'order'"
            )
        lines = [_line(score, order, context) for score in collect(context, config.scores)]
        truth = make_table("validation.truth", "What is known", _MODELS, known.rows())
        stated = " > ".join(order)
        return [
            make_table(
                "validation.order",
                "Methods and the true order of models",
                _COLUMNS,
                lines,
                basis=f"true order: {stated}",
                notes=[
                    f"pairs: {ORDER_METHOD}, {context.confidence_level:.0%} for all pairs of a "
                    "score",
                    f"in resamples: share of {context.n_resamples:,} resamples of the prompts with "
                    f"exactly the true order",
                ],
            ),
            *([truth] if len(known) else []),
        ]


def _line(score: Score, order: tuple[str, ...], context: Context) -> list[Cell]:
    points = score.points.drop_nulls("value").filter(pl.col("model").is_in(order))
    prompts = codes(points[CLUSTER]) if len(points) else np.zeros(0, np.int64)
    cells = prompts * len(order) + points["model"].cast(pl.Enum(order)).to_physical().to_numpy()
    shape = (int(prompts.max()) + 1 if prompts.size else 0, len(order))
    values = score.orientation * points["value"].to_numpy()
    found = ordering(
        np.bincount(cells, values, minlength=math.prod(shape)).astype(np.float64).reshape(shape),
        np.bincount(cells, minlength=math.prod(shape)).astype(np.float64).reshape(shape),
        range(len(order)),
        Resampling(context.n_resamples, context.rng(), context.confidence_level),
    )
    known = np.isfinite(found.means)
    names = [name for name, there in zip(order, known, strict=True) if there]
    written = order_words(level_means(found.means[known], points["value"]), names)
    right = "yes" if written == " > ".join(order) else "no"
    return [
        score.name,
        written,
        right if known.all() else "undefined",
        found.share_right,
        found.count("right"),
        found.count("wrong"),
        found.count("open"),
        n_prompts(points),
    ]
