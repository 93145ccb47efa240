"""Tables of plain values (`orchestrator.tables`) for a terminal, as Markdown and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from orchestrator import numbers
from orchestrator.columns import score_words
from orchestrator.report.page import BAD, FAINT, HEADING, Column, Page, paged
from orchestrator.report.text import escaped, safe_line
from orchestrator.report.words import UNTRUSTED, plain
from orchestrator.tables import Cell, Measured, Parts, Table, cell_parts, cell_text
from orchestrator.tables import Column as TableColumn

# Tables on a terminal: values, intervals and sample sizes in fields of their own.
#
# Values stand with their decimal points in one column, and each interval beside its value. Where
# that is too wide, names are cut, then intervals stand under their values, and then the table is
# cut between columns.


_GAP: Final = 2
_MAX_NAME: Final = 40
# Names are cut to the first before intervals go under values, to the second before columns go.
_FAIR_NAME: Final = 24
_LEAST_NAME: Final = 16
_MAX_WHY: Final = 48
_MAX_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class _Field:
    """A column as it stands on a terminal.

    Attributes:
        heading: Of numbers, in its place above the lines.
        texts: Of names and words, one a row; empty for numbers.
        lines: Of numbers, one a row, as wide as `beside`: the value, and then what it rests on.
        pairs: The same parts, one under the other.
        beside: Columns of the terminal that the lines take.
        under: Those that the pairs take.
    """

    heading: str
    texts: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    beside: int = 0
    under: int = 0

    def width(self, names: int, *, under: bool) -> int:
        """Columns of the terminal that it takes where names are cut to `names`."""
        if self.texts:
            return max(cell_len(self.heading), min(self.beside, names))
        return self.under if under else self.beside


def aligned(page: Page, table: Table) -> Iterator[RenderableType]:
    """The rows as they fit: in one table, or in several that each begin with what names the rows.

    Args:
        page: Where they are laid out.
        table: With at least one row.
    """
    fields = [
        _field(column, [row[place] for row in table.rows])
        for place, column in enumerate(table.columns)
    ]
    for under, least in ((False, _FAIR_NAME), (True, _LEAST_NAME)):
        names = _fitting(fields, page.width, under=under, least=least)
        if names is not None:
            yield _drawn(page, fields, names, under=under)
            return
    cuts = [(*_cut(fields, page.width, under=under), under) for under in (False, True)]
    parts, names, under = min(cuts, key=lambda cut: len(cut[0]))
    for part in parts:
        yield _drawn(page, part, names, under=under)


def _field(column: TableColumn, cells: Sequence[Cell]) -> _Field:
    parts = [cell_parts(column, cell) for cell in cells]
    name = safe_line(column.name)
    if column.is_text:
        texts = tuple(part.value for part in parts)
        width = max(cell_len(safe_line(text)) for text in texts)
        return _Field(name, texts, beside=width, under=width)
    sizes = {
        part.n
        for part, cell in zip(parts, cells, strict=True)
        if isinstance(cell, Measured) and cell.value is not None
    }
    # A sample size that all cells have is said once, in the heading.
    common = sizes.pop() if len(sizes) == 1 else ""
    values = _numbers([part.value for part in parts])
    behind = _behind(parts, with_n=not common)
    pairs = tuple(zip(values, map(str.strip, behind), strict=True))
    full = f"{name} {common}" if common else name
    under = max(map(cell_len, (full, *(line for pair in pairs for line in pair))))
    value, aside = max(map(cell_len, values)), max(map(cell_len, behind))
    value += max(0, cell_len(full) - (value + 1 + aside if aside else value))
    if aside:
        lines = [
            f"{_right(shown, value)} {text}{' ' * (aside - cell_len(text))}"
            for shown, text in zip(values, behind, strict=True)
        ]
        # The heading ends where the values end; a longer one begins where they begin.
        full = f"{_right(name, value)} {common}" if common else _right(name, value)
    else:
        lines = [_right(shown, value) for shown in values]
        full = _right(full, value)
    beside = value + 1 + aside if aside else value
    return _Field(full, (), tuple(lines), pairs, beside, under)


def _numbers(values: Sequence[str]) -> list[str]:
    """Numbers filled on the right, so that their points stand in one column where their ends do."""
    behind = [len(value) - value.find(".") if "." in value else 0 for value in values]
    most = max(behind)
    return [
        value + " " * (most - n) if any(map(str.isdecimal, value)) else value
        for value, n in zip(values, behind, strict=True)
    ]


def _behind(parts: Sequence[Parts], *, with_n: bool) -> list[str]:
    """Return the words after values: the interval, the sample size, or the reason for no value."""
    intervals = max(len(part.interval) for part in parts)
    sizes = max(len(part.n) for part in parts) if with_n else 0
    found = []
    for part in parts:
        text = part.interval.ljust(intervals)
        if sizes:
            text = f"{text} {part.n:>{sizes}}" if intervals else part.n.rjust(sizes)
        found.append(f"({safe_line(part.why, _MAX_WHY)})" if part.why else text.rstrip())
    return found


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _fitting(fields: Sequence[_Field], room: int, *, under: bool, least: int) -> int | None:
    """The most columns for a name, so that the whole table fits; None if `least` are too many."""
    gaps = _GAP * (len(fields) - 1)
    for names in range(_MAX_NAME, least - 1, -1):
        if sum(field.width(names, under=under) for field in fields) + gaps <= room:
            return names
    return None


def _cut(fields: Sequence[_Field], room: int, *, under: bool) -> tuple[list[list[_Field]], int]:
    """The table cut between columns, so that each part fits; and the most columns for a name.

    Each part begins with the rows' names, which are cut where they would take half of the page.
    """
    naming = _named(fields)
    names = _fitting(naming, room // 2, under=under, least=_LEAST_NAME)
    while names is None and len(naming) > 1:
        naming.pop()
        names = _fitting(naming, room // 2, under=under, least=_LEAST_NAME)
    names = min(_FAIR_NAME, names or _FAIR_NAME)
    begin = sum(field.width(names, under=under) + _GAP for field in naming)
    parts: list[list[_Field]] = []
    used = 0
    for field in fields:
        if field in naming:
            continue
        width = field.width(names, under=under)
        if not parts or used + width > room:
            parts.append([*naming])
            used = begin
        parts[-1].append(field)
        used += width + _GAP
    return parts or [[*naming]], names


def _named(fields: Sequence[_Field]) -> list[_Field]:
    """The first columns that tell the rows apart: numbers before any text, text, other numbers."""
    texts = [at for at, field in enumerate(fields) if field.texts] or [0]
    before, among = range(texts[0]), range(texts[0], texts[-1])
    order = dict.fromkeys((*before, *texts, *among))
    for n in range(1, len(order) + 1):
        chosen = [fields[at] for at in sorted([*order][:n])]
        rows = [*zip(*(one.texts or one.lines for one in chosen), strict=True)]
        if len({*rows}) == len(rows):
            return chosen
    return [fields[at] for at in sorted((*before, *texts))]


def _drawn(page: Page, fields: Sequence[_Field], names: int, *, under: bool) -> RenderableType:
    columns: list[Column] = []
    cells: list[list[Text]] = []
    for place, field in enumerate(fields):
        if field.texts:
            columns.append(Column(field.heading, "left"))
            # Of which no two are cut to the same
            called = page.names(field.texts, names, _MAX_LINES)
            style = "" if place else HEADING
            cells.append([page.cell(called[text], style) for text in field.texts])
        elif under:
            columns.append(Column(field.heading.strip()))
            cells.append([_stacked(page, *pair) for pair in field.pairs])
        else:
            columns.append(Column(field.heading, "left"))
            missing = (value.strip() == numbers.UNDEFINED for value, _ in field.pairs)
            cells.append([
                page.cell(line, FAINT if is_missing else "")
                for line, is_missing in zip(field.lines, missing, strict=True)
            ])  # fmt: skip
    return page.table(columns, zip(*cells, strict=True))


def _stacked(page: Page, value: str, behind: str) -> Text:
    first = page.cell(value, FAINT if value.strip() == numbers.UNDEFINED else "")
    return Text("\n").join([first, page.cell(behind, FAINT)]) if behind else first


FORMAT: Final = 1


@paged
def generic_table(page: Page, table: Table) -> Iterator[RenderableType]:
    """For a terminal.

    Where it is too wide, names are cut, then intervals stand under their values; where that is too
    wide still, the columns go on below, each time beside what names the rows.
    """
    yield page.heading(*_heading(table))
    if table.warning:
        yield page.prose(table.warning, f"{HEADING} {BAD}")
    if table.rows:
        yield from aligned(page, table)
    else:
        yield page.words("nothing to show", FAINT)
    for note in table.notes:
        yield page.prose(note, FAINT, bullet=True)
    yield page.words("")


def generic_markdown(table: Table, level: int = 2) -> str:
    """As Markdown, under a heading of a level."""
    title, basis = _heading(table)
    lines = [f"{'#' * level} {escaped(title)}", ""]
    if table.warning:
        lines += [f"**{escaped(table.warning)}**", ""]
    if basis:
        lines += [escaped(basis), ""]
    lines.append(f"| {' | '.join(escaped(column.name) for column in table.columns)} |")
    sides = [":---" if column.is_text else "---:" for column in table.columns]
    lines.append(f"| {' | '.join(sides)} |")
    for row in table.rows:
        texts = map(cell_text, table.columns, row)
        lines.append(f"| {' | '.join(map(escaped, texts))} |")
    notes = [f"- {escaped(note)}" for note in table.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def generic_json(table: Table) -> dict[str, Any]:
    """As plain values; undefined is null."""
    names = [column.name for column in table.columns]
    rows = [
        {name: plain(cell) for name, cell in zip(names, row, strict=True)} for row in table.rows
    ]
    return {
        "format": FORMAT,
        "warning": table.warning,
        "table": table.key,
        "source": table.source,
        "title": table.title,
        "basis": table.basis,
        "columns": names,
        "rows": rows,
        "notes": list(table.notes),
        "comparisons": plain(table.comparisons),
    }


def _heading(table: Table) -> tuple[str, str]:
    title = table.title
    if table.source and table.source not in table.key.split("."):
        of = table.source
        title = f"{title} ({score_words(of) if '.' in of else of})"
    is_marked = table.warning and not title.startswith("No ranking")
    return f"{title} {UNTRUSTED}" if is_marked else title, table.basis
