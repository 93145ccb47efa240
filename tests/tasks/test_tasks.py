"""Fifteen tasks of a day of work, each done as its page says, in an empty folder."""

import os
from pathlib import Path

import pytest

from tests.docs.reader import FOLLOWED, Reader, commands
from tests.tasks import table
from tests.tasks.tasks import TASKS, Task


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.models
@pytest.mark.timeout(400)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_user_does_it_by_the_commands_of_the_page(tmp_path: Path, task: Task):
    folder = tmp_path / "folder of mine"
    folder.mkdir()
    reader = Reader(folder)
    try:
        for page in task.pages:
            reader.follow(page)
        task.check(reader)
        reader.interrupt()
    finally:
        reader.end()
    if notes := os.environ.get(table.NOTES):
        table.note(Path(notes), task, reader.steps)


def test_there_are_fifteen_of_them_and_no_page_is_followed_twice():
    pages = [page for task in TASKS for page in task.pages]
    assert len(TASKS) == len({task.name for task in TASKS}) == 15
    assert len(pages) == len(set(pages))
    assert set(pages) <= set(FOLLOWED)


def test_the_page_of_tasks_counts_the_commands_of_today():
    """Other commands have other times too: `make tasks` measures and writes them."""
    shown = table.shown(table.PAGE.read_text(encoding="utf-8"))
    assert shown == {t.title: sum(len(list(commands(page))) for page in t.pages) for t in TASKS}
