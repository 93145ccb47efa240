"""Runs compared on the items that they share: computed once, shown as text, JSON, HTML or frame."""

import importlib
import json
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from orchestrator.columns import score_words
from orchestrator.disk.files import write_text
from orchestrator.errors import UsageError, nearest
from orchestrator.figures import MAX_ROWS, Figure, Picture, key, points
from orchestrator.interface.differences import (
    BY,
    By,
    Change,
    Contrast,
    Difference,
    changed_table,
    contrasts,
    differences,
    most_changed,
    settings_table,
)
from orchestrator.interface.loading import load
from orchestrator.interface.ratings import agreement_tables, rankings_of, rating_tables
from orchestrator.interface.result import Result
from orchestrator.interface.sides import Common, Side, common_items, notes_of, opened
from orchestrator.numbers import UNDEFINED, counted
from orchestrator.ranking.analysis import RankingAnalysis
from orchestrator.report.generic import generic_json, generic_markdown
from orchestrator.report.words import plain, ranking_json
from orchestrator.statistics.results import checked_level
from orchestrator.statistics.trust import no_verdict
from orchestrator.tables import Cell, Column, Measured, Table, cell_text, counted_words, make_table


def _figure(table: Table, name: str) -> Figure:
    """A table with a forest plot of its first column with intervals, if there is one."""
    place = next(
        (
            at
            for at, column in enumerate(table.columns)
            if column.form in {"signed", "rating"}
            and any(isinstance(row[at], Measured) for row in table.rows)
        ),
        None,
    )
    picture = None
    if place is not None and len(table.rows) <= MAX_ROWS:
        labels = [at for at, one in enumerate(table.columns[:place]) if one.is_text]
        column = table.columns[place]
        options = {"wide": True} | ({"zero": 0.0} if column.name == "difference" else {})
        if shown := points(table, labels, place):
            picture = Picture("intervals", shown, column.name, options=options)
    return Figure(key(name), table.title, table.basis, "", table, picture)


FORMAT: Final = 2
_MOST_ALONE: Final = 1000
_MOST_SAID: Final = 6
_SCHEMA: Final = {
    "score": pl.String, "run": pl.String, "model": pl.String, "first": pl.String,
    "second": pl.String, "a": pl.Float64, "b": pl.Float64, "difference": pl.Float64,
    "low": pl.Float64, "high": pl.Float64, "p_value": pl.Float64, "adjusted_p": pl.Float64,
    "level": pl.Float64, "resolved": pl.Boolean, "n": pl.Int64,
}  # fmt: skip


