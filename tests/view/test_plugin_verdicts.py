"""The page of an item shows the verdicts of a plug-in by their roles, whatever its columns are."""

import pytest

import orchestrator
from orchestrator.frames import FrameFiles
from orchestrator.runner.results.tables import all_sources
from orchestrator.view.item import page as item_page
from orchestrator.view.items import build
from tests.browser import IN_CHROMIUM
from tests.e2e.runs import CANDIDATES, write_recipe
from tests.inside import fake_server
from tests.view.pages import opened, served, texts

TRIBUNAL = """
from itertools import combinations

from orchestrator.plugin import Combination, Method, PairColumns, Sampling


class Tribunal(Method):
    unit_columns = {"item": "str", "category": "str", "left": "str", "right": "str", "who": "str"}
    columns = {
        "wins": "f64", "wins_first": "f64", "wins_second": "f64",
        "levels_first": "list[f64]", "levels_second": "list[f64]",
        "mass_first": "f64", "mass_second": "f64",
    }
    pairs = PairColumns(
        preference="wins", model_a="left", model_b="right", judge="who",
        preference_ab="wins_first", preference_ba="wins_second",
        p_ab="levels_first", p_ba="levels_second",
        coverage_ab="mass_first", coverage_ba="mass_second",
    )

    def combinations(self, candidates):
        return [Combination(pair) for pair in combinations(candidates, 2)]

    def identify(self, unit):
        left, right = unit.models
        return {
            "item": unit.item.key, "category": unit.item.category,
            "left": left, "right": right, "who": "tribunal",
        }

    async def evaluate(self, unit, ask):
        for model in unit.models:
            await ask.generate(model, unit.item.messages, Sampling(max_tokens=8))
        return {
            "wins": 0.55, "wins_first": 0.8, "wins_second": 0.3,
            "levels_first": [0.7, 0.2, 0.1], "levels_second": [0.2, 0.2, 0.6],
            "mass_first": 0.97, "mass_second": 0.41,
        }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run of the method, whose file is gone since."""
    folder = tmp_path_factory.mktemp("tribunal")
    plugin = folder / "tribunal.py"
    plugin.write_text(TRIBUNAL)
    methods = [{"kind": "./tribunal.py", "candidates": CANDIDATES}]
    with fake_server() as url:
        recipe = write_recipe(folder / "r.json", url, n=2, methods=methods)
        assert orchestrator.run(recipe, run_dir=folder / "runs" / "one", allow_code=True).ok
    plugin.unlink()
    return folder / "runs"


@pytest.mark.parametrize("allow_code", [False, True])
def test_its_measures_stand_beside_the_items(folder, allow_code):
    result = orchestrator.load(folder / "one")
    assert isinstance(result.frames, FrameFiles)
    sources = all_sources({}, result.settings, allow_code=allow_code).sources
    items = build(result.frames, sources)
    assert {measure.key for measure in items.measures} == {
        "tribunal.gap", "tribunal.flips", "tribunal.margin", "failed"
    }  # fmt: skip
    row = items.table.row(0, named=True)
    # 0.8 with one order and 0.3 with the other: three pairs, and each winner flips.
    assert row["tribunal.gap"] == pytest.approx(0.5)
    assert row["tribunal.flips"] == 3
    assert row["tribunal.margin"] == pytest.approx(0.1)


def test_its_verdicts_are_judgments_of_the_item(folder):
    frames = orchestrator.load(folder / "one").frames
    assert isinstance(frames, FrameFiles)
    page = item_page(frames, frames["tribunal"]["item"][0])
    assert page["others"] == []
    assert len(page["judgments"]) == 3
    first = page["judgments"][0]
    row = frames["tribunal"].row(0, named=True)
    shown = {
        "model_a": row["left"], "model_b": row["right"], "judge": "tribunal",
        "p_ab": [0.7, 0.2, 0.1], "p_ba": [0.2, 0.2, 0.6], "prefer_a": 0.55,
        "prefer_a_ab": 0.8, "prefer_a_ba": 0.3, "coverage_ab": 0.97, "coverage_ba": 0.41,
    }  # fmt: skip
    assert {name: first[name] for name in shown} == shown


class TestInABrowser:
    pytestmark = IN_CHROMIUM

    def test_its_verdicts_are_drawn_in_both_orders(self, browser, folder, tmp_path):
        with (
            served(folder, tmp_path) as links,
            opened(browser, links, "/run/one/item/0") as (page, said),
        ):
            page.wait_for_selector("article.judgment")
            cases = page.locator("article.judgment")
            assert cases.count() == 3
            case = cases.first
            assert texts(case.locator("h3"))[0].startswith("tribunal: A is ")
            assert texts(case.locator(".order h4")) == ["A shown first", "B shown first"]
            basis = texts(case.locator("p.basis"))
            assert basis[0].startswith("P(A better) 0.55 over both orders")
            assert "flips with the order" in basis[0]
            assert "P(A better) 0.80" in basis[1]
            assert "P(A better) 0.30" in basis[2]
            # The coverage of the second order is low, which is marked.
            assert texts(case.locator(".order .bad")) == ["probability on the labels 41 %"]
            assert said == []
