"""Labelling in a browser: by keys and by clicks, blind, and what the sheet then holds."""

import pytest

from tests.browser import IN_CHROMIUM, assert_no_fault
from tests.layout import colliding, cut_off, too_wide
from tests.view.pages import opened, served
from tests.view.pages import values_of_sheet as values
from tests.view.test_labelling import write_sheet

pytestmark = IN_CHROMIUM


@pytest.fixture
def sheet(tmp_path):
    return write_sheet(tmp_path, n=4)


@pytest.fixture
def links(sheet, tmp_path):
    with served(f"--labels={sheet}", tmp_path / "state") as link:
        yield link


def shows(page, n):
    page.get_by_role("heading", name=f"Row {n} of 4").wait_for()


def test_a_sheet_is_labelled_by_keys_alone(browser, links, sheet):
    with opened(browser, links, "/label") as (page, said):
        for n, key in enumerate("120", start=1):
            shows(page, n)
            page.keyboard.press(key)
        shows(page, 4)
        assert values(sheet) == {"r1": 1.0, "r2": 0.0, "r3": 0.5}
        page.keyboard.press("ArrowLeft")
        shows(page, 3)
        assert page.get_by_role("button", name="Tie").get_attribute("aria-pressed") == "true"
        page.keyboard.press("Backspace")
        page.get_by_text("2 labelled").wait_for()
        assert values(sheet) == {"r1": 1.0, "r2": 0.0}
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") in {"A", "BUTTON", "PRE"}
        assert said == []


def test_a_sheet_is_labelled_by_clicks_and_texts_stay_texts(browser, links, sheet):
    with opened(browser, links, "/") as (page, said):
        shows(page, 1)
        body = page.inner_text("body")
        assert "good" not in body
        assert "Runs" not in body
        page.get_by_role("button", name="Answer 2 is better").click()
        shows(page, 2)
        assert "<script>alert(1)</script>" in page.inner_text(".answers")
        for n in (2, 3, 4):
            shows(page, n)
            page.get_by_role("button", name="Answer 1 is better").click()
        page.get_by_text("4 labelled: all of them").wait_for()
        assert values(sheet) == {"r1": 0.0, "r2": 1.0, "r3": 1.0, "r4": 1.0}
        assert said == []


def test_a_label_that_cannot_be_saved_is_said_and_the_row_stays(browser, links, sheet):
    with opened(browser, links, "/label") as (page, _):
        shows(page, 1)
        sheet.write_text("something else", encoding="utf-8")
        page.keyboard.press("1")
        page.get_by_role("alert").filter(has_text="Not saved").wait_for()
        shows(page, 1)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_has_no_serious_fault(browser, axe, links, width, scheme):
    window = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    with opened(browser, links, "/label", bypass_csp=True, **window) as (page, _):
        shows(page, 1)
        assert too_wide(page) <= 0
        assert cut_off(page) == []
        assert colliding(page) == []
        assert_no_fault(page, axe, 10)
