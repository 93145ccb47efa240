"""The page under every table here, which knows its width and its alphabet.

A `Paged` renderable is laid out when it is printed, because only then the width of the terminal
and what its encoding can show are known. Text is `rich.text.Text` throughout, so nothing in a
model's name or message is ever read as markup.
"""

import errno
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Final, Literal, ParamSpec, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from orchestrator.report.text import (
    isolated,
    own_words,
    printed,
    safe_line,
    safe_name,
    safe_names,
    write_to,
)

# Width where nobody reads at a terminal: enough for every table, and for an e-mail.
_FILE_WIDTH: Final = 100
_GAP: Final = 2
_NEVER_WRAPPED: Final = 100_000

HEADING: Final = "bold"
FAINT: Final = "dim"
GOOD: Final = "green"
BAD: Final = "red"
DOUBTFUL: Final = "yellow"
ACCENT: Final = "cyan"


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: its heading, and which side its cells are aligned to."""

    heading: str
    justify: Literal["left", "right"] = "right"


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a report.

    Attributes:
        width: Columns of the terminal.
        ascii_only: Whether it shows ASCII only.
        height: Lines of the terminal; None for a file or a pipe, which have no end.
    """

    width: int
    ascii_only: bool = False
    height: int | None = None

    def words(self, text: str, style: str = "") -> Text:
        """Our own words; they may wrap."""
        return Text(own_words(text, ascii_only=self.ascii_only), style=style, overflow="fold")

    def cell(self, text: str, style: str = "") -> Text:
        """Our own words in a table: never wrapped."""
        return Text(
            own_words(text, ascii_only=self.ascii_only), style=style, no_wrap=True, overflow="crop"
        )

    def data(self, text: str, width: int | None = None, style: str = "") -> Text:
        """Text from outside, cut at its end."""
        line = safe_line(text, width, ascii_only=self.ascii_only)
        return Text(line, style=style, no_wrap=True, overflow="crop")

    def name(self, name: str, width: int | None = None, style: str = "") -> Text:
        """A name from outside, cut in its middle."""
        line = isolated(safe_name(name, width, ascii_only=self.ascii_only))
        return Text(line, style=style, no_wrap=True, overflow="crop")

    def names(self, names: Iterable[str], width: int, lines: int = 1) -> dict[str, str]:
        """Names from outside by themselves, cut so that each keeps what it differs in.

        One is whole where it fits on some lines, broken between its words.
        """
        found = {}
        for name, cut in safe_names(names, width, ascii_only=self.ascii_only).items():
            whole = [""]
            for word in safe_line(name, ascii_only=self.ascii_only).split(" "):
                if whole[-1] and cell_len(f"{whole[-1]} {word}") > width:
                    whole.append("")
                whole[-1] = f"{whole[-1]} {word}".strip(" ")
            fits = len(whole) <= lines and max(map(cell_len, whole)) <= width
            found[name] = "\n".join(map(isolated, whole if fits else [cut]))
        return found

    def prose(self, text: str, style: str = "", *, bullet: bool = False) -> RenderableType:
        """Sentences that may hold names from outside; they wrap, after a bullet where wished."""
        line = Text(safe_line(text, ascii_only=self.ascii_only), style=style, overflow="fold")
        return self.bullet(line, style) if bullet else line

    def bullet(self, text: Text, style: str = "") -> RenderableType:
        """A text after a bullet, wrapped beside it."""
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_row(self.cell("•", style), text)
        return grid

    def block(self, text: str, style: str = "") -> Text:
        """Text from outside whose lines stay lines (a traceback, the tail of a log)."""
        lines = [safe_line(line, ascii_only=self.ascii_only) for line in text.splitlines()]
        return Text("\n".join(lines), style=style, overflow="fold")

    def heading(self, text: str, aside: str = "") -> Text:
        """A section's heading, which may hold names from outside."""
        parts = [
            self.words(safe_line(own_words(part, ascii_only=self.ascii_only)), style)
            for part, style in ((text, HEADING), (aside, FAINT))
        ]
        return Text.assemble(parts[0], "  " if aside else "", parts[1])

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[RenderableType]]) -> Table:
        """A table without lines: headings, then rows."""
        table = Table(
            box=None,
            padding=(0, _GAP, 0, 0),
            pad_edge=False,
            header_style=FAINT,
            show_edge=False,
            show_header=any(column.heading for column in columns),
            collapse_padding=True,
        )
        for column in columns:
            heading = self.cell(column.heading, FAINT)
            table.add_column(heading, justify=column.justify, no_wrap=True, overflow="crop")
        for row in rows:
            table.add_row(*row)
        return table

    def flow(self, parts: Iterable[Text | str], *, style: str = "") -> list[Text]:
        """Parts set off by dots, broken into lines between parts and never inside one."""
        separator = own_words(" · ", ascii_only=self.ascii_only)
        lines: list[Text] = []
        line = Text(style=style)
        used = 0
        for part in parts:
            piece = self.words(part, style) if isinstance(part, str) else part
            needed = piece.cell_len
            if used and used + cell_len(separator) + needed > self.width:
                lines.append(line)
                line = Text(style=style)
                used = 0
            if used:
                line.append(separator, style=FAINT)
                used += cell_len(separator)
            line.append_text(piece)
            used += needed
        return [*lines, line] if used else lines


