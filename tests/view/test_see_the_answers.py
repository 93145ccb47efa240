"""The questions of docs/viewer.md, each answered by its clicks in a real browser."""

import re
import shlex
from itertools import pairwise, product
from urllib.parse import urljoin

import numpy as np
import pytest

import orchestrator
from orchestrator.report.brief import brief
from orchestrator.report.html.page import content
from orchestrator.report.html.shell import terms
from orchestrator.report.progress import Cost
from tests.browser import IN_CHROMIUM, assert_no_fault
from tests.conftest import ROOT
from tests.report import hostile
from tests.report.samples import an_analysis
from tests.report.test_html_browser import opened as report_opened
from tests.view.pages import opened, served
from tests.view.test_answers import JUDGES, PAIRS, made

pytestmark = IN_CHROMIUM

PAGE = (ROOT / "docs" / "viewer.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.*\?) \| (`Items and answers`.*) \|$", PAGE, re.MULTILINE)
ON_PAGE = re.findall(r"^\| .*\? \| on the page: `(.*)` \|$", PAGE, re.MULTILINE)
# The names of the page for those of the run that is made here.
NAMES = {"weak": "one", "mid": "two", "strong": "x|y & <b>"}
THEN = " \u203a "
N = 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    for name, tail in (("a", ""), ("b", "!")):
        texts = {
            (f"i{k}", model): f"{model} {'says more ' * (k * at % 5)}{tail * (k % 2)}"
            for k, (at, model) in product(range(N), enumerate(NAMES.values(), 1))
        }
        # Nobody wins the first one.
        preferences = {
            (f"i{k}", a, b, judge): 0.5 if k == 0 else float(rng.choice([0.1, 0.5, 0.8]))
            for k, (a, b), judge in product(range(N), PAIRS, JUDGES)
        }
        made(folder / name, texts, preferences, cut={("i1", "one")}, failed={("i2", "two")})
    return folder


@pytest.mark.parametrize("shown", ON_PAGE)
def test_a_question_is_answered_on_the_page_of_the_run(shown):
    found = brief(rankings=[an_analysis()], cost=Cost(requests=3))
    assert shown in content(hostile.material(brief=found))


def test_there_are_twenty_questions_or_more_of_at_most_three_clicks():
    assert len(ROWS) >= 20
    assert all(len(clicks.split(THEN)) <= 3 for _, clicks in ROWS)


@pytest.mark.parametrize("clicks", [clicks for _, clicks in ROWS])
def test_a_question_is_answered_by_its_clicks(browser, links, clicks):
    with opened(browser, links, "/run/a") as (page, said):
        for click in clicks.split(THEN):
            (what,) = re.findall("`(.*)`", click)
            what = NAMES.get(what, what)
            what = what.replace("of weak", "of one")
            label = click.partition(":")[0]
            if not click.startswith("`"):
                page.get_by_label(label, exact=True).select_option(what)
                page.wait_for_url(re.compile(r"\?"))
                continue
            found = page.get_by_role("link", name=what, exact=True)
            found = found.or_(page.get_by_role("button", name=what, exact=True))
            if what == "CSV":
                with page.expect_download() as saved:
                    found.first.click()
                assert saved.value.suggested_filename == "a-items.csv"
                return
            found.first.click()
        if "Show" in clicks and "with notes" not in clicks:
            shown = page.locator(".tools .said")
            part = rf"^{N} items$" if "label" in clicks else rf"^[1-{N - 1}] of {N} items$"
            shown.filter(has_text=re.compile(part)).wait_for()
            assert page.locator(".list .row.tall").count() >= 1
        if "Good" in clicks:
            page.locator(".note-editor button[aria-pressed=true]").first.wait_for()
        assert said == []


def test_each_number_of_two_runs_leads_to_the_items_behind_it(browser, links):
    with opened(browser, links, "/compare?a=a&b=b") as (page, said):
        page.locator("a.behind-it").first.wait_for()
        is_compared = "table => /difference.*resolved/.test(table.tHead.textContent)"
        for table in page.locator("table.data").all():
            if table.evaluate(is_compared):
                # What it is in each run, and the difference.
                assert [
                    row.locator("a.behind-it").count() for row in table.locator("tbody tr").all()
                ] == [3] * len(NAMES)
        hrefs = {one.get_attribute("href") for one in page.locator("a.behind-it").all()}
        assert {"show=changed", "show=lost"} <= {*re.findall(r"show=\w+", " ".join(hrefs))}
        shown = page.locator(".tools .said")
        for href in hrefs:
            page.goto(urljoin(page.url, href))
            shown.filter(has_text=re.compile(r"^[1-9].* items?$")).wait_for()
            if "show=changed" in href:
                assert page.get_by_label("What changed").input_value().startswith("worth of ")
                page.get_by_label("What changed").select_option("")
                page.wait_for_url(lambda now: "of=" not in now and "change&" not in now)
                page.get_by_label("What changed").select_option("pairwise_ranking.margin")
                page.wait_for_url(re.compile("of=pairwise_ranking.margin"))
                shown.filter(has_text=re.compile(r"^[1-9].* items?$")).wait_for()
        assert said == []


