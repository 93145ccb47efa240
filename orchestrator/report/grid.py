"""Square and oblong tables of numbers with an interval under each, for any number of models."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.report.page import FAINT, HEADING, Column, Page

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
