"""Terms of the report say what they mean: under the pointer, at the focus, at a touch."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from orchestrator.columns import score_words
from orchestrator.report.generic import generic_json, generic_markdown
from orchestrator.report.html import shell
from orchestrator.runner.results.tables import all_sources
from orchestrator.tables import cell_text, make_table, table_columns
from tests.browser import IN_CHROMIUM, assert_no_fault
from tests.conftest import ROOT
from tests.report.test_html_browser import opened, report  # noqa: F401 (fixture)

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
WANTED = {"form", "margin", "order gap", "group", "coverage", "order", "rank", "rating"}


def in_chromium(test):
    for mark in IN_CHROMIUM:
        test = mark(test)
    return test


def test_the_glossary_has_the_same_text_by_including_it():
    assert "```{include} ../orchestrator/report/html/terms.md\n" in GLOSSARY.read_text("utf-8")
    found = shell.terms()
    assert list(found) == ["beside a result", "column", "interval", "heading", "score"]
    assert {term for of in found.values() for term in of} >= WANTED
    assert all(meaning and "|" not in meaning for of in found.values() for meaning in of.values())


def test_the_headings_of_analyses_are_terms():
    """Every table of an analysis whose title is one text says what it is about."""
    titles = set()
    for path in (Path(shell.__file__).parents[2] / "analyses").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "make_table":
                titles |= {one.value for one in node.args[1:2] if isinstance(one, ast.Constant)}
    assert len(titles) > 10
    plain = {"What is known", "What was varied", "Scores in each category"}
    meant = {*shell.terms()["heading"], "Methods and the true order of models"}
    assert titles - meant - plain - {"Winners in each category"} == set()


def test_a_heading_with_the_name_of_its_method_is_the_same_term():
    meant = shell.template("brief.html.j2").module.meant  # type: ignore[attr-defined]  # a macro
    meaning = shell.terms()["heading"]["Each judge"]
    for title in ("Each judge", "Each judge (jury)", "Each judge: accuracy (jury)"):
        assert meant(title) == meaning
    assert meant("Each judgment") == ""


def test_no_kind_of_interval_is_named_in_the_meaning_of_another():
    kinds = shell.terms()["interval"]
    assert not [one for one in kinds for two in kinds if one != two and one in kinds[two]]


def test_kinds_of_intervals_are_terms_in_a_sentence():
    said = shell.explained(
        shell.isolated("intervals by Gaffke's test of bounded means; Bradley-Terry")
    )
    assert said.count('<button type="button" class="term"') == 2
    assert ">Gaffke&#39;s test</button>" in said
    beside = shell.explained(shell.isolated("all pairs tested together (Holm); <b>"))
    assert '<span class="whole">(<button' in beside
    assert "Holm</button>);</span> &lt;b&gt;" in beside


def test_the_subject_of_each_check_is_a_term():
    sources = (Path(shell.__file__).parents[1]).glob("*.py")
    subjects = {
        one for path in sources for one in re.findall(r'Check\(\s*"(\w+)"', path.read_text("utf-8"))
    }
    assert len(subjects) > 10
    assert subjects <= shell.terms()["beside a result"].keys()


@in_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_a_term_is_explained_at_the_focus_until_it_is_left(browser, report, width):  # noqa: F811
    with opened(browser, report, viewport={"width": width, "height": 800}) as (page, said):
        terms = page.locator("main .term:visible")
        assert terms.count() > 8
        tip = page.locator("#tip")
        for term in terms.all()[:12]:
            term.focus()
            said_of = term.evaluate("one => one.closest('[data-tip]').dataset.tip")
            assert tip.text_content() == said_of
            box = tip.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        page.keyboard.press("Escape")
        assert tip.is_hidden()
        assert said == []


@in_chromium
def test_the_tabulator_reaches_the_terms(browser, report):  # noqa: F811
    with opened(browser, report) as (page, _):
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.classList.contains('term')"):
                reached.add(page.evaluate("document.activeElement.textContent"))
                assert page.locator("#tip").is_visible()
        assert {"form", "order", "rank"} <= reached


@in_chromium
def test_a_touch_explains_a_term(browser, report):  # noqa: F811
    with opened(browser, report, has_touch=True, viewport={"width": 390, "height": 800}) as (
        page,
        _,
    ):
        term = page.locator(".checks .term", has_text="order").first
        term.tap()
        assert page.locator("#tip").text_content() == shell.terms()["beside a result"]["order"]


@in_chromium
def test_axe_finds_no_fault_in_the_terms(browser, report, axe):  # noqa: F811
    with opened(browser, report) as (page, _):
        page.locator(".term").first.focus()
        assert_no_fault(page, axe, 20)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pairwise_ranking.prefer_a", "pairwise_ranking: P(A better)"),
        ("answers.mean_logprob", "answers: mean log-prob"),
        ("glass_box.softmax_entropy", "glass_box: softmax entropy"),
        ("exact_match", "exact match"),
        ("p_true", "P(True)"),
    ],
)
def test_a_score_is_shown_in_words(name, said):
    assert score_words(name) == said


@pytest.mark.parametrize(
    "recipe", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda one: one.stem
)
def test_every_score_of_a_method_has_words_of_its_own_and_a_meaning(recipe):
    meant = shell.template("grid.html.j2").module.scored  # type: ignore[attr-defined]  # a macro
    settings = yaml.safe_load(recipe.read_text("utf-8"))
    for source in all_sources({}, settings).sources:
        given = {getattr(one, "name", one) for one in getattr(source.method.config, "criteria", ())}
        found = {name: score_words(name) for name in source.scores if name not in given}
        assert len({*found.values()}) == len(found)
        assert not [said for said in found.values() if "_" in said or not meant(said)]


def test_no_table_shows_the_name_of_a_column():
    """Write words in every format where the cells of a column name scores, as their column says."""
    table = make_table("t", "T", table_columns("feature: score | mean: number"), [("p_true", 0.5)])
    grid = shell.keyed()(table)
    page = shell.template("grid.html.j2").module.rows(grid)  # type: ignore[attr-defined]  # a macro
    for shown in (generic_markdown(table), cell_text(table.columns[0], "p_true"), str(page)):
        assert "P(True)" in shown.replace("\\", "")
        assert "p_true" not in shown
    assert f'data-tip="{shell.terms()["score"]["P(True)"]}"' in page
    # Programs read the name.
    assert generic_json(table)["rows"][0]["feature"] == "p_true"