class Comparison(msgspec.Struct, frozen=True):
    """Differences between runs, models, judges or methods on common items.

    Attributes:
        runs: Metadata of each run, with its `label` (its folder), its items and those only it has.
        by: What is compared: "run", "model", "judge" or "method".
        differences: Paired differences, with intervals and Holm's adjustment over all of them.
        rankings: Ratings of all models on one scale, from the pooled judgments of all runs.
        changes: Items that differ most by the first score, the largest difference first.
        tables: Everything as tables: differences by score, ratings, agreement of judges, items,
            settings.
        headline: The result in a few sentences.
        notes: What limits the comparison, a sentence each.
        n_common: Number of items that all runs have, with the same content; those that ask the
            same are one.
        confidence_level: Of each interval, and of all resolved differences together.
    """

    runs: tuple[dict[str, Any], ...]
    by: By
    differences: tuple[Difference, ...]
    rankings: tuple[RankingAnalysis, ...]
    changes: tuple[Change, ...]
    tables: tuple[Table, ...]
    headline: tuple[str, ...]
    notes: tuple[str, ...]
    n_common: int
    confidence_level: float

    def to_frame(self) -> pl.DataFrame:
        """Return the differences as one frame.

        Returns:
            Columns score, run, model, first, second, a, b, difference, low, high, p_value,
            adjusted_p, level of the interval (floats; null where undefined), resolved and n, the
            number of items or, where the dataset names them, of clusters of items.

        Example:
            >>> found.to_frame().filter("resolved")  # doctest: +SKIP
        """
        rows = [
            (*(getattr(one, name) for name in (*_SCHEMA,)[:-1]), one.n_clusters or one.n)
            for one in self.differences
        ]
        return pl.DataFrame(rows, _SCHEMA, orient="row")

    def to_markdown(self) -> str:
        """Return the headline, the notes and the tables as Markdown.

        Returns:
            The text.

        Example:
            >>> print(found.to_markdown())  # doctest: +SKIP
        """
        said = [f"**{line}**" for line in self.headline]
        notes = "\n".join(f"- {note}" for note in self.notes)
        return "\n\n".join([*said, notes, *map(generic_markdown, self.tables)]) + "\n"

    def to_json(self) -> str:
        """Return the comparison as one JSON document.

        Returns:
            The text of `orchestrator compare --format json`.

        Example:
            >>> json.loads(found.to_json())["n_common"]  # doctest: +SKIP
        """
        said = {
            "format": FORMAT,
            "by": self.by,
            "n_common": self.n_common,
            "confidence_level": self.confidence_level,
            "runs": self.runs,
            "headline": self.headline,
            "notes": self.notes,
            "differences": msgspec.to_builtins(self.differences),
            "rankings": [ranking_json(one) for one in self.rankings],
            "items": [
                {**msgspec.to_builtins(one), "difference": one.difference} for one in self.changes
            ],
            "tables": [generic_json(table) for table in self.tables],
        }
        return json.dumps(plain(said), indent=2, allow_nan=False) + "\n"

    def to_html(self, path: str | PathLike[str]) -> Path:
        """Write the comparison as one HTML file, with charts where they can be drawn.

        Args:
            path: The file.

        Returns:
            Its path.

        Raises:
            UsageError: If the file can't be written.

        Example:
            >>> found.to_html("comparison.html")  # doctest: +SKIP
        """
        title = " and ".join(str(run["label"]) for run in self.runs)
        parts = [_figure(one, f"{place}-{key(one.key)}") for place, one in enumerate(self.tables)]
        html = importlib.import_module("orchestrator.report.html.shell")  # only for a page
        page = html.render(title, self.headline, self.notes, parts)
        write_text(Path(path), page)
        return Path(path)

    def _repr_html_(self) -> str:
        html = importlib.import_module("orchestrator.report.html.shell")  # only for a notebook
        return str(html.notebook(self.headline, self.notes, self.tables))


