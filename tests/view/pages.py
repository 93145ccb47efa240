"""The viewer as a command, and its pages in a browser."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.ranking.human_labels import read_human_labels
from tests.conftest import ROOT


@contextmanager
def served(
    path: Path | str,
    state: Path,
    program: Sequence[str | Path] = (sys.executable, "-m", "orchestrator"),
    folder: Path = ROOT,
    more: Sequence[str] = (),
) -> Iterator[Any]:
    """The command, run in a folder: a function that gives the last link it printed."""
    environment = {**os.environ, "ORCHESTRATOR_STATE": str(state)}
    process = subprocess.Popen(
        [*program, "view", path, "--port", "0", *more],
        cwd=folder, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stderr is not None
    stream = process.stderr
    links: list[str] = []
    said: list[str] = []
    is_there = threading.Event()

    def listen() -> None:
        for line in stream:
            said.append(line)
            if line.startswith("open "):
                links.append(line.split()[1])
                is_there.set()

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        assert is_there.wait(60), "".join(said)
        yield lambda: links[-1]
    finally:
        process.send_signal(2)
        assert process.wait(60) == 0, "".join(said)
        assert list((state / "view").iterdir()) == []
        listener.join()
        stream.close()


@contextmanager
def opened(browser, links, path, **options) -> Iterator[tuple[Any, list[str]]]:
    """A page, and what it complained about or asked others for."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(30_000)
    said: list[str] = []
    base, token = links().split("/?")
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda asked: said.extend([asked.url] * (not asked.url.startswith(base))))
    page.goto(f"{base}{path}{'&' if '?' in path else '?'}{token}")
    page.wait_for_selector("#main h1", state="attached")
    try:
        yield page, said
    finally:
        context.close()


def texts(locator) -> list[str]:
    return [one.strip() for one in locator.all_inner_texts()]


def values_of_sheet(path):
    """Return the label of each row of a sheet, by its code."""
    return {one.code: one.value for one in read_human_labels(path)}