_Given = ParamSpec("_Given")


class Paged:
    """A renderable that is laid out when the page is known."""

    def __init__(self, build: Callable[[Page], Iterable[RenderableType]]) -> None:
        self._build = build

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        height = options.size.height if console.file.isatty() else None
        yield from self._build(Page(options.max_width, options.ascii_only, height))


def paged(
    build: Callable[Concatenate[Page, _Given], Iterable[RenderableType]],
) -> Callable[_Given, RenderableType]:
    """Make a function that lays out a page one that returns a renderable.

    Its first argument, the page, comes from the console when the renderable is printed; callers
    give the others.
    """

    @functools.wraps(build)
    def made(*args: _Given.args, **kwargs: _Given.kwargs) -> RenderableType:
        return Paged(lambda page: build(page, *args, **kwargs))

    return made


class _Console(Console):
    """A console that leaves it to the caller what a reader means that is gone."""

    def on_broken_pipe(self) -> None:
        """Raise the error; rich would end the program with exit code 1."""
        raise BrokenPipeError(errno.EPIPE, "the reader is gone")


def make_console(stream: TextIO, width: int | None = None) -> Console:
    """A console that interprets nothing in what it is given.

    Args:
        stream: Where to print. Colour only if it is a terminal and NO_COLOR is not set.
        width: Columns; those of the terminal, else COLUMNS, else 100.
    """
    if width is None and not stream.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        width = _FILE_WIDTH
    return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def print_to(
    stream: TextIO, renderable: RenderableType, width: int | None = None, *, wrap: bool = True
) -> bool:
    """Print to a stream; False if the reader is gone (`orchestrator report | head`).

    Args:
        stream: Where to print.
        renderable: What to print.
        width: As for `make_console`.
        wrap: Whether lines may be broken; messages that other programs read stay whole.
    """
    if stream.closed:
        return False
    console = make_console(stream, width if wrap else _NEVER_WRAPPED)
    if stream.isatty():
        return printed(lambda: console.print(renderable))
    # What the stream still holds may be written by that, too.
    lines: list[str] = []
    if not printed(lambda: lines.extend(_lines(console, renderable))):
        return False
    return write_to(stream, "\n".join(lines))


def _lines(console: Console, renderable: RenderableType) -> list[str]:
    """Return the lines that would be printed."""
    with console.capture() as captured:
        console.print(renderable)
    # Tables are padded to their width, which nobody wants in a file.
    return [line.rstrip(" ") for line in captured.get().split("\n")]
