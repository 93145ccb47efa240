"""The page in a real browser, opened from the disk, without a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator.report.html import page as html
from tests.browser import IN_CHROMIUM, assert_no_serious_fault
from tests.report import hostile

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


def test_it_prints_on_white_and_with_its_folded_tables(browser, report):
    with opened(browser, report, color_scheme="dark") as (page, _):
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert colour_of(page) == "rgb(255, 255, 255)"
        assert page.locator("details.folded:not([open])").count() == 0


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
        assert_no_serious_fault(page, axe, 20)
