import ast
import json
import subprocess
import sys
from itertools import chain
from typing import Any

import pytest

from tools import mutants, reached

SOURCE = b"""\
LIMIT = 3


def first(values, other):
    \"\"\"Say \xc3\xa9.\"\"\"
    if not values or len(values) < 2:
        note(values, other)
        raise ValueError(f"{len(values) - 1}")
    return "\xc3\xa9", values[0] - other
"""


def test_each_mutant_is_one_change_that_python_can_read():
    found = mutants.mutants_of("a.py", SOURCE)
    assert {m.kind for m in found} == {
        "and, or",
        "arithmetic",
        "boundary +1",
        "boundary -1",
        "comparison",
        "deleted statement",
        "removed sign",
        "return None",
        "swapped arguments",
    }
    changed = {m.applied(SOURCE) for m in found}
    assert len(changed) == len(found)
    assert ast.unparse(ast.parse(SOURCE)) not in {ast.unparse(ast.parse(one)) for one in changed}
    assert any(b"(values[0] + other)" in one for one in changed)


@pytest.fixture
def tree(tmp_path):
    """A product of two functions, of which one is tested."""
    files = {
        "orchestrator/methods/a.py": "def held(x):\n    return x + 1\n\n\n"
        "def free(x):\n    return x - 1\n\n\ndef idle():\n    note()\n",
        "orchestrator/__init__.py": "",
        "orchestrator/methods/__init__.py": "",
        "tests/methods/test_a.py": "from orchestrator.methods.a import held\n\n\n"
        "def test_held():\n    assert held(1) == 2\n",
        "tests/recipes/test_broken.py": "def test_broken():\n    assert False\n",
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['slow']\n",
    }
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def test_a_mutant_is_tried_first_by_tests_that_import_its_module_and_use_its_words(tree):
    (tree / "orchestrator/methods/a.py").write_text(
        "def held(x):\n    return 'one thing', x\n\n\ndef free(x):\n    return 'other', x\n"
    )
    for name, line in {
        "test_far": "x = 1",
        "test_words": "assert said() == 'the other one'",
        "test_imports": "from orchestrator.methods.a import held",
        "test_both": "from orchestrator.methods.a import free\nassert free(1) == ('other', 1)",
    }.items():
        (tree / f"tests/{name}.py").write_text(line)
    path = tree / "orchestrator/methods/a.py"
    mutant = next(
        m for m in mutants.mutants_of("orchestrator/methods/a.py", path.read_bytes()) if m.line == 6
    )
    found = [*chain(*mutants.Tests(tree).of(mutant, path.read_bytes()))]
    assert [found[0], found[-1]] == ["tests/test_both.py", "tests/test_far.py"]
    assert found.index("tests/test_imports.py") < found.index("tests/test_words.py")


def tried(tree, *options):
    """Return what became of each mutant, by its line and kind, and what was said."""
    command = [sys.executable, mutants.__file__, "--to", str(tree.parent), *options]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kept = [json.loads(x) for x in (tree.parent / "results.jsonl").read_text().splitlines()]
    verdicts = {(one["line"], one["kind"]): one["verdict"] for one in kept}
    assert len(kept) == len(verdicts)
    return verdicts, said


MARKED = """\
'''Module.'''

from __future__ import annotations


def first(x):
    '''Say.'''
    if x:
        return 1
    return [inner(y) for y in (2, 3)]


def inner(y):
    return y
"""


def test_statements_that_run_are_marked_and_do_as_before():
    text, places = reached.marked(MARKED, 5)
    assert places == [(9, 9), (8, 9), (10, 10), (14, 14)]
    ran: dict[int, int] = {}
    code = text.replace("{}", "ran")
    module: dict[str, Any] = {"ran": ran}
    exec(code, module)  # noqa: S102
    assert module["first"].__doc__ == "Say."
    assert not ran
    assert module["first"](0) == [2, 3]
    assert [places[number - 5][0] for number in sorted(ran)] == [8, 10, 14]


def test_only_tests_that_run_the_statement_try_it(tree):
    places = [("orchestrator/methods/a.py", 1, 2), ("orchestrator/methods/a.py", 2, 2)]
    places.append(("orchestrator/methods/a.py", 6, 6))
    (tree.parent / "statements.json").write_text(json.dumps(places))
    noted = [("", [2]), ("t.py::one@setup", []), ("t.py::one[1]", [1]), ("t.py::one[2]", [1])]
    noted += [("t.py::other", [0]), ("u.py::third@setup", [1]), ("u.py::third", [])]
    lines = [json.dumps({"test": name, "seconds": 1, "ran": ran}) for name, ran in noted]
    (tree.parent / "reached.1.jsonl").write_text("\n".join(lines))
    found = reached.Reached(tree.parent)
    assert sorted(found.running("orchestrator/methods/a.py", 2) or ()) == [
        "t.py::one",
        "u.py::third",
    ]
    assert found.running("orchestrator/methods/a.py", 6) is None


@pytest.mark.slow
def test_what_tests_notice_is_killed_and_a_run_goes_on_where_it_stopped(tree):
    source = (tree / "orchestrator/methods/a.py").read_bytes()
    assert len(tried(tree, "--n", "2")[0]) == 2
    verdicts, said = tried(tree)
    assert verdicts == {
        (2, "arithmetic"): "killed",
        (2, "return None"): "killed",
        (6, "arithmetic"): "survived",
        (6, "return None"): "survived",
        (10, "deleted statement"): "survived",
    }
    assert "2 of 5 killed: 40%" in said
    assert (tree / "orchestrator/methods/a.py").read_bytes() == source


@pytest.mark.slow
def test_a_test_that_never_ends_has_noticed(tree):
    path = tree / "orchestrator/methods/a.py"
    path.write_text("def held(x):\n    while x < 2:\n        x += 1\n    return x\n")
    assert tried(tree, "--hang-s", "5")[0][3, "deleted statement"] == "killed"


@pytest.mark.slow
@pytest.mark.parametrize(
    "test",
    [
        "assert held(1) == 2",
        # Another process reads the changed file.
        "from subprocess import run\n    from sys import executable\n"
        "    code = 'import orchestrator.methods.a as a; assert a.held(1) == 2'\n"
        "    run([executable, '-c', code], check=True)",
        # It has run before the test does.
        "assert a.TWO == 2",
    ],
)
def test_a_change_is_seen_by_the_test_and_by_what_it_starts(tree, test):
    path = tree / "orchestrator/methods/a.py"
    (tree / "tests/methods/test_a.py").write_text(
        f"from orchestrator.methods import a\nfrom orchestrator.methods.a import held\n\n\n"
        f"def test_held():\n    {test}\n    assert held.__name__ == 'held'\n"
    )
    path.write_text("def held(x):\n    return x + 1\n\n\nTWO = held(1)\n")
    assert [*tried(tree)[0].values()] == ["killed"] * 2
