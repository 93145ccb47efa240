"""Every number that leads to items leads to some, and to those of its method."""

import html
import json
import re
from itertools import product

import pytest

import orchestrator
from orchestrator.interface.exporting import material
from orchestrator.report.html.page import render
from orchestrator.report.html.shell import own_file
from orchestrator.view.answers import Answers
from tests.browser import IN_CHROMIUM
from tests.view.pages import opened
from tests.view.test_answers import JUDGES, MODELS, PAIRS, made

pytestmark = IN_CHROMIUM
N = 6
NOTHING = "0 of"


@pytest.fixture(scope="module", params=["whole", "failed", "undefined"])
def folder(tmp_path_factory, request):
    """Runs of which nothing is missing, answers failed, or judgments have no value."""
    folder = tmp_path_factory.mktemp("runs")
    texts = {(f"i{k}", model): f"{model} {k}" for k, model in product(range(N), MODELS)}
    preferences = {
        (f"i{k}", a, b, judge): (0.9 if judge == JUDGES[k % 2] else 0.2)
        for k, (a, b), judge in product(range(N), PAIRS, JUDGES)
    }
    failed = {("i2", "two")} if request.param == "failed" else set()
    if request.param == "undefined":
        preferences |= {("i3", *PAIRS[0], judge): float("nan") for judge in JUDGES}
    made(folder / "a", texts, preferences, failed=failed)
    return folder


def test_no_link_of_the_report_leads_to_an_empty_list(browser, links):
    with opened(browser, links, "/run/a") as (page, said):
        page.locator("a.behind-it").first.wait_for(state="attached")
        hrefs = page.eval_on_selector_all("a.behind-it", "all => all.map((one) => one.href)")
        assert any("flips" in one for one in hrefs)
        assert any("split" in one for one in hrefs)
        assert any("gap" in one for one in hrefs)
        for href in dict.fromkeys(hrefs):
            page.goto(href)
            counted = page.locator(".tools .said").filter(has_text="items")
            counted.wait_for()
            # Against another that it never beat, a model has no items behind that.
            if "to=" not in href:
                assert not counted.inner_text().startswith(NOTHING), href
        assert said == []


def test_a_condition_is_shown_in_the_terms_of_its_column(browser, links):
    with opened(browser, links, "/run/a/items?where=pairwise_ranking.gap>0.5") as (page, said):
        chip = page.locator("button.condition")
        assert chip.inner_text().startswith("order gap > 0.5")
        assert chip.get_attribute("aria-label") == "Remove the condition order gap > 0.5"
        assert said == []


META = {
    "models": ["x"],
    "by": ["p", "q"],
    "categories": [],
    "measures": [{"key": key} for key in ("p.flips", "q.flips", "p.gap", "q.undefined", "failed")],
    "counts": {"p.flips": 0, "q.flips": 3, "q.undefined": 1, "failed": 0},
}


def test_the_report_knows_the_methods_that_the_list_knows(folder, tmp_path):
    result = orchestrator.load(folder / "a")
    keys = result.frames["items"]["item"]
    listed = Answers(result.frames, keys, result.context.sources, (), tmp_path).by
    (behind,) = re.findall(r'data-behind="(.*?)"', render(material(result)))
    assert listed
    assert tuple(json.loads(html.unescape(behind))["by"]) == listed


@pytest.mark.parametrize(
    ("row", "of", "led"),
    [
        ({"effect": "winner flips", "judge": "j (q)", "share": "5.0 %"}, "", "q.flips>0"),
        # Nothing flips there, or in no known method.
        ({"effect": "winner flips", "judge": "j (p)", "share": "5.0 %"}, "", None),
        ({"effect": "winner flips", "judge": "j", "share": "5.0 %"}, "", None),
        ({"effect": "winner flips", "judge": "j (q)", "share": "0.0 %"}, "", None),
        ({"effect": "bias", "judge": "j (p)", "share": "5.0 %"}, "", "-p.gap"),
        ({"missing": "2"}, "q", "q.undefined>0"),
        ({"missing": "2"}, "p", None),
        ({"missing": "0"}, "q", None),
        ({"failed": "2"}, "q", None),
        ({"model": "x", "rating": "9.00"}, "q", "q"),
        # Not of whichever method comes first.
        ({"model": "x", "rating": "9.00"}, "an analysis", None),
        ({"model": "x", "rating": "9.00"}, "", None),
    ],
)
def test_a_number_leads_to_items_of_its_own_method_if_there_are_any(browser, row, of, led):
    page = browser.new_page()
    script = own_file("ways.js").replace("export const", "const")
    found = page.evaluate(
        f"(() => {{ {script} return ways(new Map(Object.entries({json.dumps(row)})), "
        f"{json.dumps(META)}, {json.dumps(of)}); }})()"
    )
    page.close()
    assert [parts[-1][1] for _, parts in found] == ([led] if led else [])
