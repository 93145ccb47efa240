"""The shell of every page: templates, tables, drawn charts, and a strict security policy."""

import base64
import importlib
import importlib.util
import json
import math
import re
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

import jinja2
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from orchestrator.columns import score_words
from orchestrator.figures import Figure, free, key
from orchestrator.report.html.figures import made_safe
from orchestrator.report.text import page_line, safe_block, safe_name
from orchestrator.tables import Measured, Table, cell_parts

_MAX_CELL: Final = 400


@dataclass(frozen=True, slots=True)
class Shown:
    """One cell.

    Attributes:
        text: The value.
        aside: What stands beside it in small: interval, n, why there is no value.
        order: What the column is sorted by.
    """

    text: str
    aside: str
    order: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of a page.

    Attributes:
        key: Its anchor.
        of: The table, for its words.
        columns: Each with its heading, whether it holds numbers, and whether those have something
            beside them: they are drawn in two cells, so that the numbers stand below each other.
        rows: One cell a column.
    """

    key: str
    of: Table
    columns: Sequence[tuple[str, bool, bool]]
    rows: Sequence[Sequence[Shown]]


def grid(table: Table, key: str, limit: int = _MAX_CELL) -> Grid:
    """A table as it is shown, its cells cut to `limit` characters."""
    rows = []
    for row in table.rows:
        cells = []
        for column, value in zip(table.columns, row, strict=True):
            parts = cell_parts(column, value)
            beside = (parts.interval, parts.n, f"({parts.why})" if parts.why else "")
            aside = safe_block(" ".join(part for part in beside if part), limit)
            number = value.value if isinstance(value, Measured) else value
            order = ""
            if isinstance(number, int | float) and not isinstance(number, bool):
                order = repr(float(number)) if math.isfinite(number) else ""
            text = safe_block(parts.value, limit)
            cells.append(Shown(text, aside, order))
        rows.append(cells)
    columns = [
        (column.name, number, number and any(row[at].aside for row in rows))
        for at, column in enumerate(table.columns)
        for number in [not column.is_text]
    ]
    return Grid(key, table, columns, rows)


_NEEDED: Final = ("altair", "vl_convert")
# vl-convert's JavaScript engine reserves 64 GiB, and ends the process where it can't.
_ADDRESS_SPACE_BYTES: Final = 80 << 30
_UNIT: Final = re.compile(r"(\d) %")
_INTERVAL: Final = re.compile(r"\[[^\[\]()]{1,40}[\])]")
_CODE: Final = re.compile("`([^`<>]+)`")
# Also in view/static/dom.js.
_LETTER: Final = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"
_RIGHT_TO_LEFT: Final = re.compile(f"[{_LETTER}]+(?:[ _.-][{_LETTER}]+)*")


def undrawn() -> str:
    """Name the missing requirements of charts; empty if charts can be drawn."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        return "pip install 'selfeval-orchestrator[report]'"
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY and most < _ADDRESS_SPACE_BYTES:
        return (
            f"{_ADDRESS_SPACE_BYTES >> 30} GiB of address space, most of it never used, where "
            f"`ulimit -v` allows {max(most >> 30, 0)}"
        )
    return ""


def page(name: str, figures: Iterable[Figure], behind: object = None, **variables: object) -> str:
    """Return a page as one HTML file; without charts where they can't be drawn.

    Args:
        name: Of the template, which extends `shell.html.j2`.
        figures: Of the page, each with a key of its own.
        behind: What leads to the items behind its numbers; None where nothing does.
        variables: Of the template, beside those that every page has.
    """
    found = list(drawings(figures))
    charts = {key: chart for key, chart, _ in found}
    ways = own_file("ways.js").replace("export const", "const")
    style, script = own_file("style.css"), own_file("script.js").replace("/* ways */", ways)
    return template(name).render(
        **variables,
        drawn={key: Markup(picture) for key, _, picture in found},  # noqa: S704 (drawn here)
        grid=keyed(),
        style=Markup(style),  # noqa: S704 (our own file)
        script=Markup(script),  # noqa: S704 (our own file)
        behind=json.dumps(behind),
        data=htmlsafe_json_dumps(charts, allow_nan=False, separators=(",", ":")),
        policy=policy(style, script),
    )


