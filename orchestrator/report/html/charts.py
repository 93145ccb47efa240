"""Altair charts of pictures, and charts as SVG and as files; needs the extra `[report]`.

Colours are those of Okabe and Ito (2008), safe for the colour-blind. Ink, grid and ground have
colours of their own here, which the page's style sheet replaces in the dark.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import altair as alt
import vl_convert

from orchestrator.disk import files
from orchestrator.errors import OrchestratorError, on_disk_error
from orchestrator.figures import Figure, Picture

PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C00")
INK: Final = "#1b1f24"
MUTED: Final = "#5b6470"
GRID: Final = "#dfe3e8"
_DARK_TEXT: Final = "#101010"
_LIGHT_TEXT: Final = "#fdfdfd"
# From the middle of a matrix's scale to its ends, as a share, where dark text is hard to read.
_OVER_BLACK: Final = 0.82
# Orange to blue through white: safe for the colour-blind, and readable in grey at the ends.
_DIVERGING: Final = ("#b35806", "#f1a340", "#fee0b6", "#f7f7f7", "#c6dbef", "#6baed6", "#1f5fa8")
# With its labels a chart is as wide as the column of a telephone can shrink without loss.
_WIDTH: Final = 440
# One that has the page to itself, and is moved sideways there.
_WIDE: Final = 640
_ROW: Final = 28
# About the width of a letter of a label.
_LETTER: Final = 7.5
_ROWS: Final = "rows"
# What sums of floating-point numbers stray by, as a share.
_ROUNDING: Final = 1e-9
# Labels of an axis that stand apart also where a page shrinks the chart.
_TICKS: Final = 6
_FEW: Final = alt.Axis(tickCount=_TICKS)
_MOST_LABELS: Final = 25
_FONT: Final = "Helvetica, Arial, sans-serif"

# Altair copies a chart at each step, so its rows come in at the end.
_BASE: Final = alt.Chart(alt.NamedData(name=_ROWS))

_Chart = alt.Chart | alt.LayerChart | alt.FacetChart
_Row = Mapping[str, Any]


def draw(picture: Picture) -> dict[str, Any]:
    """The chart of a picture as Vega-Lite, its rows under "datasets"."""
    kinds: dict[str, Callable[[Picture], _Chart]] = {
        "intervals": _intervals,
        "matrix": _matrix,
        "bars": _bars,
        "lines": _lines,
    }
    specified: dict[str, Any] = _styled(kinds[picture.kind](picture)).to_dict(validate=False)
    # The rows, with what their chart needs beside them
    rows = [dict(row) for row in picture.rows]
    if picture.kind == "intervals":
        low, high = _ends(picture)
        room = 0.06 * (high - low) or 1.0
        low, high = low - room, high + room
        for row in rows:
            row["from"] = low if row["low_open"] else row["low"]
            row["to"] = high if row["high_open"] else row["high"]
    if picture.kind == "matrix":
        low, high = picture.options["domain"]
        for row in rows:
            row["on_dark"] = abs(2 * (row["value"] - low) / (high - low) - 1) > _OVER_BLACK
    specified["datasets"] = specified.get("datasets", {}) | {_ROWS: rows}
    return specified


def _ends(picture: Picture) -> tuple[float, float]:
    """The lowest and the highest number of a picture of intervals."""
    ends = [row[end] for row in picture.rows for end in ("value", "low", "high")]
    known = [end for end in ends if end is not None]
    return min(known), max(known)


def _around(picture: Picture) -> list[float] | None:
    """A range for numbers that differ by rounding alone; None where they differ by more."""
    low, high = _ends(picture)
    size = max(1.0, abs(low), abs(high))
    if high - low > _ROUNDING * size:
        return None
    # Shares and correlations end at 1.
    middle = round(low) if size > 1.0 + _ROUNDING else 0
    return [middle - 1.0, middle + 1.0]


def _styled(chart: _Chart) -> _Chart:
    styled: _Chart = (
        chart.configure(background="transparent", font=_FONT)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK,
            titleColor=MUTED,
            labelFontSize=14,
            titleFontSize=13,
            titleFontWeight="normal",
            titlePadding=8,
            labelPadding=6,
            gridColor=GRID,
            domainColor=GRID,
            tickColor=GRID,
            labelLimit=320,
            labelFlush=False,
        )
        .configure_legend(
            labelColor=INK, titleColor=MUTED, labelFontSize=14, labelLimit=260, symbolOpacity=1
        )
        .configure_header(labelColor=INK, labelFontSize=14, labelLimit=260, labelFontWeight="bold")
    )
    return styled


def _colour(groups: Sequence[str]) -> alt.Color | alt.ColorValue:
    if not groups:
        return alt.ColorValue(PALETTE[0])
    colours = [PALETTE[i % len(PALETTE)] for i in range(len(groups))]
    # One group needs no key: the title of its figure names it.
    legend = alt.Legend(title=None, orient="top", columns=4, symbolStrokeWidth=2)
    return alt.Color(
        "group:N",
        scale=alt.Scale(domain=list(groups), range=colours),
        legend=legend if len(groups) > 1 else None,
    )


def _form(picture: Picture) -> Any:  # noqa: ANN401 (a text, or Altair's own default)
    # An empty format would be D3's shortest one: 7e+2.
    return "%" if picture.options.get("percent") else picture.options.get("format", alt.Undefined)


def _zero(picture: Picture) -> list[alt.Chart]:
    if "zero" not in picture.options:
        return []
    rule = alt.Chart(alt.InlineData(values=[{"at": picture.options["zero"]}])).mark_rule(
        color=MUTED, strokeDash=[4, 3], aria=False
    )
    return [rule.encode(x="at:Q")]


def _intervals(picture: Picture) -> _Chart:
    order = list(dict.fromkeys(row["label"] for row in picture.rows))
    domain = picture.options.get("domain") or _around(picture)
    scale = alt.Scale(domain=domain) if domain else alt.Scale(zero=False, nice=False, padding=12)
    x_axis = alt.Axis(title=picture.x, format=_form(picture), grid=True, tickCount=_TICKS)
    y = alt.Y(
        "label:N", sort=order, title=None, axis=alt.Axis(grid=False, domain=False, ticks=False)
    )
    encoded: dict[str, Any] = {"y": y, "color": _colour(picture.groups), "description": "tip:N"}
    if picture.groups:
        encoded["yOffset"] = alt.YOffset("group:N", sort=list(picture.groups))
    bars = _BASE.mark_rule(strokeWidth=3, opacity=0.55).encode(
        x=alt.X("from:Q", scale=scale, axis=x_axis), x2="to:Q", **encoded
    )
    dots = _BASE.transform_filter("datum.value !== null").mark_point(
        filled=True, size=70, opacity=1
    )
    dots = dots.encode(
        x=alt.X("value:Q", scale=scale, axis=x_axis), **encoded, **_shape(picture.groups)
    )
    ends = [
        _BASE.transform_filter(f"datum.{side}_open")
        .mark_point(shape=f"triangle-{way}", filled=True, size=60, opacity=1)
        .encode(x=alt.X(f"{end}:Q", scale=scale, axis=x_axis), **encoded)
        for side, way, end in (("low", "left", "from"), ("high", "right", "to"))
    ]
    step = max(_ROW, 11 * max(1, len(picture.groups)) + 10)
    return alt.layer(*_zero(picture), bars, dots, *ends).properties(
        width=_WIDE if picture.options.get("wide") else _WIDTH,
        height=alt.Step(step, **{"for": "position"}) if picture.groups else alt.Step(step),
    )


def _shape(groups: Sequence[str]) -> dict[str, alt.Shape]:
    """Colour is never the only difference."""
    if not groups:
        return {}
    shapes = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "wedge"]
    domain = list(groups)
    chosen = [shapes[i % len(shapes)] for i in range(len(domain))]
    return {
        "shape": alt.Shape("group:N", scale=alt.Scale(domain=domain, range=chosen), legend=None)
    }


def _matrix(picture: Picture) -> _Chart:
    options = picture.options
    columns, rows = list(options["columns"]), list(options["order"])
    room = _WIDE if options.get("wide") else _WIDTH
    wide = min(90.0, max(34.0, room / max(1, len(columns))))
    # Names that are wider than their column stand at an angle.
    is_level = all(len(column) * _LETTER <= wide for column in columns)
    axis = alt.Axis(orient="top", labelAngle=0 if is_level else -40, domain=False, ticks=False)
    x = alt.X("column:N", sort=columns, title=picture.x or None, axis=axis)
    y = alt.Y("row:N", sort=rows, title=picture.y or None, axis=alt.Axis(domain=False, ticks=False))
    base = _BASE.encode(x=x, y=y)
    squares = base.mark_rect(cornerRadius=2).encode(
        color=alt.Color(
            "value:Q",
            scale=alt.Scale(domain=list(options["domain"]), range=list(_DIVERGING)),
            legend=None,
        ),
        description="tip:N",
    )
    # The text would otherwise be in the way of what is said of the square.
    words = base.mark_text(fontSize=11, aria=False).encode(
        text="text:N",
        color=alt.condition("datum.on_dark", alt.value(_LIGHT_TEXT), alt.value(_DARK_TEXT)),
    )
    drawn: _Chart = (squares + words).properties(
        width=wide * len(columns), height=30 * len({row["row"] for row in picture.rows})
    )
    return drawn


def _bars(picture: Picture) -> _Chart:
    options = picture.options
    y = alt.Y("value:Q", title=None if picture.groups else picture.y, axis=alt.Axis(tickCount=3))
    title = f"{picture.x} (height: {picture.y})" if picture.groups else picture.x
    if options.get("binned"):
        x: Any = alt.X(
            "x:Q", bin="binned", title=title, axis=alt.Axis(grid=False, tickCount=_TICKS)
        )
        encoded = {"x": x, "x2": "x2:Q"}
    else:
        # Words below each other: side by side those of neighbouring bars would collide.
        order = list(options["order"])
        # Of a fine scale only some bars have a label.
        step = next(n for n in (1, 10, 20, 50, len(order)) if len(order) <= n * _MOST_LABELS)
        words = "split(datum.label, ' ')"
        axis = alt.Axis(labelAngle=0, grid=False, labelExpr=words, values=order[::step])
        x = alt.X("x:N", sort=order, title=title, axis=axis)
        encoded = {"x": x}
    bars: alt.Chart = _BASE.mark_bar().encode(
        **encoded, y=y, color=_colour(picture.groups), description="tip:N"
    )
    if not picture.groups:
        return bars.properties(width=_WIDTH, height=160)
    bars = bars.encode(
        color=_colour(picture.groups).legend(None),
        row=alt.Row(
            "group:N",
            sort=list(picture.groups),
            title=None,
            header=alt.Header(labelAngle=0, labelAnchor="start", labelOrient="top", labelPadding=2),
        ),
    )
    faceted: _Chart = bars.properties(width=_WIDTH, height=70).configure_facet(spacing=8)
    return faceted


def _lines(picture: Picture) -> _Chart:
    x = alt.X("x:Q", title=picture.x, scale=alt.Scale(zero=False, nice=False), axis=_FEW)
    y = alt.Y(
        "value:Q",
        title=picture.y,
        scale=alt.Scale(zero=True) if picture.options.get("open") else alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format=_form(picture), tickCount=_TICKS),
    )
    colour = _colour(picture.groups)
    # Bins have their own intervals; those of a curve are a band.
    is_binned = "diagonal" in picture.options
    mark = (
        _BASE.mark_rule(opacity=0.6, aria=False)
        if is_binned
        else _BASE.mark_area(opacity=0.18, aria=False)
    )
    band = mark.encode(x=x, y="low:Q", y2="high:Q", color=colour)
    line = _BASE.mark_line(strokeWidth=2, aria=False).encode(x=x, y=y, color=colour)
    dots = _BASE.mark_point(filled=True, size=22, opacity=1).encode(
        x=x, y=y, color=colour, description="tip:N", **_shape(picture.groups)
    )
    beside = _zero(picture)
    if is_binned:
        # The line on which both axes have the same value.
        ends = [{"a": at, "b": at} for at in picture.options["diagonal"]]
        same = alt.Chart(alt.InlineData(values=ends))
        same = same.mark_line(color=MUTED, strokeDash=[4, 3], strokeWidth=1, aria=False)
        beside.append(same.encode(x="a:Q", y="b:Q"))
    return alt.layer(band, *beside, line, dots).properties(width=_WIDTH, height=260)


# Charts as SVG that may stand in a page, and as files; needs the extra `[report]`.
#
# Vega runs here and not in the reader's browser: it needs `eval`, which the page's content security
# policy refuses, and it is 900 kB. What is left of its interaction is a text for each mark.


_SVG: Final = "http://www.w3.org/2000/svg"
_ALLOWED: Final = frozenset({
    "svg", "g", "path", "line", "rect", "text", "tspan", "circle", "defs", "clipPath", "title",
    "linearGradient", "stop",
})  # fmt: skip
_DROPPED: Final = frozenset({"style", "role", "aria-hidden", "tabindex", "class", "pointer-events"})
_GUIDES: Final = frozenset({"axis", "legend", "title", "group mark container", "header"})
_REFERENCE: Final = re.compile(r"url\(#([^)]*)\)")
_SCALE: Final = 2
# A wider chart would be illegible if a telephone shrank it.
_BROAD_PX: Final = 600


def specification(figure: Figure) -> dict[str, object] | None:
    """The figure as Vega-Lite; None where it has no picture, or one of points and no curve."""
    picture = figure.picture
    if picture is None:
        return None
    is_curved = picture.kind != "lines" or len(picture.rows) > len(
        {row["group"] for row in picture.rows}
    )
    return draw(picture) if is_curved else None


def svg(specified: dict[str, Any], prefix: str, alternative: str) -> str:
    """A chart as SVG for a page.

    Args:
        specified: Vega-Lite.
        prefix: Makes its ids unique in the page.
        alternative: What it shows, for those who don't see it.

    Raises:
        OrchestratorError: If it holds anything but shapes and text.
    """
    ET.register_namespace("", _SVG)
    root = ET.fromstring(  # noqa: S314 (what vl-convert has just written)
        vl_convert.vegalite_to_svg(specified, allowed_base_urls=[])
    )
    for element in root.iter():
        _clean(element, prefix)
    if float(root.get("width", "0")) > _BROAD_PX:
        root.set("class", "broad")
    root.set("role", "img")
    root.set("aria-label", alternative)
    return ET.tostring(root, encoding="unicode")


def _clean(element: ET.Element, prefix: str) -> None:
    tag = element.tag.removeprefix(f"{{{_SVG}}}")
    if tag not in _ALLOWED:
        raise OrchestratorError(f"a chart holds <{tag}>")
    role = element.attrib.pop("aria-roledescription", "")
    label = element.attrib.pop("aria-label", "")
    if label and role not in _GUIDES and not role.endswith("container"):
        element.set("data-tip", label)
    for name in list(element.attrib):
        if name.startswith("on") or "href" in name or name in _DROPPED:
            del element.attrib[name]
        elif name == "id":
            element.set("id", f"{prefix}-{element.attrib['id']}")
        elif "url(" in (value := element.attrib[name]):
            element.set(name, _REFERENCE.sub(rf"url(#{prefix}-\1)", value))


def write_charts(figures: list[Figure], folder: Path) -> list[Path]:
    """Write each figure as `<key>.svg`, `.pdf` and `.png`, and return their paths.

    Raises:
        UsageError: If a file can't be written.
    """
    written: list[Path] = []
    with on_disk_error(f"{folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            if figure.picture is None:
                continue
            # A file of its own stands on any ground, so it brings one.
            found = {**draw(figure.picture), "background": "white", "padding": 12}
            for suffix, content in (
                ("svg", vl_convert.vegalite_to_svg(found, allowed_base_urls=[]).encode()),
                ("pdf", vl_convert.vegalite_to_pdf(found, allowed_base_urls=[])),
                ("png", vl_convert.vegalite_to_png(found, scale=_SCALE, allowed_base_urls=[])),
            ):
                path = folder / f"{figure.key}.{suffix}"
                files.write(path, content)
                written.append(path)
    return written
