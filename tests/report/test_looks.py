"""Layout of the report and of the comparison: sizes, alignment, and what a narrow window shows."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator import figures
from orchestrator.figures import Figure, Picture
from orchestrator.report.brief import brief
from orchestrator.report.html import page as html
from orchestrator.report.html.shell import render
from orchestrator.runner.results.tables import all_sources
from orchestrator.tables import Column, Measured, make_table
from tests.browser import IN_CHROMIUM, LIKE_ARIAL, assert_no_fault
from tests.layout import broken, colliding, cut_off, ragged, too_wide, unfold
from tests.report import hostile
from tests.report.samples import an_analysis
from tests.report.test_brief import many
from tests.report.test_html_browser import opened

WIDTHS = (1280, 800, 390)
PRINTED = 718
_SHEETS = {
    "style.css": files("orchestrator.report.html") / "style.css",
    "view.css": files("orchestrator.view.static") / "view.css",
}
_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|\bhsla?\(")
_SIZE = re.compile(r"font-size:\s*([^;}]+)")


def _rules(text: str) -> Iterator[str]:
    """Lines of a style sheet outside `:root` blocks and attribute selectors."""
    outside = re.sub(r":root[^{]*\{[^}]*\}", "", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    return (line for line in outside.splitlines() if not line.startswith("svg ["))


@pytest.mark.parametrize("sheet", _SHEETS)
def test_a_colour_is_a_token_and_is_given_once(sheet):
    found = [line for line in _rules(_SHEETS[sheet].read_text("utf-8")) if _COLOUR.search(line)]
    # The shade behind a dialogue is no colour of a theme.
    assert [line for line in found if "::backdrop" not in line] == []


@pytest.mark.parametrize("sheet", _SHEETS)
def test_a_size_of_letters_is_one_of_the_scale(sheet):
    text = "\n".join(_rules(_SHEETS[sheet].read_text("utf-8")))
    on_screen = text.split("@media print")[0]
    sizes = {found.strip() for found in _SIZE.findall(on_screen)}
    assert {size for size in sizes if not re.fullmatch(r"var\(--t-\w+\)|[.\d]+em", size)} == set()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """The page of a comparison, with differences that rounding alone makes."""
    ratings = make_table(
        "ratings",
        "Ratings on one scale",
        [Column("model"), Column("rating", "rating"), Column("judgments", "count")],
        [
            ("a-model-with-a-long-name-and-a-date-2026-11-23", Measured(1114.0, 1083.0, 1145.0), 7),
            ("small", Measured(978.0, 943.0, 1013.0), 12_000),
            ("tiny", Measured(97.0, 47.0, 148.0), 240),
        ],
    )
    same = make_table(
        "same",
        "B - A",
        [Column("model"), Column("B - A", "signed", 3)],
        [("one", Measured(-2e-13)), ("two", Measured(2e-13))],
    )
    settings = make_table(
        "settings",
        "Settings that differ",
        [Column("setting"), Column("A"), Column("B")],
        [("models.large.limits.max_in_flight", "32", "null"), ("seed", "0", "1")],
    )
    shown = [figures.points(table, 0, 1) for table in (ratings, same)]
    parts = [
        Figure("ratings", ratings.title, "", "", ratings,
               Picture("intervals", shown[0], "rating")),
        Figure("same", same.title, "", "", same,
               Picture("intervals", shown[1], "B - A", options={"zero": 0.0})),
        Figure("settings", settings.title, "", "", settings),
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    text = render("a and b", ["None of 2 can be told from 0."], ["A is runs/a."], parts)
    path.write_text(text, encoding="utf-8")
    return path


def written(folder: Path, **changed: Any) -> Path:
    path = folder / "report.html"
    path.write_text(html.render(hostile.material(**changed)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def thirty(tmp_path_factory):
    """The report of thirty models with long names, and names of several scripts."""
    analysis = an_analysis(many(), n_items=30)
    return written(
        tmp_path_factory.mktemp("thirty"),
        frames={},
        tables=[],
        context=all_sources({}, hostile.SETTINGS),
        rankings=[analysis],
        n_left=0,
        brief=brief(name="thirty", rankings=[analysis]),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A report with charts of every kind."""
    return written(tmp_path_factory.mktemp("whole"))


def in_chromium(test: Any) -> Any:
    for mark in (*IN_CHROMIUM, LIKE_ARIAL):
        test = mark(test)
    return test


PAGES = pytest.mark.parametrize("which", ["thirty", "comparison", "whole"])


@contextmanager
def wide(browser, path: Path) -> Iterator[tuple[Any, Callable[[int], None]]]:
    """A page, which styles alone lay out, and what sets the width of its window."""
    with opened(browser, path) as (page, _):
        yield page, lambda width: page.set_viewport_size({"width": width, "height": 844})


@in_chromium
@PAGES
def test_nothing_is_cut_off(browser, request, which):
    with wide(browser, request.getfixturevalue(which)) as (page, set_width):
        unfold(page)
        for width in WIDTHS:
            set_width(width)
            found = cut_off(page), broken(page)
            assert (width, max(0, too_wide(page)), *found) == (width, 0, [], [])


