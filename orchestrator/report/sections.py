"""Sections below the ratings: win rates, the judge, failures, categories."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator import numbers
from orchestrator.report.page import BAD, DOUBTFUL, FAINT, GOOD, HEADING, Column, Page
from orchestrator.report.words import UNTRUSTED, few_words, rating_bounds
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.statistics.results import APPROXIMATE_BELOW, Estimate

_GAP: Final = 2
_MIN_NAME: Final = 8
_MAX_GRID_NAME: Final = 24
_MAX_HEADING: Final = 14
_MAX_PIECES: Final = 3


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its number, what stands under it in small, and how the number looks."""

    text: str
    under: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows and columns with names from outside.

    Attributes:
        corner: Heading of the rows' names.
        rows: Names.
        columns: Names.
        cell: The cell of a row and a column, 0-based.
    """

    corner: str
    rows: Sequence[str]
    columns: Sequence[str]
    cell: Callable[[int, int], Cell]


def draw(page: Page, grid: Grid) -> Iterator[RenderableType]:
    """The grid as it fits: with intervals, without them, and in pieces of columns."""
    cells = [[grid.cell(r, c) for c in range(len(grid.columns))] for r in range(len(grid.rows))]
    names = max((page.name(name).cell_len for name in grid.rows), default=0)
    names = max(min(names, _MAX_GRID_NAME), len(grid.corner), min(_MIN_NAME, page.width // 3))
    wide = _cell_width(cells, with_under=True)
    narrow = _cell_width(cells, with_under=False)
    room = page.width - names - _GAP
    # A few pieces with intervals are better than one without.
    with_under = len(grid.columns) * (wide + _GAP) <= _MAX_PIECES * room and wide + _GAP <= room
    width = wide if with_under else narrow
    headings = _headings(page, grid.columns, max(width, _MAX_HEADING))
    if sum(max(h.cell_len, width) + _GAP for h in headings) > room:
        headings = _headings(page, grid.columns, max(width, _MIN_NAME))
    called = page.names(grid.rows, names)
    piece = max(1, room // (max([width, *(h.cell_len for h in headings)]) + _GAP))
    for begin in range(0, len(grid.columns), piece):
        part = range(begin, min(begin + piece, len(grid.columns)))
        columns = [Column(grid.corner, "left")]
        columns += [Column("", picture=headings[c]) for c in part]
        rows = [
            [
                page.cell(called[name], HEADING),
                *(_stacked(page, cells[r][c], with_under=with_under) for c in part),
            ]
            for r, name in enumerate(grid.rows)
        ]
        if begin:
            yield page.cell("")
        yield page.table(columns, rows)
    if not with_under and any(cell.under for row in cells for cell in row):
        yield page.words(
            "Intervals are shown on a wider terminal or with --format markdown or json.", FAINT
        )


def _headings(page: Page, names: Sequence[str], width: int) -> list[Text]:
    called = page.names(names, width)
    return [page.cell(called[name]) for name in names]


def _cell_width(cells: Sequence[Sequence[Cell]], *, with_under: bool) -> int:
    lengths = [
        max(len(cell.text), len(cell.under) if with_under else 0) for row in cells for cell in row
    ]
    return max(lengths, default=1)


def _stacked(page: Page, cell: Cell, *, with_under: bool) -> RenderableType:
    number = page.cell(cell.text, cell.style)
    if not with_under or not cell.under:
        return number
    return Group(number, page.cell(cell.under, FAINT))


_ALIKE: Final = 0.9
_MAX_NAME: Final = 32
_MAX_MESSAGE: Final = 600
# A share of judgments with little mass on the labels that deserves a colour.
_MUCH_LOW_MASS: Final = 0.05


def win_matrix(page: Page, analysis: RankingAnalysis) -> Iterator[RenderableType]:
    """Mean preference for the row's model over the column's, with interval and n."""
    wins = analysis.wins
    indices = range(len(wins.models))
    counts = {wins.n[r][c] for r in indices for c in indices if r != c}
    # Counts that hardly differ are said once; else every cell says its own.
    few, many = min(counts), max(counts)
    alike = few >= _ALIKE * many
    apart = {(pair.better, pair.worse) for pair in analysis.pairs if pair.resolvable}

    def cell(row: int, column: int) -> Cell:
        value = wins.preference[row][column]
        if row == column:
            return Cell(page.glyphs.same)
        if value is None:
            return Cell(numbers.UNDEFINED, "not compared")
        low, high = wins.low[row][column], wins.high[row][column]
        under = ""
        if low is not None and high is not None:
            under = f"[{numbers.probability(low)}, {numbers.probability(high)}]"
        if not alike:
            under = f"{under} n={numbers.count(wins.n[row][column])}".strip()
        names = wins.models[row], wins.models[column]
        style = GOOD if names in apart else BAD if names[::-1] in apart else ""
        return Cell(numbers.probability(value), under, "" if analysis.warning else style)

    aside = "P(row wins against column), ties as half; intervals each for its pair alone"
    if alike:
        n = numbers.count(many) if few == many else f"{numbers.count(few)} to {numbers.count(many)}"
        aside += f"; n = {n} each"
    yield page.heading(f"Win rates {UNTRUSTED}" if analysis.warning else "Win rates", aside)
    yield from draw(page, Grid("", wins.models, wins.models, cell))


def judge_section(page: Page, analysis: RankingAnalysis) -> Iterator[RenderableType]:
    """Yield the evidence for trust in the judge: order effects, label mass, mean against mode."""
    yield page.heading("Judge", f"over {numbers.counted(analysis.n_judged, 'judgment')}")
    rows: list[tuple[str, str, str]] = []
    if (position := analysis.position) is None:
        rows.append(("effects of presentation order", numbers.UNDEFINED, ""))
    else:
        bias, interval = position.bias, position.bias.interval
        shown = numbers.signed_percent_with_interval(bias.value, *bias.ends)
        biased = interval is not None and not interval.contains(0.0)
        rows += [
            ("bias for the answer shown first", shown, DOUBTFUL if biased else ""),
            ("winner flips with the order", _share(position.flip_rate), ""),
            ("one order decides, the other ties", _share(position.half_flip_rate), ""),
            ("same decision in both orders", _share(position.consistency), ""),
        ]
    if analysis.coverage.n or analysis.n_exact:
        rows += _readings(analysis)
    else:
        rows.append(("probabilities of labels", "none were read", ""))
    if analysis.n_same_text:
        rows.append(("both answers the same text", numbers.count(analysis.n_same_text), ""))
    cells = [[page.cell(name), page.cell(value, style)] for name, value, style in rows]
    yield page.table([Column("", "left"), Column("", "left")], cells)


def _readings(analysis: RankingAnalysis) -> list[tuple[str, str, str]]:
    """Return lines on the distributions over labels: mass, mean against mode, exactness."""
    coverage = analysis.coverage
    low = numbers.percent(coverage.share_low)
    style = DOUBTFUL if coverage.share_low > _MUCH_LOW_MASS else ""
    rows = [
        ("mean probability on the labels", numbers.probability(coverage.mean), ""),
        ("5th percentile of the probability", numbers.probability(coverage.percentile_5), ""),
        ("readings with less than half on the labels", low, style),
    ]
    if coverage.n_unknown:
        rows.append(("readings with unknown mass", numbers.count(coverage.n_unknown), DOUBTFUL))
    agreement = analysis.agreement
    rows += [
        ("mean and mode agree", numbers.maybe(agreement.decisions, numbers.percent), ""),
        ("mode is a tie", numbers.maybe(agreement.tied_by_mode, numbers.percent), ""),
    ]
    if agreement.kendall_tau is not None:
        tau = f"Kendall's tau {agreement.kendall_tau:.2f}"
        rows.append(("rankings by mean and by mode", tau, ""))
    exact = f"{numbers.count(analysis.n_exact)} of {numbers.count(analysis.n_judged)}"
    rows.append(("every label's probability known", exact, ""))
    return rows


def _share(estimate: Estimate) -> str:
    return numbers.percent_with_interval(estimate.value, *estimate.ends)


def failures(page: Page, analysis: RankingAnalysis) -> Iterator[RenderableType]:
    """Judgments that are missing: why, and for which models."""
    missing = analysis.n_units - analysis.n_judged
    aside = f"of {numbers.count(analysis.n_units)}; not filled in"
    yield page.heading(f"{numbers.counted(missing, 'judgment')} missing", aside)
    columns = [Column("cause", "left"), Column("judgments")]
    causes: list[list[RenderableType]] = [
        [page.data(failure.cause, _MAX_NAME, BAD), page.cell(numbers.count(failure.n))]
        for failure in analysis.failures
    ]
    messages = [
        page.data(failure.message[:_MAX_MESSAGE], None, FAINT) for failure in analysis.failures
    ]
    beside = all(text.cell_len <= page.width - _MAX_NAME for text in messages)
    if beside:
        columns.append(Column("e.g.", "left"))
        causes = [[*row, text] for row, text in zip(causes, messages, strict=True)]
    yield page.table(columns, causes)
    for failure in () if beside else analysis.failures:
        # Cut off, it would hide what the reader can do about it.
        text = f"{failure.cause}, e.g. {failure.message[:_MAX_MESSAGE]}"
        yield page.prose(text, FAINT, bullet=True)
    concerned = [model for model in analysis.ratings if model.n_missing]
    parts: list[Text | str] = [page.words("by model", FAINT)]
    for model in concerned:
        name = page.name(model.model, _MAX_NAME)
        parts.append(Text.assemble(name, f" {numbers.count(model.n_missing)}"))
    yield from page.flow(parts)


def categories(page: Page, analysis: RankingAnalysis) -> Iterator[RenderableType]:
    """Ratings within each category of prompts."""
    models = [model.model for model in analysis.ratings]
    found = [{model.model: model for model in part.ratings} for part in analysis.categories]
    names = [
        f"{part.category} ({numbers.in_clusters(part.n_items, part.n_clusters)})"
        for part in analysis.categories
    ]

    def cell(row: int, column: int) -> Cell:
        model = found[row].get(models[column])
        if model is None or model.rating is None:
            is_open = model is not None and (model.low_open or model.high_open)
            return Cell(numbers.UNDEFINED, "open" if is_open else "")
        style = DOUBTFUL if model.n_clusters < APPROXIMATE_BELOW else ""
        return Cell(numbers.rating(model.rating), rating_bounds(model), style)

    title = "Ratings by category"
    title = f"{title} {UNTRUSTED}" if analysis.warning else title
    yield page.heading(title, "prompts in brackets; not adjusted for multiple comparisons")
    yield from draw(page, Grid("category", names, models, cell))
    few = [part for part in analysis.categories if part.n_clusters < APPROXIMATE_BELOW]
    if few:
        text = f"where a category has {few_words(analysis)}"
        yield page.words(text, DOUBTFUL)
