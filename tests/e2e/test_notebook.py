"""The example notebook, from its first cell to its last, as Jupyter runs it."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def outputs(cell):
    return [output.data for output in cell.outputs if output.output_type == "execute_result"]


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.long
def test_the_example_notebook_runs_and_shows_a_run_its_frames_and_its_charts(tmp_path):
    book = nbformat.read(EXAMPLES / "look_at_a_run.ipynb", as_version=4)
    assert all(cell.get("outputs", []) == [] for cell in book.cells)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [data for cell in book.cells if cell.cell_type == "code" for data in outputs(cell)]
    text = " ".join(str(data.get("text/html", data["text/plain"])) for data in shown)
    assert "Ranking of 3 models by judge" in text
    assert "prefer_a_ab" in text
    (drawn,) = (data["image/svg+xml"] for data in shown if "image/svg+xml" in data)
    assert "expert" in drawn
    assert "http" not in drawn.replace("http://www.w3.org", "")
