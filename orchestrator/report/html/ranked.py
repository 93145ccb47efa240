"""Figures of rankings: ratings, who can be told apart, wins, categories, and the judge."""

import dataclasses
import math
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, Final

import msgspec

from orchestrator import numbers
from orchestrator.report import words
from orchestrator.report.html import figures
from orchestrator.report.html.figures import Figure, Picture, as_table, cell, named
from orchestrator.report.words import few_words, neighbour_amount, rank_words, subject, verdict
from orchestrator.statistics.bounded_mean import METHOD as SHARES
from orchestrator.statistics.multiple import shared_groups
from orchestrator.statistics.ranking import ModelRating, RankingAnalysis
from orchestrator.statistics.ratings import METHOD
from orchestrator.statistics.results import APPROXIMATE_BELOW
from orchestrator.tables import Cell, Column, Measured, Table, cell_text, counted_words

_RATING: Final = Column("rating", "rating")
_SHARE: Final = Column("share", "percent")
_MOST_MODELS: Final = 30
# Of more models the order is read from the picture, not from a sentence.
_MOST_IN_A_SENTENCE: Final = 8
_WIN: Final = Column("wins", "number", 2)
_OVER_BLACK: Final = 0.82
_SCALE: Final = "rating (Elo scale)"
_POINTS: Final = {"format": ",.0f"}
LEGEND: Final = (
    "> means that every model before it can be told from every one after it, ≈ that not all can."
)

_OF_GROUPS: Final = "two models share a group exactly where they cannot be told apart"


def of_ranking(analysis: RankingAnalysis, models: Sequence[str]) -> list[Figure]:
    """The figures of one ranking, the most important first.

    Args:
        analysis: The ranking.
        models: Of the run, so that each has one colour in all figures.
    """
    if not analysis.ratings:
        return []
    found = [_ratings(analysis)]
    if analysis.n_judged:
        found += [_wins(analysis)]
    if analysis.categories:
        found += [_categories(analysis, models)]
    return [
        dataclasses.replace(one, table=msgspec.structs.replace(one.table, warning=analysis.warning))
        for one in found
    ]


def groups(analysis: RankingAnalysis) -> list[list[str]]:
    """Models from the best down, cut where all before can be told from all after."""
    ranked = [model.model for model in analysis.ratings if model.rank is not None]
    apart = {(pair.better, pair.worse) for pair in analysis.pairs if pair.resolvable}
    found: list[list[str]] = []
    for place, model in enumerate(ranked):
        if apart.issuperset(product(ranked[:place], ranked[place:])):
            found.append([])
        found[-1].append(model)
    return found


def group_words(analysis: RankingAnalysis) -> str:
    """The order, and which models can be told apart; the latter alone where none can.

    Best first: `>` where all before can be told from all after, else `≈`.
    """
    called = named(model.model for model in analysis.ratings)
    said = verdict(analysis, called)
    if not analysis.order_resolvable:
        return said
    order = " > ".join(" ≈ ".join(map(called, group)) for group in groups(analysis))
    return f"{order}. {said}"


def _basis(analysis: RankingAnalysis, method: str) -> str:
    level = numbers.level(analysis.confidence_level)
    few = f"; {few_words(analysis)}" if analysis.approximate else ""
    return (
        f"n = {numbers.counted(analysis.n_judged, 'judgment')} on "
        f"{counted_words(analysis.n_items_used, analysis.n_clusters)} · {level} intervals: "
        f"{method}; {analysis.uncertainty}{few}"
    )


def _key(what: str, analysis: RankingAnalysis) -> str:
    return figures.key(what, analysis.source, analysis.judge or "all-judges")


def _rated(model: ModelRating) -> Measured:
    return Measured(
        model.rating,
        -math.inf if model.low_open else model.low,
        math.inf if model.high_open else model.high,
        why="" if model.rating is not None else "no finite rating",
    )