def test_a_link_opens_the_same_view_again(browser, links):
    asked = "/run/a/items?show=lost&of=one&to=two&lines=8"
    with opened(browser, links, asked) as (page, said):
        assert page.get_by_label("Who won").input_value() == "two"
        rows = page.locator(".list .row.tall a").all_inner_texts()
        assert rows
        page.locator(".list .row.tall a").first.click()
        page.wait_for_selector(".answers")
        assert "show=lost" in page.url
        page.keyboard.press("u")
        page.wait_for_selector(".list .row.tall")
        assert page.locator(".list .row.tall a").all_inner_texts() == rows
        assert said == []


def test_a_heading_sorts_by_worth_and_the_link_opens_this_order_again(browser, links):
    with opened(browser, links, "/run/a/items") as (page, said):
        page.get_by_role("columnheader").get_by_role("button", name="two", exact=True).click()
        page.wait_for_url(re.compile("sort=-worth"))
        page.locator("[aria-sort=descending]", has_text="two").wait_for()
        cells = page.locator(".list .row.tall > :nth-child(4)")
        worth = [
            float(one) for one in cells.locator(".worth b").all_inner_texts() if "★" not in one
        ]
        assert worth == sorted(worth, reverse=True)
        rows = page.locator(".list .row.tall a").all_inner_texts()
        page.reload()
        page.wait_for_selector(".list .row.tall")
        assert page.locator(".list .row.tall a").all_inner_texts() == rows
        assert said == []


def test_a_condition_on_a_text_is_set_and_taken_away(browser, links):
    with opened(browser, links, "/run/a/items") as (page, said):
        page.get_by_label("Measure of the condition").select_option("answer of one")
        page.get_by_label("Comparison").select_option("contains")
        page.get_by_label("Value of the condition").fill("SAYS")
        page.get_by_role("button", name="Add").click()
        counted = page.locator(".tools .said")
        counted.filter(has_text=re.compile(rf"^[1-{N - 1}] of {N} items$")).wait_for()
        page.get_by_role("button", name=re.compile("Remove the condition")).click()
        counted.filter(has_text=f"{N} items").wait_for()
        page.get_by_label("Comparison").select_option("is empty")
        assert page.get_by_label("Value of the condition").is_hidden()
        assert said == []


@pytest.mark.parametrize("touch", [False, True])
def test_a_term_is_explained_where_it_stands(browser, axe, links, touch):
    meanings = terms()
    with opened(browser, links, "/run/a", has_touch=touch) as (page, said):
        found = page.locator(".checks .term").first
        found.tap() if touch else found.focus()
        tip = page.locator("#tip")
        assert tip.text_content() == meanings["beside a result"][found.text_content()]
        page.keyboard.press("Escape")
        assert said == []
    with opened(browser, links, "/run/a/items?rows=numbers", has_touch=touch) as (page, said):
        found = page.get_by_role("columnheader").get_by_role("button", name="margin")
        found.focus()
        assert page.locator("#tip").text_content() == meanings["column"]["margin"]
        assert_no_fault(page, axe, 10)
        assert said == []


def test_a_number_of_the_report_gives_the_command_that_shows_its_items(browser, folder, tmp_path):
    report = orchestrator.load(folder / "a").to_html(tmp_path / "report.html")
    with report_opened(browser, report) as (page, said):
        buttons = page.locator("table.data tbody button.term").all()
        tips = [one.get_attribute("data-tip") for one in buttons]
        assert said == []
    commands = [shlex.split(tip.partition("command: ")[2]) for tip in tips]
    assert all(one[:3] == ["orchestrator", "view", str(folder / "a")] for one in commands)
    options = ["--items", "sort=worth+of+one"]
    assert ["--open", *options] in [one[3:] for one in commands]
    with served(folder / "a", tmp_path / "state", more=options) as link:
        context = browser.new_context()
        page = context.new_page()
        page.goto(link())
        page.locator(".list .row.tall").first.wait_for()
        assert page.url.endswith(f"/run/a/items?{options[1]}")
        page.locator("[aria-sort=ascending]", has_text="one").wait_for()
        context.close()


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_the_answers_fit_each_width_and_no_row_covers_another(browser, axe, links, width):
    with opened(browser, links, "/run/a/items") as (page, said):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_selector(".list .row.tall")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        tops = page.evaluate(
            "[...document.querySelectorAll('.list .spacer .row')].map((one) => {"
            "const box = one.getBoundingClientRect(); return [box.top, box.bottom]; })"
        )
        assert all(one[1] <= two[0] + 0.5 for one, two in pairwise(tops))
        assert said == []
        assert_no_fault(page, axe, 10)
