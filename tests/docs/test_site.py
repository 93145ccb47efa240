"""The documentation site: its build is strict, and its pages fetch nothing from elsewhere."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, browser  # noqa: F401 (fixture)
from tools import cli_reference, docs

ROOT = Path(__file__).parents[2]


def written(folder, **pages):
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return folder


def test_the_page_on_the_command_line_is_current():
    assert cli_reference.PAGE.read_text(encoding="utf-8") == cli_reference.page()


def test_each_public_name_has_a_docstring():
    undocumented = [name for name, value in docs.public_names() if not value.__doc__]
    assert undocumented == []


def test_each_page_opens_with_what_it_is_for():
    bare = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        opening = re.match(r"# [^\n]+\n\n(?=\S)(?!#|\||```|- |!\[|\{)", text)
        is_other = text.startswith("```{include}") or re.match(r"0\d+-", path.name)
        if opening is None and not is_other:
            bare.append(str(path.relative_to(ROOT)))
    assert bare == []


def test_links_and_anchors_that_lead_nowhere_are_faults(tmp_path):
    site = written(
        tmp_path,
        a_html='<h1 id="top">A</h1><a href="b.html#there">1</a> <a href="b.html#gone">2</a>'
        '<a href="c.html">3</a> <a href="#top">4</a> <a href="#up">5</a> <img src="x.svg">'
        '<a href="https://example.org/x#y">6</a> <a href="mailto:a@example.org">7</a>',
        b_html='<p id="there"></p><a href="a.html">1</a>',
    )
    assert list(docs.broken_links(site)) == [
        "a.html: link to an anchor that does not exist: b.html#gone",
        "a.html: link to a file that does not exist: c.html",
        "a.html: link to an anchor that does not exist: #up",
        "a.html: link to a file that does not exist: x.svg",
    ]


def test_files_from_elsewhere_are_faults_and_links_to_elsewhere_are_not(tmp_path):
    site = written(
        tmp_path,
        a_html='<a href="https://example.org">1</a><script src="//cdn.example.org/a.js"></script>'
        '<img src="data:image/gif;base64,R0"><link href="https://example.org/font.css">',
        b_css='@import "https://example.org/c.css"; p { background: url(local.svg) }'
        "q { src: url(https://example.org/font.woff2) }",
    )
    assert list(docs.fetched_files(site)) == [
        "a.html: fetches //cdn.example.org/a.js",
        "a.html: fetches https://example.org/font.css",
        "b.css: fetches https://example.org/c.css",
        "b.css: fetches https://example.org/font.woff2",
    ]


@pytest.mark.slow
def test_each_fault_of_a_page_fails_the_build(tmp_path):
    pages = written(
        tmp_path / "pages",
        index_md="# Title\n\n```{toctree}\nlinks\n```\n",
        links_md="# Links\n\n[1](gone.md) [2](index.md#above) {py:func}`orchestrator.walk`\n",
        lost_md="# Nothing leads here\n",
    )
    # A process of its own: pytest makes errors of Sphinx's deprecation warnings.
    code = "import sys; from pathlib import Path; from tools.docs import build; "
    call = f"sys.exit(not build(Path({str(pages)!r}), Path({str(tmp_path / 'site')!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code + call], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    for fault in ("'gone.md'", "'above'", "orchestrator.walk", "lost.md"):
        assert fault in done.stderr


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_site_builds_and_describes_every_public_name(tmp_path):
    command = [sys.executable, "tools/docs.py", "--to", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    described = docs.inventory(tmp_path / "site" / "objects.inv")
    assert {
        "orchestrator.run",
        "orchestrator.Result.to_html",
        "orchestrator.plugin.Method",
        "orchestrator.RecipeError",
    } <= described
    assert (tmp_path / "site" / "searchindex.js").stat().st_size > 50_000


def test_each_method_cites_a_work():
    pages = [
        ROOT / "docs" / "methods" / path.name.replace(".py", ".md")
        for path in sorted((ROOT / "orchestrator" / "methods").glob("[a-z]*.py"))
        if path.stem != "answers"  # it draws answers, and rests on no paper
    ]
    assert [page.name for page in pages if "\nBibTeX (" not in page.read_text("utf-8")] == []


def test_the_reference_says_each_default_once():
    for line in cli_reference.page().splitlines():
        assert line.lower().count("default:") + line.count("(default)") <= 1, line
    assert "Default: ``" not in cli_reference.page()


def test_the_table_of_extras_is_complete():
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "tutorials" / "install.md").read_text(encoding="utf-8")
    table = page.partition("| extra | brings |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row[:40])]
    assert sorted(named) == sorted(written["project"]["optional-dependencies"])


def test_every_page_of_how_to_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [path.stem for path in (ROOT / "docs" / "how_to").glob("*.md")]
    assert [page for page in pages if f"(how_to/{page}.md)" not in index] == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is absent")
def test_the_search_puts_how_to_pages_before_decisions_and_changes(browser):  # noqa: F811
    page = browser.new_page()
    page.add_script_tag(content=(ROOT / "docs" / "_static" / "scorer.js").read_text("utf-8"))
    found = {"design/0011-stopping": 15, "changes": 20, "recipes": 7, "how_to/interrupt": 2}
    scored = {
        name: page.evaluate("one => Scorer.score(one)", [name, "", "", None, score, "", "text"])
        for name, score in found.items()
    }
    order = sorted(scored, key=scored.__getitem__, reverse=True)
    assert order == ["how_to/interrupt", "recipes", "changes", "design/0011-stopping"]


def test_the_docs_stay_short():
    # 8,994 lines on 2026-11-28: what is added is saved where it says a thing twice.
    pages = (ROOT / "docs").rglob("*.md")
    assert sum(len(page.read_text(encoding="utf-8").splitlines()) for page in pages) <= 9_000