def _ratings(analysis: RankingAnalysis) -> Figure:
    ranked = [model.model for model in analysis.ratings if model.rank is not None]
    apart = [(pair.better, pair.worse) for pair in analysis.pairs if pair.resolvable]
    shared = shared_groups(ranked, apart)
    rows = [
        [
            rank_words(model),
            model.model,
            _rated(model),
            ", ".join(map(str, shared.get(model.model, ()))) or numbers.UNDEFINED,
            model.mean_preference,
            model.n_judgments,
            model.n_missing,
        ]
        for model in analysis.ratings
    ]
    columns = [
        Column("rank"),
        Column("model"),
        _RATING,
        Column("group"),
        Column("P(win)", "number", 2),
        Column("judgments", "count"),
        Column("missing", "count"),
    ]
    title = words.title(analysis)
    table = as_table(_key("ratings", analysis), title, columns, rows)
    table = msgspec.structs.replace(table, notes=(_OF_GROUPS,))
    shown = figures.points(table, 1, 2)[:_MOST_MODELS]
    called = named(model.model for model in analysis.ratings)
    few = len(analysis.ratings) <= _MOST_IN_A_SENTENCE
    order = f"{group_words(analysis)} {LEGEND}" if few else verdict(analysis, called)
    says = f"Ratings on the Elo scale, mean 1000. {order}"
    if analysis.warning:
        says = f"{analysis.warning} {says}"
    # A picture would say what the numbers can't.
    drawn = shown and not analysis.warning
    picture = Picture("intervals", shown, _SCALE, options=_POINTS) if drawn else None
    beside = [_neighbours(analysis)] if analysis.neighbours else []
    return Figure(table.key, title, _basis(analysis, METHOD), says, table, picture, beside)


def _neighbours(analysis: RankingAnalysis) -> Table:
    level = numbers.level(1 - analysis.confidence_level)
    rows = [
        (
            pair.better,
            pair.worse,
            "resolvable" if pair.resolvable else "not resolvable",
            neighbour_amount(pair),
            pair.adjusted_p,
        )
        for pair in analysis.neighbours
    ]
    columns = [
        Column("model"),
        Column("next"),
        Column("order"),
        Column("difference, points"),
        Column("p (Holm)", "p"),
    ]
    return as_table(
        _key("neighbours", analysis),
        f"Neighbours, all pairs together at {level} (Holm), intervals at the level that decides",
        columns,
        rows,
    )


def _wins(analysis: RankingAnalysis) -> Figure:
    wins = analysis.wins
    columns = [Column("model"), Column("against"), _WIN, Column("judgments", "count")]
    rows: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    many = len(wins.models) > _MOST_MODELS
    called = named(wins.models)
    for r, c in ((r, c) for r in range(len(wins.models)) for c in range(len(wins.models))):
        value = wins.preference[r][c]
        if r == c or value is None:
            continue
        measured = Measured(value, wins.low[r][c], wins.high[r][c])
        rows.append([wins.models[r], wins.models[c], measured, wins.n[r][c]])
        row, column = called(wins.models[r]), called(wins.models[c])
        drawn.append(
            {
                "row": row,
                "column": column,
                "value": value,
                "text": numbers.probability(value),
                "on_dark": abs(2 * value - 1) > _OVER_BLACK,
                "tip": f"{row} against {column}: {cell_text(_WIN, measured)}",
            }
        )
    table = as_table(_key("wins", analysis), f"Win rates: {subject(analysis)}", columns, rows)
    picture = None
    if drawn and not many:
        order = [called(model) for model in wins.models]
        options = {"order": order, "domain": [0.0, 1.0], "columns": order}
        picture = Picture("matrix", drawn, "against", "model", options=options)
    says = (
        "P(row wins against column), with ties as half; blue above one half, orange below. Each "
        "interval is for its pair alone, by their own comparisons."
    )
    return Figure(table.key, table.title, _basis(analysis, SHARES), says, table, picture)


