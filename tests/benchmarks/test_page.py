"""Sections of docs/performance.md: a command replaces its own and nothing else."""

import runpy
from pathlib import Path

import pytest

PAGE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "_page.py"), run_name="page")
replaced = PAGE["replaced"]

TWO = """# Title

<!-- begin: one -->
old
<!-- end: one -->

words between

<!-- begin: two -->
other
<!-- end: two -->
"""


def test_a_section_is_replaced_and_the_rest_stays_as_it_is():
    expected = TWO.replace("old", "## New\n\nfigures")
    assert replaced(TWO, "one", "## New\n\nfigures\n") == expected


def test_writing_the_same_text_again_changes_nothing():
    once = replaced(TWO, "two", "text")
    assert replaced(once, "two", "text") == once


def test_a_section_that_the_page_lacks_is_put_at_its_end():
    page = replaced("# Title\n", "new", "text")
    assert page == "# Title\n\n<!-- begin: new -->\ntext\n<!-- end: new -->\n"


@pytest.mark.parametrize(
    "page",
    [
        "<!-- begin: one -->\ntext\n",
        "<!-- end: one -->\n<!-- begin: one -->\n",
        TWO + "<!-- begin: one -->\n<!-- end: one -->\n",
        TWO + "<!-- end: one -->\n",
    ],
)
def test_a_page_whose_marks_do_not_fit_is_refused_and_not_cut(page):
    with pytest.raises(ValueError, match="one begin and one end"):
        replaced(page, "one", "text")


def test_the_page_on_disk_is_written(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(TWO, encoding="utf-8")
    PAGE["write_section"]("one", "new", page=page)
    assert page.read_text(encoding="utf-8") == TWO.replace("old", "new")


def test_figures_of_sections_are_found_again(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(TWO, encoding="utf-8")
    PAGE["write_section"]("one", "figures", {"a_ms": 0.25, "b": 2.0}, page=page)
    PAGE["write_section"]("two", "others", {"c": 3.0}, page=page)
    PAGE["write_section"]("two", "others, measured again", {"c": 4.0}, page=page)
    assert PAGE["figures_in"](page.read_text(encoding="utf-8")) == {
        "a_ms": 0.25,
        "b": 2.0,
        "c": 4.0,
    }
