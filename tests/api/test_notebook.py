"""A run in a real kernel of IPython: its progress bar, its interrupt button, and `await`."""

import json
import os
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
SETUP = """
import sys
sys.path.insert(0, {root!r})
import orchestrator
from tests.api.made import recipe, slow
"""


@pytest.fixture(autouse=True)
def _paths(monkeypatch):
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")


def executed(folder, *cells):
    book = nbformat.v4.new_notebook()
    texts = (SETUP.format(root=str(ROOT)), *cells)
    book.cells = [nbformat.v4.new_code_cell(text) for text in texts]
    NotebookClient(book, timeout=60, resources={"metadata": {"path": str(folder)}}).execute()
    return book.cells[1:]


def shown(cell):
    return [output for output in cell.outputs if output.output_type == "display_data"]


@pytest.mark.slow
def test_a_run_shows_a_progress_bar_and_its_result(tmp_path):
    ran, awaited, both = executed(
        tmp_path,
        "orchestrator.run(recipe(), run_dir='run')",
        "await orchestrator.arun(recipe(name='awaited'))",
        "import asyncio\n"
        "async with asyncio.TaskGroup() as group:\n"
        "    tasks = [group.create_task(orchestrator.arun(recipe(name=n))) for n in 'ab']\n"
        "print([task.result().ok for task in tasks])",
    )
    for cell in (ran, awaited):
        (bar,) = shown(cell)
        assert '<progress value="24" max="24"' in bar.data["text/html"]
        assert "24" in bar.data["text/plain"]
        (result,) = [one for one in cell.outputs if one.output_type == "execute_result"]
        assert "Ranking of 2 models" in result.data["text/html"]
    assert len(shown(both)) == 2
    (printed,) = [one.text for one in both.outputs if one.output_type == "stream"]
    assert printed == "[True, True]\n"
    assert (tmp_path / "runs" / "awaited" / "results" / "judgments.parquet").is_file()


def said(client, code, while_running=None):
    """The text that a cell prints."""
    sent = client.execute(code)
    text = ""
    while True:
        message = client.get_iopub_msg(timeout=60)
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != sent:
            continue
        if kind == "stream":
            text += content["text"]
        elif kind == "error":
            text += content["ename"]
        elif kind in {"display_data", "update_display_data"} and while_running is not None:
            # It runs now: the button is pressed once.
            while_running = while_running()
        elif kind == "status" and content["execution_state"] == "idle":
            return text


def when_answered(run, interrupt):
    """Interrupt as soon as something is answered; until then, look again at the next message."""

    def look():
        try:
            status = json.loads((run / "status.json").read_text())["values"]
        except (OSError, ValueError):
            return look
        return interrupt() if status["units_done"] else look

    return look


@pytest.mark.slow
@pytest.mark.parametrize("call", ["orchestrator.run", "await orchestrator.arun"])
def test_the_interrupt_button_stops_softly(tmp_path, call):
    manager, client = start_new_kernel(cwd=str(tmp_path), env=dict(os.environ))
    try:
        said(client, SETUP.format(root=str(ROOT)))
        begun = time.monotonic()
        text = said(
            client,
            f"result = {call}(slow(200), run_dir='run')\nprint(result.ended.interrupted)",
            when_answered(tmp_path / "run", manager.interrupt_kernel),
        )
        assert text in {"True\n", "CancelledError", "KeyboardInterrupt"}
        assert ("await" in call) == (text != "True\n")
        assert time.monotonic() - begun < 30
        counts = said(
            client,
            "c = orchestrator.load('run').completeness\nprint(c.total, c.left, c.failed)",
        )
        total, left, failed = map(int, counts.split())
        assert (total, failed) == (600, 0)
        assert 0 < left < total
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