def compare(
    *runs: Result | str | PathLike[str],
    by: str | None = None,
    match: Sequence[str] = (),
    scores: Sequence[str] = (),
    baseline: str = "",
    confidence_level: float = 0.95,
    allow_code: bool = False,
) -> Comparison:
    """Compare runs on the items of all, or the models, judges or methods within runs.

    Only items that all runs have, with the same text, are used, and of these the points that both
    sides have a value for. Differences are paired: each interval is of the mean difference over
    items (over clusters of items where the dataset names them), and is mostly narrower than the
    intervals of the two means suggest. Which differences are resolved is decided together, by
    Holm's adjustment over all of them.

    Args:
        runs: One run or several, or their directories.
        by: What is compared: "run", "model", "judge" or "method". Prompts and settings are those
            of methods, or of runs. Default: runs if there are several, else models.
        match: Names that are matched between runs, in the order of the runs, such as
            "model=large:large_v2"; "judge=..." and "method=..." likewise. Equal names are matched,
            and so are judges, and methods of one kind, of which a single one is left over.
        scores: Scores that are compared, by "method.column", "method" or "column". Default: all.
        baseline: Compare only with this one: the folder of a run, or a name. Default: all pairs.
        confidence_level: Of each interval, and of all resolved differences together, in (0, 1).
        allow_code: Import kinds from outside this project, to read their scores.

    Returns:
        Differences, ratings on one scale, agreement of judges, and the items that differ most.

    Raises:
        RunDirectoryError: If there is no run.
        UsageError: If the runs have no items in common, or a name is unknown.
        StatisticsError: If the confidence level is not in (0, 1).

    Example:
        >>> found = orchestrator.compare("runs/before", "runs/after")  # doctest: +SKIP
        >>> found.to_frame().filter("resolved")  # doctest: +SKIP
    """
    checked_level(confidence_level)
    if not runs:
        raise UsageError("specify at least one run to compare")
    chosen = _by(by, len(runs))
    results = [one if isinstance(one, Result) else load(one, allow_code=allow_code) for one in runs]
    sides = opened(results, match, allow_code=allow_code)
    common = common_items(sides)
    found = contrasts(sides, common, chosen, scores, _baseline(baseline, sides, chosen))
    _check(scores, found, sides, common, chosen)
    compared = [_checked(one, chosen, sides) for one in differences(found, confidence_level)]
    changes = most_changed(found, sides[0])
    # It holds a number of each prompt for each difference.
    del found
    rankings = rankings_of(sides, common, confidence_level)
    tables = [*_differences(compared, chosen, sides), *rating_tables(sides, rankings)]
    tables += agreement_tables(sides, common, confidence_level)
    settings = {side.label: side.result.settings for side in sides}
    more = (changed_table(changes, chosen), settings_table(settings))
    tables += [table for table in more if table is not None]
    incomplete = ((side.label, side.result.completeness.words()) for side in sides)
    notes = [f"{label}: {warning}" for label, warning in incomplete if warning]
    if len({side.result.path.resolve() for side in sides}) < len(sides):
        notes.append("a run is compared with itself")
    notes += notes_of(sides, common)
    return Comparison(
        runs=tuple(_about(side, common) for side in sides),
        by=chosen,
        differences=tuple(compared),
        rankings=tuple(rankings),
        changes=tuple(changes),
        tables=tuple(tables),
        headline=tuple(_said(compared, chosen, common.n)),
        notes=tuple(notes),
        n_common=common.n,
        confidence_level=confidence_level,
    )


def _checked(one: Difference, by: By, sides: Sequence[Side]) -> Difference:
    """The difference, unresolved where it rests on judges that can't be trusted, or not yet."""
    if by == "judge":
        return one
    methods = (one.first, one.second) if by == "method" else (one.score.partition(".")[0],)
    # One judge of two runs is two judges: the run follows its name.
    several = not one.run and len(sides) > 1
    trusts = [
        replace(trust, judge=f"{trust.judge} · {side.label}") if several else trust
        for side in sides
        for method in methods
        for trust in side.result.trust.get(side.own("method", method), ())
        if one.run in ("", side.label)
    ]
    doubt = no_verdict(trusts)
    return msgspec.structs.replace(one, resolved=False, doubt=doubt) if doubt else one


def _by(by: str | None, n_runs: int) -> By:
    chosen: By | None = next((one for one in BY if one == by), None)
    if by is None:
        return "run" if n_runs > 1 else "model"
    if chosen is None:
        raise UsageError(f"by: unknown {by!r}{nearest(by, BY)}")
    if chosen == "run" and n_runs < 2:
        raise UsageError("by: specify a second run, or compare by model, judge or method")
    return chosen


def _baseline(given: str, sides: Sequence[Side], by: By) -> str:
    if not given:
        return ""
    if by == "run":
        known = {name: side.label for side in sides for name in (side.label, str(side.result.path))}
    else:
        known = {name: name for side in sides for name in side.names[by]}
    if given not in known:
        raise UsageError(f"baseline: unknown {by} {given!r}{nearest(given, known)}")
    return known[given]


def _check(
    scores: Sequence[str], found: Sequence[Contrast], sides: Sequence[Side], common: Common, by: By
) -> None:
    for wanted in scores:
        if any(wanted in (one.about.score, *one.about.score.rpartition(".")[::2]) for one in found):
            continue
        known = dict.fromkeys(one.about.score for one in contrasts(sides, common, by, (), ""))
        raise UsageError(f"unknown score {wanted!r}{nearest(wanted, known)}")


