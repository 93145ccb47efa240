"""Figures of rankings: ratings, who can be told apart, wins, categories, and the judge."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from orchestrator import numbers
from orchestrator.figures import Figure, Picture, points
from orchestrator.report import rankings as tables
from orchestrator.report.words import few_words
from orchestrator.statistics.bounded_mean import METHOD as SHARES
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.statistics.ratings import METHOD
from orchestrator.statistics.results import APPROXIMATE_BELOW
from orchestrator.tables import Measured, cell_text, counted_words

_MOST_MODELS: Final = 30
_SCALE: Final = "rating (Elo scale)"
_POINTS: Final = {"format": ",.0f"}


def ranking(analysis: RankingAnalysis, models: Sequence[str]) -> list[Figure]:
    """The figures of one ranking, the most important first.

    Args:
        analysis: The ranking.
        models: Of the run, so that each has one colour in all figures.
    """
    if not analysis.n_judged:
        return []
    found = [_ratings(analysis)]
    if not analysis.warning:
        found.append(_wins(analysis))
    if analysis.categories and not analysis.warning:
        found += [_categories(analysis, models)]
    of = {"source": analysis.source, "warning": analysis.warning}
    return [
        dataclasses.replace(one, table=msgspec.structs.replace(one.table, **of)) for one in found
    ]


def _basis(analysis: RankingAnalysis, method: str) -> str:
    level = numbers.level(analysis.confidence_level)
    few = f"; {few_words(analysis)}" if analysis.approximate else ""
    return (
        f"n = {numbers.counted(analysis.n_judged, 'judgment')} on "
        f"{counted_words(analysis.n_items_used, analysis.n_clusters)} · {level} intervals: "
        f"{method}; {analysis.uncertainty}{few}"
    )


def _ratings(analysis: RankingAnalysis) -> Figure:
    table = tables.ratings(analysis)
    shown = points(table, 1, 2)[:_MOST_MODELS]
    says = "Ratings on the Elo scale, mean 1,000."
    if analysis.warning:
        says = "These numbers are no result: the judgments cannot be trusted."
    # A picture would say what the numbers can't.
    drawn = shown and not analysis.warning
    picture = Picture("intervals", shown, _SCALE, options=_POINTS) if drawn else None
    beside = [tables.neighbours(analysis)] if analysis.neighbours and drawn else []
    return Figure(table.key, table.title, _basis(analysis, METHOD), says, table, picture, beside)


def _wins(analysis: RankingAnalysis) -> Figure:
    table = tables.wins(analysis)
    names = analysis.wins.models
    drawn: list[dict[str, Any]] = []
    for model, against, measured, _ in table.rows:
        if isinstance(measured, Measured) and measured.value is not None:
            row, column, value = str(model), str(against), measured.value
            drawn.append(
                {
                    "row": row,
                    "column": column,
                    "value": value,
                    "text": numbers.probability(value),
                    "tip": f"{row} against {column}: {cell_text(tables.WIN, measured)}",
                }
            )
    picture = None
    if drawn and len(names) <= _MOST_MODELS:
        options = {"order": names, "domain": [0.0, 1.0], "columns": names}
        picture = Picture("matrix", drawn, "against", "model", options=options)
    says = (
        "P(row wins against column), with ties as half; blue above one half, orange below. Each "
        "interval is for its pair alone, by their own comparisons."
    )
    return Figure(table.key, table.title, _basis(analysis, SHARES), says, table, picture)


def _categories(analysis: RankingAnalysis, models: Sequence[str]) -> Figure:
    table = tables.categories(analysis)
    rated = {model.model for model in analysis.ratings}
    shown = points(table, 0, 2, 1)
    used = {row["group"] for row in shown}
    # In the order in which each model has its colour.
    groups = [model for model in models if model in rated and model in used]
    picture = Picture("intervals", shown, _SCALE, "", groups, _POINTS) if shown else None
    says = "Ratings within each category; the mean of each category is 1,000."
    if any(part.n_clusters < APPROXIMATE_BELOW for part in analysis.categories):
        says = f"{says} Where a category has {few_words(analysis)}."
    return Figure(table.key, table.title, _basis(analysis, METHOD), says, table, picture)


def judges(rankings: Sequence[RankingAnalysis]) -> list[Figure]:
    """Effects of the order, and mass on the labels, of all judges together."""
    table = tables.position(rankings)
    if not table.rows:
        return []
    shown = points(table, 0, 2, 1)
    who = list(dict.fromkeys(row["group"] for row in shown))
    options = {"zero": 0.0, "percent": True}
    picture = Picture("intervals", shown, "share of judgments", groups=who, options=options)
    says = (
        "The bias is the mean preference for the answer shown first minus one half; shares are "
        "over pairs of different answers."
    )
    return [Figure(table.key, table.title, f"n = {table.basis}", says, table, picture)]
