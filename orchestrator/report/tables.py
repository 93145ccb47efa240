"""Tables for the terminal. Every function returns something rich can print, laid out when printed.

The ranking never suggests an order that the data do not carry: ranks are ranges where they are
open, and which pairs of models can be told apart stands before the first row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator import numbers
from orchestrator.probing import record
from orchestrator.probing.abilities import BOUNDED, EXACT, IMPOSSIBLE, NOT_KNOWN, Verdict
from orchestrator.probing.record import Finding
from orchestrator.report.calls import faults, listing, plan_table, run_summary, runs, status
from orchestrator.report.page import BAD, DOUBTFUL, FAINT, GOOD, HEADING, Column, Page, paged
from orchestrator.report.picture import Bounds, make_axis, picture_of
from orchestrator.report.sections import categories, failures, judge_section, win_matrix
from orchestrator.report.text import safe_line
from orchestrator.report.words import (
    few_words,
    neighbour_words,
    rank_words,
    rating_bounds,
    title,
    verdict,
)
from orchestrator.statistics.ranking import ModelRating, RankingAnalysis
from orchestrator.tables import counted_words

__all__ = [
    "faults",
    "listing",
    "plan_table",
    "probe_tables",
    "ranking",
    "run_summary",
    "runs",
    "status",
]

_STYLES: Final = {
    record.GOOD: GOOD,
    record.WARNING: DOUBTFUL,
    record.BAD: BAD,
    record.UNKNOWN: FAINT,
    EXACT: GOOD,
    BOUNDED: DOUBTFUL,
    NOT_KNOWN: FAINT,
    IMPOSSIBLE: BAD,
}
_SHORT: Final = frozenset({"question", "answer", "numbers"})


def probe_tables(
    title: str, findings: Sequence[Finding], verdicts: Sequence[Verdict]
) -> RenderableType:
    """Both tables of one model.

    Args:
        title: Model and server.
        findings: What the server does.
        verdicts: What methods can do with it.
    """
    found = _table("question", "answer", "observed")
    for one in findings:
        seen = Text(safe_line(one.said))
        if one.remedy:
            seen.append(f"\n→ {safe_line(one.remedy)}", FAINT)
        name = Text(safe_line(one.name.replace("_", " ")))
        found.add_row(name, Text(safe_line(one.value), _STYLES[one.state]), seen)
    can = _table("numbers", "methods", "why")
    for (word, why, remedy), methods in _alike(verdicts).items():
        said = Text(safe_line(why if word != EXACT else ""))
        if remedy:
            said.append(f"\n→ {safe_line(remedy)}", FAINT)
        can.add_row(Text(word, _STYLES[word]), Text(safe_line(", ".join(methods))), said)
    return Group(Text(safe_line(title), HEADING), found, Text(""), can, Text(""))


def _alike(verdicts: Sequence[Verdict]) -> dict[tuple[str, str, str], list[str]]:
    """Methods by verdict, reason and remedy, the best verdict first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    order = (EXACT, BOUNDED, NOT_KNOWN, IMPOSSIBLE)
    for judged in sorted(verdicts, key=lambda one: order.index(one.verdict)):
        why = judged.why if judged.verdict != EXACT else ""
        found.setdefault((judged.verdict, why, judged.remedy), []).append(judged.method)
    return found


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style=FAINT)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in _SHORT)
    return table


ExactMatch = Mapping[str, float | None]

# Columns that a name is left before whole columns of numbers go.
_ENOUGH_NAME: Final = 16
_MAX_NAME: Final = 32
_MIN_PICTURE: Final = 14
_MAX_PICTURE: Final = 44
_GAP: Final = 2
_ALWAYS: Final = 9


@dataclass(frozen=True, slots=True)
class _Field:
    """A column with its cells; of those that do not fit, the lightest go first."""

    column: Column
    width: int
    cell: Callable[[ModelRating], Text]
    weight: int = _ALWAYS


@paged
def ranking(
    page: Page, analysis: RankingAnalysis, exact_match: ExactMatch | None = None
) -> Iterator[RenderableType]:
    """The whole report of one ranking.

    Args:
        page: Where it is laid out.
        analysis: What `orchestrator.ranking.analysis` found.
        exact_match: Share of answers equal to the reference, by model, where there is one.
    """
    yield headline(analysis, exact_match)
    if len(analysis.wins.models) > 1 and analysis.n_judged:
        yield Text("")
        yield from win_matrix(page, analysis)
    if analysis.n_judged:
        yield Text("")
        yield from judge_section(page, analysis)
    if analysis.failures:
        yield Text("")
        yield from failures(page, analysis)
    if analysis.categories:
        yield Text("")
        yield from categories(page, analysis)
    if analysis.notes:
        yield Text("")
        yield page.heading("Notes")
        for note in analysis.notes:
            yield page.prose(note, bullet=True)
    yield Text("")
    yield page.prose(f"Intervals: {analysis.method}; {analysis.uncertainty}.", FAINT)


