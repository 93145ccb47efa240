"""The viewer's steps of a how-to page, clicked as the page names them."""

import re
import subprocess
import sys

import pytest

from tests.browser import IN_CHROMIUM
from tests.conftest import ROOT
from tests.view.pages import opened, served

pytestmark = [*IN_CHROMIUM, pytest.mark.models, pytest.mark.timeout(400)]

PAGE = (ROOT / "docs" / "how_to" / "why_b.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the run of the page's recipe."""
    folder = tmp_path_factory.mktemp("why")
    (recipe,) = re.findall(r"```yaml\n(# why\.yaml\n.*?)```", PAGE, re.DOTALL)
    (folder / "why.yaml").write_text(recipe, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "orchestrator", "run", "why.yaml", "--display", "none"],
        cwd=folder, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return folder / "runs"


def test_the_steps_to_one_judgment_are_as_written(browser, runs, tmp_path):
    (steps,) = re.findall(r"^## 2\. .*?(?=^## 3\.)", PAGE, re.DOTALL | re.MULTILINE)
    named = iter(" ".join(one.split()) for one in re.findall(r"\*([^*]+)\*", steps))

    with served(runs, tmp_path) as link, opened(browser, link, "/") as (page, said):
        page.get_by_role("link", name=next(named), exact=True).click()
        page.get_by_role("link", name=next(named), exact=True).click()
        page.get_by_role("button", name=next(named), exact=True).click()
        measures = [next(named) for _ in range(3)]
        page.wait_for_selector(".tools #search")
        heads = page.get_by_role("columnheader")
        heads.filter(has_text=measures[0]).wait_for()
        assert [name for name in heads.all_inner_texts() if name in measures] == measures
        gap = heads.filter(has_text=measures[0])
        gap.get_by_role("button").click()
        sorted_by = page.locator("[role=columnheader][aria-sort=descending]")
        sorted_by.wait_for()
        assert sorted_by.inner_text() == measures[0]

        (measure, sign, number) = re.findall(r"`(order gap) (>) ([\d.]+)`", steps)[0]
        page.get_by_label("Measure of the condition").select_option(measure)
        page.get_by_label("Comparison").select_option(sign)
        page.get_by_label("Value of the condition").fill(number)
        page.get_by_role("button", name="Add").click()
        condition = page.get_by_role("button", name="Remove the condition")
        condition.wait_for()
        found = page.locator(".tools .said")
        found.filter(has_text=re.compile(r"^\d+ of 20 items$")).wait_for()
        condition.click()
        found.filter(has_text=re.compile(r"^20 items$")).wait_for()

        page.get_by_role("row").nth(1).click()
        judged = page.locator("article.case").first
        judged.wait_for()
        assert page.locator(".answers article").count() == 2
        for shown in ("P(A better)", "A shown first", "B shown first"):
            assert shown in judged.inner_text()
        judged.get_by_text(next(named)).first.click()
        assert judged.locator(".message").first.is_visible()
        page.get_by_role("button", name=next(named), exact=True).click()
        page.locator(".answers .tok").first.wait_for()
        assert next(named, None) is None
    assert said == []