def _about(side: Side, common: Common) -> dict[str, Any]:
    alone = common.alone[side.label]
    return {
        "label": side.label,
        **side.result.metadata,
        "n_items": len(side.items),
        "n_alone": len(alone),
        "items_alone": list(alone[:_MOST_ALONE]),
    }


def _differences(compared: Sequence[Difference], by: By, sides: Sequence[Side]) -> list[Table]:
    by_score: dict[str, list[Difference]] = {}
    for one in compared:
        by_score.setdefault(one.score, []).append(one)
    labels = tuple(side.label for side in sides) if by == "run" and len(sides) == 2 else ()
    return [_table(score, of_score, by, labels) for score, of_score in by_score.items()]


def _table(score: str, found: Sequence[Difference], by: By, two_runs: tuple[str, ...]) -> Table:
    names = [name for name in ("run", "model") if any(getattr(one, name) for one in found)]
    means = two_runs or ("mean", "mean of the other")
    title = " minus ".join(two_runs[::-1]) or f"Differences by {by}"
    columns = [
        *map(Column, names),
        *([] if two_runs else [Column(by if by != "run" else "runs"), Column("minus")]),
        Column(means[0], "number"),
        Column(means[1], "number"),
        Column("difference", "signed"),
        Column("p (Holm)", "p"),
        Column("resolved"),
    ]
    sizes = {(one.n, one.n_clusters) for one in found}
    rows = []
    for one in found:
        n, n_clusters = (one.n, one.n_clusters) if len(sizes) > 1 else (None, None)
        who = [getattr(one, name) for name in names]
        sided = [one.a, one.b] if two_runs else [one.second, one.first, one.b, one.a]
        cell = Measured(one.difference, one.low, one.high, n, one.why, n_clusters)
        rows.append((*who, *sided, cell, one.adjusted_p, _verdict(one)))
    less = " Less is better." if found[0].orientation < 0 else ""
    most = max(found, key=lambda one: one.n)
    method = " or ".join(dict.fromkeys(one.method for one in found))
    basis = f"{counted_words(most.n, most.n_clusters)} · paired · {method}.{less}"
    table = make_table(f"compare.{score}", title, columns, rows, basis=basis)
    return msgspec.structs.replace(table, source=score)


def _verdict(one: Difference) -> Cell:
    if one.doubt:
        return "not known yet"
    if one.adjusted_p is None:
        return UNDEFINED
    if not one.resolved:
        return "no"
    better = (one.difference or 0.0) * one.orientation > 0
    return "better" if better else "worse"


def _said(compared: Sequence[Difference], by: By, n_common: int) -> list[str]:
    """The differences that are resolved, in words; or that there are none."""
    known = [one for one in compared if one.adjusted_p is not None]
    resolved = [one for one in known if one.resolved]
    if not compared:
        return [f"Nothing to compare by {by}: no score has two sides on common items."]
    items = counted(n_common, "item" if by != "run" else "common item")
    doubts = dict.fromkeys(one.doubt for one in known if one.doubt)
    if doubts and len(known) == sum(bool(one.doubt) for one in known):
        return [*doubts]
    if not resolved:
        few = counted(len(compared), "difference")
        return [f"None of {few} can be told from 0 on {items} (Holm over all of them)."]
    order = sorted(resolved, key=lambda one: one.adjusted_p or 0.0)
    said = [
        f"{len(resolved):,} of {counted(len(compared), 'difference')} on {items} can be told "
        "from 0 (Holm over all of them)."
    ]
    for one in order[:_MOST_SAID]:
        value = Measured(one.difference, one.low, one.high)
        where = " · ".join(part for part in (one.run, one.model) if part)
        text = cell_text(Column("difference", "signed"), value)
        told = (
            f"{one.second} is {_verdict(one)} than {one.first}: {text} in {score_words(one.score)}."
        )
        said.append(f"{where}: {told}" if where else told)
    if len(order) > _MOST_SAID:
        said.append(f"{len(order) - _MOST_SAID:,} more are in the tables.")
    return said