def drawings(figures: Iterable[Figure]) -> Iterator[tuple[str, Mapping[str, object], str]]:
    """Yield each chart that can be drawn here: key of its figure, Vega-Lite, and SVG.

    The SVG has shapes and text only, which is checked where it is made.
    """
    if not undrawn():
        drawing = importlib.import_module("orchestrator.report.html.charts")
        for one in figures:
            if (chart := drawing.specification(one)) is not None:
                yield one.key, chart, drawing.svg(chart, one.key, page_line(one.alternative))


@cache
def template(name: str) -> jinja2.Template:
    """Return a template of this package; everything that is put into it is escaped."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(own_file),
    )
    environment.globals["terms"] = terms()
    environment.globals["made"] = lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    shown = {"line": page_line, "isolated": isolated, "name": safe_name, "block": safe_block}
    said = {"explained": explained, "together": together, "coded": coded, "scored": score_words}
    environment.filters |= shown | said
    return environment.get_template(name)


def together(text: str) -> str:
    """Keep a number and its unit, and the ends of an interval, on one line."""
    text = _UNIT.sub("\\1\N{NO-BREAK SPACE}%", text)
    return _INTERVAL.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def isolated(text: str) -> Markup:
    """Escape a sentence on one line; names in scripts from right to left keep their place.

    Text between backticks is shown as code.
    """
    escaped = str(escape(together(page_line(text))))
    return coded(Markup(_RIGHT_TO_LEFT.sub(r"<bdi>\g<0></bdi>", escaped)))  # noqa: S704 (escaped)


def coded(text: str) -> Markup:
    """Our own words, what stands between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped here)


@cache
def terms() -> Mapping[str, Mapping[str, str]]:
    """Return the meanings of the terms of reports, by where they stand, as the glossary has them.

    They are read once.
    """
    tables = own_file("terms.md").strip().split("\n\n")
    rows = [[line.strip("| ").split(" | ") for line in table.splitlines()] for table in tables]
    return {one[0][0]: dict(one[2:]) for one in rows}


def explained(text: Markup) -> Markup:
    """A sentence on intervals with each kind that it names as a term, which says what it is."""
    # A browser may part a button from the bracket beside it.
    button = r'<button type="button" class="term" data-tip="{}">\2</button>'
    whole = Markup(rf'<span class="whole">\1{button}\3</span>')  # noqa: S704
    found = str(text)
    for term, meaning in terms()["interval"].items():
        named = rf"(\(?)({re.escape(str(escape(term)))})([).,;:]*)"
        found = re.sub(named, str(whole.format(meaning)), found, count=1)
    return Markup(found)  # noqa: S704 (escaped before)


def own_file(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("orchestrator.report.html") / name).read_text(encoding="utf-8")


def policy(style: str, script: str) -> str:
    """Return the policy of a page: nothing is fetched or sent, and only its own script runs."""
    parts = [
        "default-src 'none'",
        f"style-src '{_hash(style)}'",
        f"script-src '{_hash(script)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(parts)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def keyed() -> Callable[[Table], Grid]:
    """Return a function of templates that makes tables grids, each with an anchor of its own."""
    taken: set[str] = set()

    def of(table: Table) -> Grid:
        anchor = free(key("table", table.source, table.key), taken)
        taken.add(anchor)
        return grid(table, anchor)

    return of


def notebook(headline: Sequence[str], notes: Sequence[str], tables: Sequence[Table]) -> str:
    """Return sentences and tables as HTML that stands in a notebook."""
    variables = {"headline": headline, "notes": notes, "tables": tables, "grid": keyed()}
    return template("notebook.html.j2").render(**variables)


def render(
    title: str, headline: Sequence[str], notes: Sequence[str], parts: Sequence[Figure]
) -> str:
    """Return a comparison as one HTML file; without charts where they can't be drawn.

    Args:
        title: Of the page.
        headline: The result in a few sentences.
        notes: What limits it.
        parts: Tables, with a picture where there is one; each with a key of its own.
    """
    figures = [made_safe(one) for one in parts]
    return page(
        "comparison.html.j2", figures, title=title, headline=headline, notes=notes, parts=figures
    )