@paged
def headline(
    page: Page, analysis: RankingAnalysis, exact_match: ExactMatch | None = None
) -> Iterator[RenderableType]:
    """Its first table only: the ratings, and which neighbours can be told apart."""
    if analysis.warning:
        yield page.prose(analysis.warning, f"{HEADING} {BAD}")
    if analysis.caution:
        yield page.prose(analysis.caution, DOUBTFUL)
    yield page.prose(title(analysis), HEADING)
    parts: list[Text | str] = [
        page.words(counted_words(analysis.n_items_used, analysis.n_clusters)),
        page.words(numbers.counted(analysis.n_judged, "judgment")),
    ]
    missing = analysis.n_units - analysis.n_judged
    if missing:
        parts.append(page.words(f"{numbers.count(missing)} missing", BAD))
    parts.append(page.words(analysis.uncertainty, FAINT))
    if analysis.approximate:
        parts.append(page.words(few_words(analysis), DOUBTFUL))
    yield from page.flow(parts)
    called = page.names((model.model for model in analysis.ratings), _MAX_NAME)
    said = verdict(analysis, lambda name: called.get(name) or page.name(name, _MAX_NAME).plain)
    if said:
        yield page.words(said, "" if analysis.order_resolvable else f"{HEADING} {DOUBTFUL}")
    if not analysis.ratings:
        return
    yield Text("")
    yield from _ratings(page, analysis, exact_match or {})
    if analysis.neighbours:
        yield Text("")
        level = numbers.level(1 - analysis.confidence_level)
        yield page.heading(
            "Neighbours",
            f"all pairs together at {level} (Holm); intervals at the level that decides",
        )
        for pair in analysis.neighbours:
            style = GOOD if pair.resolvable else DOUBTFUL
            mark = page.cell(f"{page.glyphs.dot if pair.resolvable else page.glyphs.ring} ", style)
            words = page.words(neighbour_words(pair, lambda name: called[name]))
            yield Text.assemble(mark, words, overflow="fold")


def _ratings(
    page: Page, analysis: RankingAnalysis, exact_match: ExactMatch
) -> Iterator[RenderableType]:
    """The table of ratings; where the picture does not fit beside it, it stands below."""
    longest = max(page.name(model.model).cell_len for model in analysis.ratings)
    least = max(min(longest, _ENOUGH_NAME), len("model"))
    fields = _fields(page, analysis, exact_match)
    used = sum(field.width + _GAP for field in fields)
    # The least important fields that do not fit are left out.
    while used > page.width - least:
        lightest = min(fields, key=lambda field: field.weight)
        if lightest.weight >= _ALWAYS:
            break
        fields.remove(lightest)
        used -= lightest.width + _GAP
    names = max(min(longest, _MAX_NAME, page.width - used), len("model"))
    beside = page.width - used - names - _GAP
    fits = beside >= _MIN_PICTURE
    # A picture would say what the numbers can't.
    axis = (
        None
        if analysis.warning
        else make_axis(
            [edge for model in analysis.ratings for edge in (model.rating, model.low, model.high)],
            min(beside if fits else page.width - names - _GAP, _MAX_PICTURE),
        )
    )
    called = page.names((model.model for model in analysis.ratings), names)
    name = _Field(Column("model", "left"), names, lambda m: page.cell(called[m.model], HEADING))
    fields.insert(1, name)
    if axis is None:
        yield _drawn(page, fields, analysis)
        return
    picture = _Field(
        Column("", "left", page.cell(axis.labels(), FAINT)),
        axis.width,
        lambda model: picture_of(page, axis, _bounds(model)),
    )
    if fits:
        fields.insert(4, picture)
        yield _drawn(page, fields, analysis)
        return
    yield _drawn(page, fields, analysis)
    yield Text("")
    yield _drawn(page, [name, picture], analysis)


def _drawn(page: Page, fields: list[_Field], analysis: RankingAnalysis) -> RenderableType:
    rows = [[field.cell(model) for field in fields] for model in analysis.ratings]
    return page.table([field.column for field in fields], rows)


def _fields(page: Page, analysis: RankingAnalysis, exact_match: ExactMatch) -> list[_Field]:
    """Return the fields shown for each model, beside its name and the picture."""
    level = f"{numbers.level(analysis.confidence_level)} interval"
    bounds = max(len(level), *(len(rating_bounds(model)) for model in analysis.ratings))

    def rank(model: ModelRating) -> Text:
        surely = model.rank_low is not None and model.rank_low == model.rank_high
        return page.cell(rank_words(model), HEADING if surely else DOUBTFUL)

    def interval(model: ModelRating) -> Text:
        return page.cell(rating_bounds(model), FAINT if model.rating is None else "")

    def missing(model: ModelRating) -> Text:
        return page.cell(numbers.count(model.n_missing), BAD if model.n_missing else FAINT)

    fields = [
        _Field(Column("rank"), max(4, *(len(rank_words(m)) for m in analysis.ratings)), rank),
        _Field(Column("rating"), 6, lambda m: page.cell(numbers.maybe(m.rating, numbers.rating))),
        _Field(Column(level, "left"), bounds, interval),
        _Field(
            Column("P(win)"),
            6,
            lambda m: page.cell(numbers.maybe(m.mean_preference, numbers.probability)),
            weight=4,
        ),
        _Field(Column("judgments"), 9, lambda m: page.cell(numbers.count(m.n_judgments)), weight=1),
    ]
    if any(model.n_missing for model in analysis.ratings):
        fields.append(_Field(Column("missing"), 7, missing, weight=2))
    if exact_match:
        fields.append(
            _Field(
                Column("exact match"),
                11,
                lambda m: page.cell(numbers.maybe(exact_match.get(m.model), numbers.percent)),
                weight=3,
            )
        )
    return fields


def _bounds(model: ModelRating) -> Bounds:
    return Bounds(model.rating, model.low, model.high, model.low_open, model.high_open)
