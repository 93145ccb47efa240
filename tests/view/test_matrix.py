"""An item of many models: the matrix of its judgments, and those of a pair when they are wanted."""

from itertools import combinations, permutations
from statistics import fmean
from urllib.parse import urlencode

import pytest

from tests.browser import IN_CHROMIUM, assert_no_fault
from tests.view.pages import opened
from tests.view.test_answers import made

MODELS = ("m-1", "m-2", "m-3", "\u0645\u0648\u062f\u064a\u0644", "\u6a21\u578b", "x|y & <b>")
PAIRS = list(combinations(MODELS, 2))
JUDGES = ("j", "k")
P = {
    ("i0", a, b, judge): round(0.05 + 0.9 * ((3 * n + 5 * (judge == "k")) % 11) / 11, 3)
    for n, (a, b) in enumerate(PAIRS)
    for judge in JUDGES
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made(folder / "many", {("i0", model): f"{model} says so" for model in MODELS}, P)
    return folder


def item(viewer, folder, query=""):
    return viewer(folder).enter().json(f"/api/runs/many/items/0{query}")


def mean_of(a, b):
    found = [p for (_, one, two, _), p in P.items() if (one, two) == (a, b)]
    found += [1 - p for (_, one, two, _), p in P.items() if (one, two) == (b, a)]
    return fmean(found)


def test_many_judgments_come_as_the_mean_of_each_pair(viewer, folder):
    found = item(viewer, folder)
    (matrix,) = found["matrices"]
    assert found["judgments"] == []
    assert {(row, column): p for row, column, p in matrix["rows"]} == {
        (one, two): pytest.approx(mean_of(one, two)) for one, two in permutations(MODELS, 2)
    }


@pytest.mark.parametrize("pair", [PAIRS[4], PAIRS[4][::-1]])
def test_the_judgments_of_a_pair_come_when_they_are_wanted(viewer, folder, pair):
    found = item(viewer, folder, f"?{urlencode([('between', one) for one in pair])}")
    assert [one["judge"] for one in found["judgments"]] == list(JUDGES)
    assert {frozenset((one["model_a"], one["model_b"])) for one in found["judgments"]} == {
        frozenset(pair)
    }


def test_every_pair_of_many_models_is_in_the_matrix(viewer, tmp_path):
    models = [f"m{k}" for k in range(24)]
    preferences = {("i0", a, b, judge): 0.7 for a, b in combinations(models, 2) for judge in JUDGES}
    made(tmp_path / "many", {("i0", model): "yes" for model in models}, preferences)
    (matrix,) = item(viewer, tmp_path)["matrices"]
    assert {(row, column) for row, column, _ in matrix["rows"]} == set(permutations(models, 2))


class TestInChromium:
    pytestmark = IN_CHROMIUM

    @pytest.mark.parametrize("width", [1280, 390])
    def test_a_cell_opens_its_judgments_and_keys_move(self, browser, axe, links, width):
        asked = []
        size = {"width": width, "height": 900}
        with opened(browser, links, "/run/many/item/0", viewport=size) as (page, said):
            page.on("request", lambda one: asked.append(one.url))
            cells = page.locator(".matrix td button")
            assert cells.count() == len(MODELS) * (len(MODELS) - 1)
            worth = {
                one: fmean(mean_of(one, two) for two in MODELS if two != one) for one in MODELS
            }
            rows = page.locator(".matrix tbody th bdi").all_inner_texts()
            assert rows == sorted(MODELS, key=lambda one: -worth[one])
            assert page.locator(".judgment").count() == 0
            assert page.locator(".matrix [tabindex='0']").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert_no_fault(page, axe, 10)
            assert not [one for one in asked if "/trace" in one]
            cells.first.focus()
            page.keyboard.press("ArrowDown")
            page.keyboard.press("Enter")
            page.wait_for_url(lambda url: "between=" in url)
            page.locator(".judgment").nth(1).wait_for()
            assert page.locator(".judgment").count() == len(JUDGES)
            assert "/item/0" in page.url
            page.reload()
            page.locator(".judgment").nth(1).wait_for()
            assert page.locator(".matrix [aria-pressed=true]").count() == 1
            assert said == []
