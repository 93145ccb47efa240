"""The tables of a ranking, one model for the terminal, Markdown, pages and files."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from orchestrator import figures, numbers
from orchestrator.report import words
from orchestrator.report.words import neighbour_amount, rank_words, subject
from orchestrator.statistics.bounded_mean import METHOD as SHARES
from orchestrator.statistics.multiple import shared_groups
from orchestrator.statistics.ranking import ModelRating, RankingAnalysis
from orchestrator.statistics.results import APPROXIMATE_BELOW
from orchestrator.tables import (
    Cell,
    Column,
    Measured,
    Table,
    counted_words,
    make_table,
    measured,
    table_columns,
)

_RATING: Final = Column("rating", "rating")
WIN: Final = Column("wins", "probability")
SHARE: Final = Column("share", "percent")
_OF_GROUPS: Final = "two models share a group exactly where they cannot be told apart"
_MAX_MESSAGE: Final = 600


def tables_of(
    analysis: RankingAnalysis, exact_match: Mapping[str, float | None] | None = None
) -> list[Table]:
    """Return the tables of a report without pictures, the ratings first; of others those with rows.

    Args:
        analysis: What `orchestrator.ranking.analysis` found.
        exact_match: Share of answers equal to the reference, by model, where there is one.
    """
    first = ratings(analysis, exact_match)
    notes = (*first.notes, *analysis.notes, f"Intervals: {analysis.method}.")
    first = msgspec.structs.replace(first, warning=analysis.warning, notes=notes)
    found = [neighbours(analysis)]
    if analysis.n_judged:
        found += [_win_matrix(analysis), position([analysis]), coverage([analysis])]
    found += [_failures(analysis), categories(analysis, is_alone=True)]
    return [first, *(table for table in found if table.rows)]


def key(what: str, analysis: RankingAnalysis) -> str:
    """The name of a table of a ranking."""
    return figures.key(what, analysis.source, analysis.judge or "all-judges")


def ratings(
    analysis: RankingAnalysis, exact_match: Mapping[str, float | None] | None = None
) -> Table:
    """A line a model, the best first; the share of exact matches where it is given."""
    ranked = [model.model for model in analysis.ratings if model.rank is not None]
    apart = [(pair.better, pair.worse) for pair in analysis.pairs if pair.resolvable]
    shared = shared_groups(ranked, apart)
    rows: list[list[Cell]] = [
        [
            rank_words(model),
            model.model,
            _rated(model),
            ", ".join(map(str, shared.get(model.model, ()))) or numbers.UNDEFINED,
            model.mean_preference,
            model.n_judgments,
            model.n_missing,
            *([exact_match.get(model.model)] if exact_match else []),
        ]
        for model in analysis.ratings
    ]
    columns = table_columns(
        "rank | model | rating: rating | group | P(win): probability | judgments: count",
        "missing: count",
        *(["exact match: percent"] if exact_match else []),
    )
    missing = analysis.n_units - analysis.n_judged
    basis = [
        counted_words(analysis.n_items_used, analysis.n_clusters),
        numbers.counted(analysis.n_judged, "judgment"),
        *([f"{numbers.count(missing)} missing"] if missing else []),
        analysis.uncertainty,
        *([words.few_words(analysis)] if analysis.approximate else []),
    ]
    about = subject(analysis)
    # First what the rows say together
    said = (analysis.caution, words.told_apart(analysis).text(), " · ".join(basis))
    return make_table(
        key("ratings", analysis),
        f"No r{about.removesuffix(words.UNTRUSTED).rstrip()[1:]}" if analysis.warning else about,
        columns,
        rows,
        basis=" ".join(part for part in said if part),
        notes=(_OF_GROUPS,),
    )


def _rated(model: ModelRating) -> Measured:
    return Measured(
        model.rating,
        -math.inf if model.low_open else model.low,
        math.inf if model.high_open else model.high,
        why="" if model.rating is not None else "no finite rating",
    )


def neighbours(analysis: RankingAnalysis) -> Table:
    """Each model and the next one: whether they can be told apart, and by how much."""
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
    columns = table_columns("model | next | order | difference, points | p (Holm): p")
    return make_table(
        key("neighbours", analysis),
        "Neighbours in the ranking",
        columns,
        rows,
        basis=f"all pairs tested together at {level} (Holm); a difference's interval leaves out 0 "
        "exactly where the two can be told apart",
    )


def wins(analysis: RankingAnalysis) -> Table:
    """A line for each model against each other one that it was compared with."""
    columns = [Column("model"), Column("against"), WIN, Column("judgments", "count")]
    found, names = analysis.wins, analysis.wins.models
    rows = [
        (
            names[r],
            names[c],
            Measured(found.preference[r][c], found.low[r][c], found.high[r][c]),
            found.n[r][c],
        )
        for r in range(len(names))
        for c in range(len(names))
        if r != c and found.preference[r][c] is not None
    ]
    return make_table(key("wins", analysis), f"Win rates: {subject(analysis)}", columns, rows)


def _win_matrix(analysis: RankingAnalysis) -> Table:
    """The same with a line and a column a model."""
    found, names = analysis.wins, analysis.wins.models

    def of(r: int, c: int) -> Cell:
        if r == c:
            return Measured(None)
        value = found.preference[r][c]
        why = "" if value is not None else "not compared"
        return Measured(value, found.low[r][c], found.high[r][c], found.n[r][c], why)

    rows = [[names[r], *(of(r, c) for c in range(len(names)))] for r in range(len(names))]
    columns = [Column(""), *(Column(name, "probability") for name in names)]
    title = f"Win rates {words.UNTRUSTED}" if analysis.warning else "Win rates"
    basis = "P(row wins against column), ties as half; intervals each for its pair"
    lines = rows if len(names) > 1 else []
    return make_table(key("wins", analysis), title, columns, lines, basis=basis)


def categories(analysis: RankingAnalysis, *, is_alone: bool = False) -> Table:
    """A line for each category and model; with its cautions where no figure says them."""
    columns = [Column("category"), Column("model"), _RATING, Column("prompts", "count")]
    rows: list[list[Cell]] = []
    for part in analysis.categories:
        prompts: Cell = part.n_items
        if part.n_clusters != part.n_items:
            prompts = Measured(part.n_items, n_clusters=part.n_clusters)
        rows += [[part.category, model.model, _rated(model), prompts] for model in part.ratings]
    title = f"By category: {subject(analysis)}"
    notes = ["not adjusted for multiple comparisons"] if is_alone else []
    if is_alone and any(part.n_clusters < APPROXIMATE_BELOW for part in analysis.categories):
        notes.append(f"where a category has {words.few_words(analysis)}")
    level = numbers.level(analysis.confidence_level)
    basis = f"the mean of each category is 1,000 · {level} intervals: {analysis.method}"
    return make_table(key("categories", analysis), title, columns, rows, basis=basis, notes=notes)


def _failures(analysis: RankingAnalysis) -> Table:
    """A line a cause of missing judgments; a message of each stands below, where it is not cut."""
    missing = numbers.counted(analysis.n_units - analysis.n_judged, "judgment")
    columns = [Column("cause"), Column("judgments", "count")]
    rows = [(failure.cause, failure.n) for failure in analysis.failures]
    notes = [f"{one.cause}, e.g. {one.message[:_MAX_MESSAGE]}" for one in analysis.failures]
    title, basis = f"{missing} missing, not filled in", f"of {numbers.count(analysis.n_units)}"
    return make_table(key("failures", analysis), title, columns, rows, basis=basis, notes=notes)


def position(rankings: Sequence[RankingAnalysis]) -> Table:
    """Effects of the order of presentation, a line an effect and judge."""
    judged = [one for one in rankings if one.n_judged and one.judge is not None]
    rows: list[list[Cell]] = []
    for one in judged:
        if one.position is None:
            continue
        rows += [
            [what, _who(one, judged), measured(estimate), one.n_judged]
            for what, estimate in (
                ("bias for the answer shown first", one.position.bias),
                ("winner flips with the order", one.position.flip_rate),
                ("one order decides, the other ties", one.position.half_flip_rate),
                ("same verdict or tie in both orders", one.position.consistency),
            )
        ]
    columns = [Column("effect"), Column("judge"), SHARE, Column("judgments", "count")]
    n_judged = numbers.counted(sum(one.n_judged for one in judged), "judgment")
    level = numbers.level(judged[0].confidence_level) if judged else ""
    basis = f"{n_judged} of {numbers.counted(len(judged), 'judge')} · {level} intervals: {SHARES}"
    title = "Effects of the order of presentation"
    return make_table("position", title, columns, rows, basis=basis)


def coverage(rankings: Sequence[RankingAnalysis]) -> Table:
    """Label coverage, and agreement of mean and mode, a line a judge."""
    judged = [one for one in rankings if one.n_judged and one.judge is not None]
    columns = table_columns(
        "judge | mass on the labels: number 3 | 5th percentile: number 3",
        "readings under one half: percent | exact: count | judgments: count",
        "mean and mode agree: percent | mode is a tie: percent",
    )
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
    notes = [
        f"{_who(one, judged)}: {numbers.counted(n, what)} {more}"
        for one in judged
        for n, what, more in (
            (one.coverage.n_unknown, "reading", "of unknown mass"),
            (one.n_same_text, "pair", "of equal answers"),
        )
        if n
    ]
    basis = "the judge's distribution over the labels, both orders of each judgment"
    return make_table("coverage", "Readings of the judge", columns, rows, basis=basis, notes=notes)


def _who(one: RankingAnalysis, among: Sequence[RankingAnalysis]) -> str:
    several = len({other.source for other in among}) > 1
    return f"{one.judge} ({one.source})" if several else str(one.judge)
