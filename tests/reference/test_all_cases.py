"""No case of the file is left without a test, in this folder or beside what it is about."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_case_is_named_by_a_test(cases):
    named = {
        node.value
        for file in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert len(cases) > 20
    assert sorted(set(cases) - named) == []
