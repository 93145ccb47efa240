"""The page on Python: its blocks run in a kernel, and it names everything that is public."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import orchestrator

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_every_public_name_is_on_the_page_or_in_the_reference():
    reference = (DOCS / "api.md").read_text(encoding="utf-8")
    named = {
        *re.findall(r"`(?:orchestrator\.)?(\w+)", PAGE),
        *re.findall(r"^\.\. auto\w+:: (?:orchestrator\.)?(\w+)", reference, re.MULTILINE),
    }
    assert set(orchestrator.__all__) - named == set()


def test_every_public_method_of_a_result_and_a_recipe_is_on_the_page():
    for name in ("to_markdown", "to_json", "to_html", "to_frame", "from_yaml", "to_yaml"):
        assert name in PAGE


def test_the_page_on_versions_says_what_is_public():
    text = (DOCS / "versioning.md").read_text(encoding="utf-8")
    for what in ("orchestrator.plugin", "Recipes", "Command line", "JSON", "Frames", "Run dir"):
        assert what in text


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(400)
def test_the_blocks_run_one_after_the_other(tmp_path):
    assert len(BLOCKS) >= 8
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(block) for block in BLOCKS]
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(
        output.text
        for cell in book.cells
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    )
    assert "Recipe(methods[0].kind): " in printed
    assert "did you mean 'probdiff'?" in printed
    (last,) = [one for one in book.cells[-1].outputs if one.output_type == "execute_result"]
    assert last.data["text/plain"] == "(True, True)"
    assert (tmp_path / "runs" / "arithmetic" / "recipe.yaml").is_file()
