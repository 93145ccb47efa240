"""Approved texts: what is compared, and that each file has its test."""

import ast
from pathlib import Path

import pytest

from tests.approved import Approved, file_of

TESTS = Path(__file__).parent


def test_each_approved_text_is_of_a_test():
    for path in TESTS.rglob("approved/*.txt"):
        module, *_ = path.name.split(".")
        test = path.parents[1] / f"test_{module}.py"
        names = [
            node.name
            for node in ast.parse(test.read_text("utf-8")).body
            if isinstance(node, ast.FunctionDef)
        ]
        assert any(path.name.startswith(file_of(test, name).stem) for name in names), path


def test_a_text_is_compared_and_written_where_that_is_asked_for(tmp_path):
    path = file_of(tmp_path / "test_a.py", "test_screen[x y]")
    assert path == tmp_path / "approved" / "a.screen_x_y.txt"
    with pytest.raises(pytest.fail.Exception, match=r"\+two"):
        Approved(path, is_written=False)("two")
    Approved(path, is_written=True)(f"one {tmp_path} \ntwo", folder=tmp_path)
    assert path.read_text() == "one FOLDER\ntwo\n"
    Approved(path, is_written=False)(f"one {tmp_path}\ntwo", folder=tmp_path)
    with pytest.raises(pytest.fail.Exception, match="-two"):
        Approved(path, is_written=False)("one FOLDER")
