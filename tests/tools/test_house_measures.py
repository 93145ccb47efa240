"""Measures of small trees whose numbers are plain to see."""

import ast
import subprocess

from tools.house_measures import (
    Share,
    archived,
    as_markdown,
    measures,
    questions,
    tracked,
    used_once,
    with_any,
)

TEXTS = '''"""What this is."""

X = 1
"""Number of things."""


class One:
    """A thing."""

    field = 2
    """Whether's the word, not a longer one."""

    def method(self):
        """Whatever else: no question word."""
        "a string, no docstring of a function, but it stands like one"


async def function():
    """How, and why."""
    return """Where a value is no docstring."""
'''


def tree(text):
    return ast.parse(text)


def test_first_words_of_docstrings_and_of_described_values_are_counted():
    assert questions([tree(TEXTS)]) == Share(3, 7)
    assert str(questions([tree("x = 1")])) == "0 of 0 (0.0 %)"


def test_a_private_function_is_used_once_where_its_file_names_it_once():
    text = (
        "def _once(): ...\n"
        "def _twice(): ...\n"
        "def _never(): ...\n"
        "def public(): return _once, _twice\n"
        "class A:\n"
        "    def __init__(self): self._method()\n"
        "    def _method(self): _twice()\n"
    )
    assert used_once([tree(text)]) == Share(2, 6)


def test_any_counts_in_every_place_of_a_signature_and_nowhere_else():
    text = (
        "def a(x: Any): ...\n"
        "def b(*x: int, **y: dict[str, Any]): ...\n"
        "async def c() -> list[Any]: ...\n"
        "def d(x: 'int') -> None:\n"
        "    y: Any = x\n"
    )
    assert with_any([tree(text)]) == Share(3, 4)


def test_a_revision_is_measured_without_touching_the_working_tree(tmp_path):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, timeout=60)

    (tmp_path / "orchestrator").mkdir()
    file = tmp_path / "orchestrator" / "one.py"
    file.write_text('"""What it is."""\n', encoding="utf-8")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    file.write_text('"""A thing."""\nX = 1\n', encoding="utf-8")
    (tmp_path / "orchestrator" / "untracked.py").write_text("not Python", encoding="utf-8")
    before, now = measures(archived(tmp_path, "HEAD")), measures(tracked(tmp_path))
    asked = "docstrings that open with a question word"
    assert (before[asked], now[asked]) == ("1 of 1 (100.0 %)", "0 of 1 (0.0 %)")
    assert (before["lines of the wheel's Python"], now["lines of the wheel's Python"]) == ("1", "2")
    assert now["files a folder, most"] == "orchestrator 1"
    table = as_markdown({"before": before, "now": now}).splitlines()
    assert table[:2] == ["| measure | before | now |", "|---|---|---|"]
    assert f"| {asked} | 1 of 1 (100.0 %) | 0 of 1 (0.0 %) |" in table
