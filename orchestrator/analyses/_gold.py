"""Gold of an analysis, and the scores of models that are held against it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl
from pydantic import Field, model_validator

from orchestrator.clusters import OVER
from orchestrator.contracts.context import answers_of
from orchestrator.contracts.settings import GivenFile
from orchestrator.frames import columns_of
from orchestrator.methods import probdiff
from orchestrator.numbers import finite
from orchestrator.plugin import Cell, Context, Measured, Settings, Source, UsageError
from orchestrator.ranking.cells import mean_of, order_words, share_of
from orchestrator.ranking.human_labels import read_labels
from orchestrator.ranking.scores import KEYS, Score, ScoreRef, score, source_of
from orchestrator.records import Floats
from orchestrator.statistics.agreement import ranking_agreement
from orchestrator.statistics.correlation import Comparison, holm_adjusted
from orchestrator.statistics.means import levelled
from orchestrator.statistics.resampling import Resampling
from orchestrator.tables import measured

_READ: Final = ("item", "category", "turn", "model", "status", "d")


def evaluators(
    context: Context, wanted: Sequence[ScoreRef], *, with_confidence: bool = True
) -> list[Score]:
    """Return the scores that are asked for; every score of every method where none is.

    With `with_confidence`, all scores of ProbDiff have its confidence among them: 1 where d
    reaches the main threshold.

    Raises:
        UsageError: If there is no such method or column.
    """
    refs = wanted or [ScoreRef(method=source.name, column=None) for source in context.sources]
    found = []
    for ref in refs:
        source = source_of(context, ref.method)
        columns = [ref.column] if ref.column is not None else list(source.scores)
        if with_confidence and ref.column is None:
            columns += source.method.derived
        found += [_score(context, source, column) for column in columns]
    return found


def _score(context: Context, source: Source, column: str) -> Score:
    if column not in source.method.derived or not isinstance(source.method, probdiff.Kind):
        return score(context, source, column)
    rows = context.rows_of(source, _READ)
    # A text without d fails, as published; a failed request is missing.
    passed = (pl.col("d") >= source.method.config.deltas[0]).fill_null(value=False)
    points = rows.filter(pl.col("status") == "ok").select(
        "item",
        *OVER,
        "category",
        "turn",
        "model",
        opponent=pl.lit(None, pl.String),
        judge=pl.lit(None, pl.String),
        value=passed.cast(pl.Float64),
    )
    return Score(f"{source.name}.{column}", 1, points, is_pairwise=False)


def mean_cell(points: pl.DataFrame, confidence_level: float) -> Measured:
    """Return the mean of points, with the interval of a share where they are in [0, 1]."""
    known = points["value"].drop_nulls()
    if len(known) and known.is_between(0.0, 1.0).all():
        return share_of(points, pl.col("value"), confidence_level)
    return mean_of(points, pl.col("value"), confidence_level)


def level_means(means: Floats, values: pl.Series) -> Floats:
    """Return the means of some values, nan for none; equal where they differ by rounding alone."""
    size = values.drop_nulls().abs().mean()
    return levelled(means, float(size) if isinstance(size, float) else 0.0)


def agreement_cells(
    values: Floats, gold: Floats, models: Sequence[str], resampling: Resampling
) -> tuple[Cell, ...]:
    """Return the order of models by values; its tau-b with that by gold, p, rho; and their number.

    More is better; values and gold have shape (M,), nan for none.
    """
    found = ranking_agreement(values, gold, resampling)
    tau = Measured(found.tau_b, why=(found.undefined or "") if found.tau_b is None else "")
    return order_words(values, models), tau, found.tau_p, found.spearman, found.n_models


Compared = tuple[str, str, str, Comparison]
"""What is compared, in three words for a table, and how it comes out."""


def compared_lines(found: Sequence[Compared]) -> list[list[Cell]]:
    """Return a line a comparison: its words, difference, p-value, and Holm's over all of them."""
    adjusted = holm_adjusted([comparison for *_, comparison in found])
    return [
        [*words, measured(comparison), finite(comparison.p_value), p]
        for (*words, comparison), p in zip(found, adjusted, strict=True)
    ]


class Gold(Settings):
    """The standard that scores are compared with; exactly one way is named."""

    method: str | None = Field(None, description="A method of this recipe, e.g. a judge.")
    column: str | None = Field(None, description="With `method`: the column of its rows.")
    exact_match: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="Exact match of the answer with the reference.",
    )
    field: str | None = Field(
        None, description="Column of the dataset with a number for each item."
    )

    labels: GivenFile | None = Field(
        None,
        description="A file of labels, relative to the recipe: item, mostly model, label (a "
        "number), and annotator; several labels of one answer are averaged.",
    )

    @model_validator(mode="after")
    def _fits(self) -> "Gold":
        given = [
            self.method is not None,
            self.exact_match,
            self.field is not None,
            self.labels is not None,
        ]
        if sum(given) != 1 or (self.column is not None) != (self.method is not None):
            raise ValueError(
                "give one of 'method' with 'column', 'exact_match: true', 'field', 'labels'"
            )
        return self

    @property
    def words(self) -> str:
        """Name of the standard, for headings."""
        if self.method is not None:
            return f"{self.method}.{self.column}"
        if self.labels is not None:
            return Path(self.labels).name
        return "exact match" if self.exact_match else f"the column {self.field!r}"


def read_gold(context: Context, gold: Gold) -> pl.DataFrame:
    """Columns of `KEYS` as far as gold has them, and `gold`.

    Raises:
        UsageError: If there is none.
    """
    if gold.method is not None and gold.column is not None:
        found = score(context, source_of(context, gold.method), gold.column)
        return found.means().select(*KEYS, gold="value")
    if gold.exact_match:
        answers = answers_of(context.frames, (*KEYS, "exact_match"))
        if "exact_match" not in answers.columns or not answers["exact_match"].is_not_null().any():
            raise UsageError(f"{context.name}: no answer has a reference to compare with")
        return answers.select(*KEYS, gold=pl.col("exact_match").cast(pl.Float64)).unique(KEYS)
    if gold.labels is not None:
        # Mean label of each answer, or of each item where the file names no models.
        labels = read_labels(Path(gold.labels)).filter(pl.col("value").is_not_null())
        if labels.is_empty():
            raise UsageError(f"{context.name}: no label in {Path(gold.labels).name} is a number")
        keys = [key for key in KEYS if labels[key].is_not_null().all()]
        if "item" not in keys or labels["model_a"].is_not_null().any():
            raise UsageError(
                f"{context.name}: {Path(gold.labels).name} must have labels for single answers"
            )
        return labels.group_by(keys).agg(gold=pl.col("value").mean())
    return _field(context, gold.field or "")


def _field(context: Context, name: str) -> pl.DataFrame:
    items = columns_of(context.frames, "items", ("item", "fields"))
    if not items.width:
        raise UsageError(f"{context.name}: this run has no columns of its dataset")
    texts = items["fields"].to_list()
    values = [None if text is None else json.loads(text).get(name) for text in texts]
    numbers = [float(v) if isinstance(v, int | float) else None for v in values]
    found = items.select("item", pl.Series("gold", numbers, pl.Float64))
    if found["gold"].is_null().all():
        raise UsageError(f"{context.name}: no item has a number in the column {name!r}")
    return found
