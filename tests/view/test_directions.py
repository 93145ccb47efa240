"""Names in scripts from right to left in the sentences of the viewer."""

import polars as pl
import pytest

from tests.browser import IN_CHROMIUM
from tests.report import hostile
from tests.view.pages import opened, served
from tests.view.runs import make_run

pytestmark = IN_CHROMIUM

ARABIC, HEBREW = "نموذج كبير", "מודל קטן"
PARTS = """async (text) => {
  const { h, sentence } = await import("/static/dom.js");
  const found = [...h("p", {}, sentence(text)).childNodes].filter((one) => one.textContent);
  return found.map((one) => [one.nodeName, one.textContent]);
}"""
BARE = """() => {
  const found = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const bare = [];
  let n = 0;
  while (found.nextNode()) {
    const { parentElement: parent, data } = found.currentNode;
    if (!/[\\u0590-\\u08ff]/.test(data) || parent.closest("pre, svg")) continue;
    n += 1;
    if (!parent.closest("bdi")) bare.push(data);
  }
  return [n, bare];
}"""


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    names = {hostile.MODELS[0]: ARABIC, hostile.JUDGE: HEBREW}
    frames = {
        name: frame.with_columns(pl.col(pl.String).replace(names))
        for name, frame in hostile.frames(20).items()
    }
    make_run(folder / "demo", frames, hostile.SETTINGS)
    with served(folder, tmp_path_factory.mktemp("state")) as link:
        yield link


def test_each_name_of_a_sentence_is_isolated(browser, links):
    with opened(browser, links, "/") as (page, _):
        assert page.evaluate(PARTS, f"{ARABIC} - {HEBREW}: 3 of <b>5</b>") == [
            ["BDI", ARABIC],
            ["#text", " - "],
            ["BDI", HEBREW],
            ["#text", ": 3 of <b>5</b>"],
        ]
        assert page.evaluate(PARTS, "no such name") == [["#text", "no such name"]]


def test_a_page_has_no_name_that_moves_the_words_beside_it(browser, links):
    with opened(browser, links, "/run/demo") as (page, _):
        page.wait_for_selector("#made")
        n, bare = page.evaluate(BARE)
        assert n > 20
        assert bare == []
