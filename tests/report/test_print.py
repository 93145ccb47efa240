"""The report of the demo on paper: how many sheets, and what stays together."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import IN_CHROMIUM
from tests.report.test_html_browser import opened

pytestmark = [*IN_CHROMIUM, pytest.mark.models, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
MOST_SHEETS = 6
# A4 within the margins of the style sheet, in pixels of CSS.
WIDTH, HEIGHT = 688, 1016


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The report of `make demo`, on some of its prompts: it has the parts of the whole."""
    folder = tmp_path_factory.mktemp("demo")
    command = ["run", str(ROOT / "recipes" / "pairwise_ranking.yaml"), "--limit", "40", "--html"]
    subprocess.run([sys.executable, "-m", "orchestrator", *command], cwd=folder, check=True)
    return next(folder.rglob("report.html"))


def test_the_demo_is_printed_on_six_sheets_at_most(browser, demo):
    with opened(browser, demo) as (page, _):
        sheets = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
        assert 1 < sheets <= MOST_SHEETS


def test_a_heading_is_printed_with_its_chart(browser, demo):
    with opened(browser, demo, viewport={"width": WIDTH, "height": HEIGHT}) as (page, _):
        page.emulate_media(media="print")
        kept = page.evaluate(
            "[...document.querySelectorAll('figure:has(> .chart)')].map((one) =>"
            " [getComputedStyle(one).breakInside, one.offsetHeight])"
        )
        assert len(kept) > 4
        assert [one for one in kept if one[0] != "avoid" or one[1] > HEIGHT] == []
        after = page.evaluate(
            "[...document.querySelectorAll('main h2, main h3, main h4')]"
            ".map((one) => getComputedStyle(one).breakAfter)"
        )
        assert set(after) == {"avoid"}


def test_a_chart_is_drawn_within_its_column(browser, demo):
    with opened(browser, demo, viewport={"width": WIDTH, "height": HEIGHT}) as (page, _):
        page.emulate_media(media="print")
        beyond = page.evaluate(
            "[...document.querySelectorAll('figure .chart svg')].filter((one) =>"
            " one.getBoundingClientRect().right"
            " > one.closest('figure').getBoundingClientRect().right + 1).length"
        )
        assert beyond == 0


def test_what_only_a_click_uses_is_not_printed(browser, demo):
    with opened(browser, demo) as (page, _):
        offered = page.locator("#glance .checks dd > button").first
        assert offered.is_visible()
        page.emulate_media(media="print")
        assert not offered.is_visible()


def test_the_first_screen_alone_draws_the_ratings(browser, demo):
    with opened(browser, demo) as (page, _):
        assert page.locator("#glance .plot").count() == 3
        assert page.locator("[id^=ratings] .chart").count() == 0
        headings = page.locator("main h3, main h4").all_inner_texts()
        assert [one for one in headings if "pairwise_ranking" in one] == []
