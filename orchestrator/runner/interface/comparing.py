"""Two runs compared on the items that they share: paired differences with intervals."""

import json
from collections.abc import Sequence
from html import escape
from os import PathLike
from typing import Final

import msgspec
import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER
from orchestrator.errors import UsageError
from orchestrator.frames import ITEMS
from orchestrator.report.generic import generic_json, generic_markdown
from orchestrator.runner.interface.result import Result, load
from orchestrator.runner.results.tables import all_sources
from orchestrator.statistics.means import METHOD, clustered_mean
from orchestrator.statistics.results import checked_level
from orchestrator.summaries._points import Score, collect
from orchestrator.tables import Column, Measured, Table, cell_text, make_table, measured

_CONTENT: Final = ("prompt", "followups", "messages")
_KEYS: Final = ["item", "turn", "model"]
_COLUMNS: Final = (
    Column("model"),
    Column("A", "number"),
    Column("B", "number"),
    Column("B - A", "signed"),
)


class Comparison(msgspec.Struct, frozen=True):
    """Differences between two runs on the items of both.

    Attributes:
        a: Path of the first run.
        b: Path of the second run.
        tables: One table a score: each model's mean in both runs and the paired difference.
        n_shared: Number of items that both runs have, with the same content.
        n_items: Number of items of each run.
        notes: What limits the comparison, a sentence each.
    """

    a: str
    b: str
    tables: tuple[Table, ...]
    n_shared: int
    n_items: tuple[int, int]
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pl.DataFrame:
        """Return the differences as one frame.

        Returns:
            Columns score, model, a, b, difference, low, high (floats; null where undefined) and n,
            the number of items or, where the dataset names them, of clusters of items.

        Example:
            >>> found.to_frame().filter(pl.col("low") > 0)  # doctest: +SKIP
        """
        schema = {"score": pl.String, "model": pl.String, "a": pl.Float64, "b": pl.Float64}
        schema |= {"difference": pl.Float64, "low": pl.Float64, "high": pl.Float64, "n": pl.Int64}
        rows = []
        for table in self.tables:
            for model, a, b, found in table.rows:
                if isinstance(found, Measured):
                    given = (found.value, found.low, found.high, found.n)
                    rows.append((table.source, model, a, b, *given))
        return pl.DataFrame(rows, schema, orient="row")

    def to_markdown(self) -> str:
        """Return the tables as Markdown.

        Returns:
            The text.

        Example:
            >>> print(found.to_markdown())  # doctest: +SKIP
        """
        return "\n\n".join([*self.notes, *map(generic_markdown, self.tables)]) + "\n"

    def to_json(self) -> str:
        """Return the comparison as one JSON document.

        Returns:
            The text, with `a`, `b`, `n_shared`, `n_items`, `notes` and `tables`.

        Example:
            >>> json.loads(found.to_json())["n_shared"]  # doctest: +SKIP
        """
        said = {
            "a": self.a,
            "b": self.b,
            "n_shared": self.n_shared,
            "n_items": self.n_items,
            "notes": self.notes,
            "tables": [generic_json(table) for table in self.tables],
        }
        return json.dumps(said, indent=2, allow_nan=False) + "\n"

    def _repr_html_(self) -> str:
        """Return the tables as HTML, for a notebook."""
        parts = [f"<p>{escape(note)}</p>" for note in self.notes]
        for table in self.tables:
            heads = "".join(f"<th>{escape(column.name)}</th>" for column in table.columns)
            parts += [f"<h4>{escape(table.title)}</h4>", f"<table><tr>{heads}</tr>"]
            for row in table.rows:
                texts = (cell_text(*pair) for pair in zip(table.columns, row, strict=True))
                parts.append(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>")
            parts.append(f"</table><p>{escape(table.basis)}</p>")
        return "".join(parts)


def compare(
    a: Result | str | PathLike[str],
    b: Result | str | PathLike[str],
    *,
    confidence_level: float = 0.95,
    allow_code: bool = False,
) -> Comparison:
    """Compare two runs on the items of both, model by model and score by score.

    Only items that both runs have, with the same text, are used, and of these the points that both
    have a value for. Differences are paired: the interval is of the mean of B - A over items
    (over clusters of items where the dataset names them), and is mostly narrower than the intervals
    of the two means suggest.
    Each interval stands for itself; with many of them some miss by chance. Scores of pairwise
    methods are compared only where the same models met each other.

    Args:
        a: A run, or its directory.
        b: Another run, or its directory.
        confidence_level: Of every interval, in (0, 1).
        allow_code: Import kinds from outside this project, to read their scores.

    Returns:
        A table a score that both runs have.

    Raises:
        RunDirectoryError: If there is no run.
        UsageError: If the runs have no items in common.
        StatisticsError: If the confidence level is not in (0, 1).

    Example:
        >>> found = orchestrator.compare("runs/before", "runs/after")  # doctest: +SKIP
        >>> found.to_frame()  # doctest: +SKIP
    """
    checked_level(confidence_level)
    first, second = (
        one if isinstance(one, Result) else load(one, allow_code=allow_code) for one in (a, b)
    )
    mine, others = _items(first), _items(second)
    shared = mine.join(others, on=mine.columns, how="semi", nulls_equal=True)["item"]
    if shared.is_empty():
        raise UsageError(f"{first.path} and {second.path} have no item in common")
    n_changed = len(mine.join(others, on="item", how="semi")) - len(shared)
    notes = [f"{len(shared):,} items of both runs; A has {len(mine):,}, B {len(others):,}."]
    if n_changed:
        notes.append(f"{n_changed:,} items with the same key but a different text were excluded.")
    scores = {one.name: one for one in _scores(second, allow_code=allow_code)}
    tables = []
    for one in _scores(first, allow_code=allow_code):
        other = scores.pop(one.name, None)
        if other is None:
            notes.append(f"{one.name}: only in A.")
        elif one.is_pairwise and _models(one) != _models(other):
            notes.append(f"{one.name}: not compared, because the pairs of models differ.")
        else:
            tables.append(_table(one, other, shared, confidence_level))
    notes += [f"{name}: only in B." for name in scores]
    sizes = (len(mine), len(others))
    return Comparison(
        str(first.path), str(second.path), tuple(tables), len(shared), sizes, tuple(notes)
    )


def _items(result: Result) -> pl.DataFrame:
    """The items of a run by key and text.

    Raises:
        UsageError: If the run has no frame of items.
    """
    if ITEMS not in result.frames:
        raise UsageError(f"{result.path} has no frame of items; run its recipe again")
    return result.frames.columns(ITEMS, ("item", *_CONTENT)).unique(maintain_order=True)


def _scores(result: Result, *, allow_code: bool) -> Sequence[Score]:
    context = all_sources(result.frames, result.settings, allow_code=allow_code, run=result.path)
    there = [source for source in context.sources if source.frame in result.frames]
    return collect(msgspec.structs.replace(context, sources=there), ())


def _models(score: Score) -> set[str]:
    return set(score.points["model"].drop_nulls().unique())


def _table(a: Score, b: Score, shared: pl.Series, confidence_level: float) -> Table:
    both = (
        a.means()
        .filter(pl.col("item").is_in(shared.implode()))
        .join(b.means().select(*_KEYS, other="value"), on=_KEYS, nulls_equal=True)
        .with_columns(difference=pl.col("other") - pl.col("value"))
    )
    rows = []
    by_model = both.sort("model", maintain_order=True).group_by("model", maintain_order=True)
    for (model,), points in by_model:
        clusters = points[CLUSTER].rank("dense").to_numpy().astype(np.int64)
        found = clustered_mean(points["difference"].to_numpy(), clusters, confidence_level)
        mine, others = (float(np.mean(points[name].to_numpy())) for name in ("value", "other"))
        rows.append((str(model), mine, others, measured(found)))
    n_alone = len(a.points["model"].unique()) - len(rows)
    less = " Less is better." if a.orientation < 0 else ""
    table = make_table(
        f"compare.{a.name}",
        f"{a.name}: B - A",
        _COLUMNS,
        rows,
        basis=f"{both['item'].n_unique():,} items · paired · {METHOD}.{less}",
        notes=[f"{n_alone} models that occur only in A were excluded."] if n_alone else [],
    )
    return msgspec.structs.replace(table, source=a.name)
