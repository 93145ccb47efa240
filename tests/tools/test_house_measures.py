"""Measures of small trees whose numbers are plain to see."""

import subprocess

from tools.house_measures import (
    CEILINGS,
    Share,
    above,
    alike,
    archived,
    as_markdown,
    defined,
    floors,
    measures,
    nodes_of,
    questions,
    tracked,
    used_once,
    value_classes,
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


def test_first_words_of_docstrings_and_of_described_values_are_counted():
    assert questions([nodes_of(TEXTS)]) == Share(3, 7)
    assert str(questions([nodes_of("x = 1")])) == "0 of 0 (0.0 %)"


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
    assert used_once([nodes_of(text)]) == Share(2, 6)


def test_any_counts_in_every_place_of_a_signature_and_nowhere_else():
    text = (
        "def a(x: Any): ...\n"
        "def b(*x: int, **y: dict[str, Any]): ...\n"
        "async def c() -> list[Any]: ...\n"
        "def d(x: 'int') -> None:\n"
        "    y: Any = x\n"
    )
    assert with_any([nodes_of(text)]) == Share(3, 4)


def test_a_name_that_is_defined_twice_counts_once():
    text = "class A:\n    def run(self):\n        def inner(): ...\nasync def run(): ...\nX = 1\n"
    assert defined([nodes_of(text)]) == {"A", "run", "inner"}


def test_value_classes_are_found_through_their_bases_and_have_fields_of_their_own():
    text = (
        "@dataclass(frozen=True)\nclass A:\n    x: int\n    seen: ClassVar[int] = 0\n"
        "class B(msgspec.Struct, frozen=True):\n    x: int\n"
        "class C(B, Generic[T]):\n    y: int\n    z = 1\n"
        "class D(Base[T]):\n    y: int\n"
        "class Base(Settings): ...\n"
        "class Plain:\n    x: int\n"
    )
    names = [(name, sorted(fields)) for name, fields in value_classes([nodes_of(text)])]
    assert names == [("A", ["x"]), ("B", ["x"]), ("C", ["y"]), ("D", ["y"])]


def test_classes_are_alike_from_60_percent_of_the_larger_ones_fields_on():
    classes = [(fields, frozenset(fields)) for fields in ("abcde", "abc", "abx", "ab", "ab")]
    assert alike(classes) == [("abcde", "abc"), ("abc", "abx")]


def test_floors_are_those_of_the_contract_named_layers():
    text = """
        [[tool.importlinter.contracts]]
        id = "rooms"
        layers = ["a"]
        [[tool.importlinter.contracts]]
        id = "layers"
        layers = ["a", "b | c"]
    """
    assert floors(text) == 2


def test_a_measure_stands_at_its_ceiling_or_little_below(monkeypatch):
    monkeypatch.setitem(CEILINGS, "lines", 1000)
    assert above({"lines": 1000}) == above({"lines": 971}) == above({}) == []
    (too_high,) = above({"lines": 1001})
    assert "1,001, above the ceiling of 1,000" in too_high
    (too_low,) = above({"lines": 970})
    assert '"lines": 970,' in too_low


def test_a_revision_is_measured_without_touching_the_working_nodes_of(tmp_path):
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
    assert (before[asked], now[asked]) == (Share(1, 1), Share(0, 1))
    assert (before["lines"], now["lines"]) == (1, 2)
    assert now["files a folder, most"] == "orchestrator 1"
    table = as_markdown({"before": before, "now": now}).splitlines()
    assert table[:2] == ["| measure | before | now |", "|---|---|---|"]
    assert f"| {asked} | 1 of 1 (100.0 %) | 0 of 1 (0.0 %) |" in table