@in_chromium
@PAGES
def test_labels_of_charts_do_not_collide(browser, request, which):
    with wide(browser, request.getfixturevalue(which)) as (page, set_width):
        unfold(page)
        for width in (1280, 390, PRINTED):
            set_width(width)
            if width == PRINTED:
                page.emulate_media(media="print")
            assert page.locator("main svg text").count() > 5
            assert (width, colliding(page)) == (width, [])


@in_chromium
@pytest.mark.parametrize("which", ["thirty", "whole"])
def test_no_ranking_runs_below_what_stands_beside_it(browser, request, which):
    with wide(browser, request.getfixturevalue(which)) as (page, set_width):
        for width in (900, 960, 1000, 1080, 1160):
            set_width(width)
            over = page.evaluate(
                """() => [...document.querySelectorAll(".forest")].map(
                  (one) => one.scrollWidth - one.parentElement.clientWidth)"""
            )
            assert over
            assert (width, max(0, *over)) == (width, 0)


@in_chromium
@PAGES
def test_numbers_of_a_column_stand_below_each_other(browser, request, which):
    with wide(browser, request.getfixturevalue(which)) as (page, set_width):
        unfold(page)
        assert page.locator("main td.b").count() >= 3
        for width in (1280, 390):
            set_width(width)
            assert (width, ragged(page)) == (width, [])


@in_chromium
def test_a_heading_over_two_cells_sorts_by_its_number(browser, comparison):
    with opened(browser, comparison) as (page, _):
        table = page.locator("table.data").first
        table.locator("th button", has_text="judgments").click()
        assert table.locator("tbody tr td:last-child").all_inner_texts() == ["12,000", "240", "7"]
        table.locator("th button", has_text="rating").click()
        assert table.locator("td.n:nth-child(2)").all_inner_texts() == ["1,114", "978", "97"]


@in_chromium
def test_the_comparison_says_its_result_first(browser, comparison):
    with opened(browser, comparison, viewport={"width": 390, "height": 844}) as (page, _):
        answer = page.locator("h2.answer")
        assert answer.inner_text() == "None of 2 can be told from 0."
        assert answer.bounding_box()["y"] < 300


@in_chromium
def test_axes_have_plain_numbers(browser, comparison):
    with opened(browser, comparison) as (page, _):
        labels = page.locator(".chart svg text").all_text_contents()
        assert {"1,000", "0.0"} <= set(labels)
        assert [one for one in labels if re.search(r"\de\W?\d", one)] == []


@in_chromium
def test_headings_are_printed_on_each_sheet_and_sort_again_afterwards(browser, comparison):
    with opened(browser, comparison) as (page, _):
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("thead button").count() == 0
        assert page.locator("thead th").first.inner_text() == "model"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.locator("th button", has_text="judgments").click()
        assert page.locator("th[aria-sort]").count() == 1


@in_chromium
def test_the_heading_of_a_long_table_stays(browser, thirty):
    with opened(browser, thirty, viewport={"width": 1280, "height": 900}) as (page, _):
        unfold(page)
        region = page.locator(".scroll.tall").first
        region.evaluate("one => { one.scrollTop = 300; }")
        heading = region.locator("thead th").first.bounding_box()
        assert abs(heading["y"] - region.bounding_box()["y"]) < 2


@in_chromium
@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280), ("dark", 390)])
def test_axe_finds_no_fault_in_a_comparison(browser, comparison, axe, scheme, width):
    size = {"width": width, "height": 844}
    with opened(browser, comparison, color_scheme=scheme, viewport=size) as (page, _):
        assert_no_fault(page, axe, 15)


@in_chromium
def test_axe_finds_no_fault_in_thirty_models_on_a_telephone(browser, thirty, axe):
    size = {"width": 390, "height": 844}
    with opened(browser, thirty, color_scheme="dark", viewport=size) as (page, _):
        assert_no_fault(page, axe, 20)


@in_chromium
def test_a_rank_does_not_touch_its_name(browser, thirty):
    with opened(browser, thirty, viewport={"width": 390, "height": 844}) as (page, _):
        for row in page.locator(".forest tbody tr").all()[:20]:
            parts = [row.locator(one).bounding_box() for one in (".rank", "th bdi", ".n >> nth=1")]
            assert all(a["x"] + a["width"] <= b["x"] + 0.5 for a, b in pairwise(parts))


@in_chromium
@pytest.mark.parametrize("height", [300, 1100, 2500])
def test_a_chart_is_printed_on_one_sheet_with_its_heading(browser, tmp_path, height):
    """Charts of many models are taller than a sheet of A4 within its margins, in pixels."""
    width, sheet = 688, 1016
    report = tmp_path / "report.html"
    report.write_text(html.render(hostile.material()), encoding="utf-8")
    with opened(browser, report, viewport={"width": width, "height": sheet}) as (page, _):
        page.emulate_media(media="print")
        page.evaluate(
            "(height) => { for (const one of document.querySelectorAll('figure .chart svg')) {"
            "one.setAttribute('height', height);"
            "one.setAttribute('viewBox', `0 0 ${one.getAttribute('width')} ${height}`); } }",
            height,
        )
        heights = page.evaluate(
            "[...document.querySelectorAll('figure:has(> .chart)')].map((one) => one.offsetHeight)"
        )
        assert heights
        assert max(heights) <= sheet
