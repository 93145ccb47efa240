"""Gold of an analysis: what scores are held against."""

import json
from pathlib import Path

import polars as pl
from pydantic import Field, model_validator

from orchestrator.contracts.context import answers_of
from orchestrator.contracts.settings import GivenFile
from orchestrator.dataset.labels import read_labels
from orchestrator.frames import columns_of
from orchestrator.plugin import Context, Settings, UsageError
from orchestrator.ranking.scores import KEYS, score, source_of


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
    def _one(self) -> "Gold":
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
