"""Tables and sentences of the formats that reports are written in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import combinations, product, zip_longest
from typing import Final

_GAP: Final = re.compile(r" {2,}")
# Of a line below a table that is a cell; of more it is a note.
_MOST_WORDS: Final = 4


@dataclass(frozen=True)
class Grid:
    """A table as texts.

    Attributes:
        where: Its output and title.
        heads: Headings.
        rows: Cells, as many as headings.
    """

    where: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass
class Pages:
    """Tables and sentences of an output."""

    grids: list[Grid] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)


def of_terminal(where: str, text: str) -> Pages:
    """Read what a command prints: a table's columns begin where its heading's do, or end there."""
    found = Pages()
    lines = text.splitlines()
    for at, line in enumerate(lines):
        heads = _GAP.split(line.strip())
        if "model" in heads or heads[0] in ("better", "category"):
            rows = []
            for below in lines[at + 1 :]:
                if not below.strip() or _is_note(below):
                    break
                rows.append(_cut(line, below))
            title = next((one for one in reversed(lines[:at]) if one.strip()), "")
            found.grids.append(Grid(f"{where}, {title[:60]}", _cut(line, line), tuple(rows)))
        found.sentences.append(line.strip(" •!○●"))
    return found


def _is_note(line: str) -> bool:
    """Return True if a line below a table is a sentence and not a row."""
    is_long = len(_GAP.split(line.strip())) == 1 and line.count(" ") > _MOST_WORDS
    return line.startswith("•") or (is_long and not line.startswith(" "))


def _cut(heading: str, line: str) -> tuple[str, ...]:
    """Return the cells of a line under the headings: words belong to the nearest column."""
    columns = [(found.start(), found.end()) for found in re.finditer(r"\S+(?: \S+)*", heading)]
    cells = [""] * len(columns)
    for found in re.finditer(r"\S+(?: \S+)*", line):
        near = min(
            range(len(columns)),
            key=lambda at: max(columns[at][0] - found.end(), found.start() - columns[at][1]),
        )
        cells[near] = f"{cells[near]} {found[0]}".strip()
    return tuple(cells)


def of_markdown(where: str, text: str) -> Pages:
    """Read Markdown."""
    found = Pages()
    title = ""
    body: list[tuple[str, ...]] = []
    plain = re.sub(r"\\(.)", r"\1", text)
    for line in [*plain.splitlines(), ""]:
        if line.startswith("|"):
            body.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
            continue
        if len(body) > 1:
            heads, _, *rows = body
            found.grids.append(Grid(f"{where}, {title[:60]}", heads, tuple(rows)))
        body = []
        words = line.strip("*#- >")
        title = words or title
        found.sentences.append(words)
    return found


def of_latex(where: str, text: str) -> Pages:
    """Read a LaTeX table of ours."""
    plain = text.replace("\\_", "_").replace("\\%", "%").replace("{,}", ",").replace("$-$", "-")
    plain = re.sub(r"\\textsuperscript\{\w+\}|\\,|\\ ", "", plain)
    plain = (
        plain.replace("--", "\N{EN DASH}").replace("{[}", "[").replace("{]}", "]").replace("$", "")
    )
    caption = re.search(r"\\caption\{(.*)\}", plain)
    found = Pages(sentences=[caption[1] if caption else ""])
    body = plain.split("\\midrule")
    if len(body) < 2:
        return found
    heads: list[str] = []
    for cell in _cells(body[0].rpartition("\\toprule")[2]):
        wide = re.fullmatch(r"\\multicolumn\{(\d+)\}\{c\}\{(.*)\}", cell)
        heads += [wide[2]] + [""] * (int(wide[1]) - 1) if wide else [cell]
    lines = body[1].partition("\\bottomrule")[0].strip().splitlines()
    rows = [_joined(heads, _cells(line)) for line in lines]
    kept = tuple(head for head in heads if head)
    found.grids.append(Grid(f"{where}, {found.sentences[0][:60]}", kept, tuple(rows)))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removesuffix("\\\\").split("&")]


def _joined(heads: list[str], cells: list[str]) -> tuple[str, ...]:
    """Join cells under one wide heading."""
    found: list[str] = []
    for head, cell in zip_longest(heads, cells, fillvalue=""):
        if head:
            found.append(cell)
        else:
            found[-1] = f"{found[-1]} {cell}".strip()
    return tuple(found)


class _Html(HTMLParser):
    """Collects tables, and the text of paragraphs, headings and list items."""

    _BLOCKS: Final = {"p", "li", "h1", "h2", "h3", "h4", "dd", "dt", "figcaption", "caption", "td",
                      "summary", "th", "tr", "table", "div"}  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[tuple[str, int]]]]] = []
        self.sentences: list[str] = []
        self.marks: list[str] = []
        self._text = ""
        self._span = 1
        self._skipped = 0
        self._title = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "style"):
            self._skipped += 1
        if label := given.get("aria-label"):
            self.marks.append(label)
        if tag in self._BLOCKS:
            self._flush()
        if tag == "table":
            self.tables.append((given.get("id") or self._title, []))
        elif tag == "tr" and self.tables:
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self._span = int(given.get("colspan") or 1)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._skipped -= 1
        if tag in ("td", "th") and self.tables:
            rows = self.tables[-1][1]
            if rows:
                rows[-1].append((" ".join(self._text.split()), self._span))
            self._text = ""
        elif tag in self._BLOCKS:
            if tag in ("h2", "h3", "h4"):
                self._title = self._text.strip()
            self._flush()

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._text += data

    def _flush(self) -> None:
        words = " ".join(self._text.split())
        if words:
            self.sentences.append(words)
        self._text = ""


def of_html(where: str, text: str) -> tuple[Pages, list[str]]:
    """Read a page; also what its pictures say of themselves to readers who can't see them."""
    read = _Html()
    read.feed(text)
    found = Pages(sentences=read.sentences)
    for title, rows in read.tables:
        if len(rows) < 2:
            continue
        heads: list[str] = []
        for head, span in rows[0]:
            heads += [head] + [""] * (span - 1)
        cells = [_joined(heads, [cell for cell, _ in row]) for row in rows[1:]]
        kept = tuple(head for head in heads if head)
        found.grids.append(Grid(f"{where}, {title[:60]}", kept, tuple(cells)))
    return found, read.marks


def chain(sentence: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of an order such as `a ≈ b > c` that stand on two sides of a `>`."""
    parts = [part.split(" ≈ ") for part in sentence.split(" > ")]
    for above, below in combinations(parts, 2):
        yield from product(above, below)