def _categories(analysis: RankingAnalysis, models: Sequence[str]) -> Figure:
    columns = [Column("category"), Column("model"), _RATING, Column("prompts", "count")]
    rows: list[list[Cell]] = []
    for part in analysis.categories:
        prompts: Cell = part.n_items
        if part.n_clusters != part.n_items:
            prompts = Measured(part.n_items, n_clusters=part.n_clusters)
        rows += [[part.category, model.model, _rated(model), prompts] for model in part.ratings]
    title = f"By category: {subject(analysis)}"
    table = as_table(_key("categories", analysis), title, columns, rows)
    rated = {model.model for model in analysis.ratings}
    shown = figures.points(table, 0, 2, 1)
    used = {row["group"] for row in shown}
    # Cut as in the rows, in the order in which each model has its colour.
    called = named([*(str(row[0]) for row in table.rows), *(str(row[1]) for row in table.rows)])
    groups = [group for model in models if model in rated and (group := called(model)) in used]
    picture = Picture("intervals", shown, _SCALE, "", groups, _POINTS) if shown else None
    says = "Ratings within each category; the mean of each category is 1000."
    if any(part.n_clusters < APPROXIMATE_BELOW for part in analysis.categories):
        says = f"{says} Where a category has {few_words(analysis)}."
    return Figure(table.key, title, _basis(analysis, METHOD), says, table, picture)


def of_judges(rankings: Sequence[RankingAnalysis]) -> list[Figure]:
    """Effects of the order, and mass on the labels, of all judges together."""
    judged = [one for one in rankings if one.n_judged and one.judge is not None]
    rows: list[list[Any]] = []
    for one in judged:
        if one.position is None:
            continue
        position = one.position
        for what, estimate in (
            ("bias for the answer shown first", position.bias),
            ("winner flips with the order", position.flip_rate),
            ("one order decides, the other ties", position.half_flip_rate),
            ("same decision in both orders", position.consistency),
        ):
            rows.append([what, _who(one, judged), cell(estimate), one.n_judged])
    if not rows:
        return []
    columns = [Column("effect"), Column("judge"), _SHARE, Column("judgments", "count")]
    table = as_table("position", "Effects of the order of presentation", columns, rows)
    shown = figures.points(table, 0, 2, 1)
    who = list(dict.fromkeys(row["group"] for row in shown))
    options = {"zero": 0.0, "percent": True}
    picture = Picture("intervals", shown, "share of judgments", groups=who, options=options)
    says = (
        "The bias is the mean preference for the answer shown first minus one half; shares are "
        "over pairs of different answers."
    )
    level = numbers.level(judged[0].confidence_level)
    basis = (
        f"n = {numbers.counted(sum(one.n_judged for one in judged), 'judgment')} of "
        f"{numbers.counted(len(judged), 'judge')} · {level} intervals: {SHARES}"
    )
    return [Figure(table.key, table.title, basis, says, table, picture)]


def _who(one: RankingAnalysis, among: Sequence[RankingAnalysis]) -> str:
    alike = any(a.judge == b.judge for a, b in combinations(among, 2))
    return f"{one.judge} ({one.source})" if alike else str(one.judge)


def coverage(rankings: Sequence[RankingAnalysis]) -> Table | None:
    """Tabulate label coverage, and agreement of mean and mode, by judge."""
    judged = [one for one in rankings if one.n_judged and one.judge is not None]
    if not judged:
        return None
    columns = [
        Column("judge"),
        Column("mass on the labels", "number", 3),
        Column("5th percentile", "number", 3),
        Column("readings under one half", "percent"),
        Column("exact", "count"),
        Column("judgments", "count"),
        Column("mean and mode agree", "percent"),
        Column("mode is a tie", "percent"),
    ]
    rows = [
        [
            _who(one, judged),
            one.coverage.mean,
            one.coverage.percentile_5,
            one.coverage.share_low,
            one.n_exact,
            one.n_judged,
            one.agreement.decisions,
            one.agreement.tied_by_mode,
        ]
        for one in judged
    ]
    return as_table("coverage", "Readings of the judge", columns, rows)
