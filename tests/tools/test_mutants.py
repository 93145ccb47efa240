import ast
import json
from contextlib import closing

import pytest

from tools import mutants

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


@pytest.mark.slow
def test_what_tests_notice_is_killed_and_a_run_goes_on_where_it_stopped(tree, capsys):
    source = (tree / "orchestrator/methods/a.py").read_bytes()
    argv = ["--to", str(tree.parent), "--limit-s", "120"]
    assert mutants.main([*argv, "--n", "2"]) == 0
    assert mutants.main(argv) == 0
    kept = [json.loads(x) for x in (tree.parent / "results.jsonl").read_text().splitlines()]
    verdicts = {(r["line"], r["kind"]): r["verdict"] for r in kept}
    assert verdicts == {
        (2, "arithmetic"): "killed",
        (2, "return None"): "killed",
        (6, "arithmetic"): "survived",
        (6, "return None"): "survived",
        (10, "deleted statement"): "survived",
    }
    assert len(kept) == len(verdicts)
    assert "2 of 5 killed: 40%" in capsys.readouterr().out
    assert (tree / "orchestrator/methods/a.py").read_bytes() == source


def test_a_module_is_tried_by_tests_that_import_it_then_by_its_room_then_by_its_name(tree):
    for name, line in {
        "api/test_b.py": "from orchestrator.methods.a import held",
        "api/test_c.py": "from orchestrator.methods import _b, a",
        "api/test_d.py": "from orchestrator.methods import _b, ask",
        "api/test_e.py": "a = 1",
        "methods/test_f.py": "",
    }.items():
        path = tree / "tests" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{line}\n")
    files = ["methods/test_a", "api/test_b", "api/test_c", "methods/test_f", "api/test_e"]
    found = mutants.Tests(tree).of("orchestrator/methods/a.py")
    assert found == [f"tests/{name}.py" for name in files]


@pytest.mark.slow
def test_a_test_that_takes_too_long_decides_nothing(tree):
    path = tree / "orchestrator/methods/a.py"
    path.write_text("def held(x):\n    while x < 2:\n        x += 1\n    return x\n")
    mutant = next(m for m in _mutants(path) if m.kind == "deleted statement")
    with closing(mutants.Bench(tree, limit_s=2)) as bench:
        assert bench.tried(mutant) == ("timeout", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "test",
    [
        "assert held(1) == 2",
        # Another process reads the changed file.
        "from subprocess import run\n    from sys import executable\n"
        "    code = 'import orchestrator.methods.a as a; assert a.held(1) == 2'\n"
        "    run([executable, '-c', code], check=True)",
    ],
)
def test_a_change_is_seen_by_the_test_and_by_what_it_starts(tree, test):
    path = tree / "orchestrator/methods/a.py"
    (tree / "tests/methods/test_a.py").write_text(
        f"from orchestrator.methods.a import held\n\n\ndef test_held():\n    {test}\n"
        "    assert held.__name__ == 'held'\n"
    )
    path.write_text("def held(x):\n    return x + 1\n")
    with closing(mutants.Bench(tree, limit_s=60)) as bench:
        assert [bench.tried(m)[0] for m in _mutants(path)] == ["killed"] * 2


@pytest.mark.slow
def test_a_function_that_runs_on_import_is_changed_before(tree):
    path = tree / "orchestrator/methods/a.py"
    path.write_text("def three(x):\n    return x + 1\n\n\nTHREE = three(2)\n")
    (tree / "tests/methods/test_a.py").write_text(
        "from orchestrator.methods.a import THREE, three\n\n\n"
        "def test_three():\n    assert THREE == 3\n    three(1)\n"
    )
    with closing(mutants.Bench(tree, limit_s=60)) as bench:
        tried = {bench.tried(m) for m in _mutants(path)}
    assert tried == {("killed", "tests/methods/test_a.py::test_three")}


def _mutants(path):
    return mutants.mutants_of("orchestrator/methods/a.py", path.read_bytes())
