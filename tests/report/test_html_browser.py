"""The page in a real browser, opened from the disk, without a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from orchestrator.report.brief import brief
from orchestrator.report.html import page as html
from tests.browser import IN_CHROMIUM, assert_no_fault
from tests.layout import unfold
from tests.report import hostile
from tests.report.samples import an_analysis
from tests.report.test_brief import many

pytestmark = IN_CHROMIUM


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html.render(hostile.material()), encoding="utf-8")
    return path


@contextmanager
def opened(browser, report, **options) -> Iterator[tuple[Any, list[str]]]:
    """The page, and what it complained about or asked a network for."""
    context = browser.new_context(offline=True, **options)
    said: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(report.as_uri())
    said.remove(report.as_uri())
    try:
        yield page, said
    finally:
        context.close()


def colour_of(page: Any) -> Any:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_hostile_answers_do_nothing(browser, report):
    with opened(browser, report) as (page, said):
        for mark in page.locator("[data-tip]").all()[:20]:
            mark.dispatch_event("pointermove")
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        page.wait_for_timeout(200)
        assert page.evaluate("window.hacked") is None
        assert said == []


def test_a_script_that_is_put_into_the_page_does_not_run(browser, report):
    with opened(browser, report) as (page, _):
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.hacked=1>')"
        )
        page.wait_for_timeout(200)
        assert page.evaluate("window.hacked") is None


def test_it_is_dark_where_the_system_is_and_can_be_switched(browser, report):
    with opened(browser, report, color_scheme="dark") as (page, said):
        dark = colour_of(page)
        page.click("#theme")
        light = colour_of(page)
        assert (dark, light) == ("rgb(20, 23, 27)", "rgb(255, 255, 255)")
        assert said == []


def test_it_prints_on_white_and_only_what_is_open(browser, report):
    with opened(browser, report, color_scheme="dark") as (page, _):
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert colour_of(page) == "rgb(255, 255, 255)"
        shut, opened_one = (
            page.locator(f"details.folded{one}") for one in (":not([open])", "[open]")
        )
        assert shut.count() > 3
        assert not any(one.is_visible() for one in shut.all())
        assert all(one.is_visible() for one in opened_one.all())


def test_a_mark_says_what_it_is(browser, report):
    with opened(browser, report) as (page, _):
        mark = page.locator("figure [data-tip]").first
        mark.hover(force=True)
        assert page.locator("#tip").text_content() == mark.get_attribute("data-tip")


def test_tables_are_sorted_by_their_headings(browser, report):
    with opened(browser, report) as (page, _):
        table = page.locator("#coverage-of-rows table")
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        table.locator("th button", has_text="rows").click()
        rows = [int(t.replace(",", "")) for t in table.locator("td:nth-child(2)").all_inner_texts()]
        assert rows == sorted(rows, reverse=True)
        table.locator("th button", has_text="rows").click()
        again = table.locator("td:nth-child(2)").all_inner_texts()
        assert [int(t.replace(",", "")) for t in again] == sorted(rows)


def test_it_is_no_wider_than_a_telephone(browser, report):
    with opened(browser, report, viewport={"width": 390, "height": 800}) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_it_reads_without_scripts(browser, report):
    with opened(browser, report, java_script_enabled=False) as (page, said):
        assert page.locator("figure svg[role=img]").count() >= 6
        assert said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser, report, axe, scheme):
    with opened(browser, report, color_scheme=scheme) as (page, _):
        assert_no_fault(page, axe, 20)


@pytest.fixture(scope="module")
def thirty(tmp_path_factory):
    """The page of thirty models with long names, and names of several scripts."""
    analysis = an_analysis(many(), n_items=30)
    found = hostile.material(
        rankings=[analysis], n_left=0, brief=brief(name="thirty", rankings=[analysis])
    )
    path = tmp_path_factory.mktemp("thirty") / "report.html"
    path.write_text(html.render(found), encoding="utf-8")
    return path


@pytest.mark.parametrize("which", ["report", "thirty"])
def test_the_answer_is_on_the_first_screen_of_a_telephone(browser, request, which):
    path = request.getfixturevalue(which)
    with opened(browser, path, viewport={"width": 390, "height": 844}) as (page, _):
        answer = page.locator("h2.answer").bounding_box()
        first = page.locator(".forest tbody tr").first.bounding_box()
        assert answer["y"] + answer["height"] < 844
        assert first["y"] + first["height"] < 844
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_thirty_models_keep_their_rows_and_the_axis_its_ticks_apart(browser, thirty, width):
    with opened(browser, thirty, viewport={"width": width, "height": 900}) as (page, _):
        assert page.locator(".forest tbody tr").count() == 30
        names = page.locator(".forest tbody th").all_inner_texts()
        assert len(set(names)) == 30
        boxes = [one.bounding_box() for one in page.locator(".axis text").all()]
        boxes.sort(key=lambda box: box["x"])
        assert len(boxes) >= 2
        assert all(a["x"] + a["width"] < b["x"] for a, b in pairwise(boxes))
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_name_from_right_to_left_moves_no_word_beside_it(browser, thirty):
    with opened(browser, thirty) as (page, _):
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        bare = page.evaluate(
            """() => {
              const main = document.querySelector("main");
              const found = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
              const bare = [];
              while (found.nextNode()) {
                const { parentElement: parent, data } = found.currentNode;
                const is_arabic = /[\\u0590-\\u08ff]/.test(data);
                if (is_arabic && !parent.closest("bdi, pre, svg")) bare.push(data);
              }
              return bare;
            }"""
        )
        assert bare == []


def test_a_print_has_whole_what_is_unfolded(browser, thirty):
    with opened(browser, thirty, viewport={"width": 718, "height": 1000}) as (page, _):
        unfold(page)
        page.emulate_media(media="print")
        hidden = page.evaluate(
            "[...document.querySelectorAll('main table, pre')]"
            ".filter((one) => !one.offsetHeight || one.scrollHeight > one.clientHeight + 1).length"
        )
        assert hidden == 0
