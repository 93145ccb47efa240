"""Kinds that are files: `kind: ./my_method.py`."""

import sys

import pytest

from orchestrator import plugins
from orchestrator.errors import NotAllowedError, PluginError
from orchestrator.plugins import by_path
from orchestrator.recipe.settings import MethodRef
from tests.core.fakes import PLAIN


@pytest.fixture
def write(tmp_path):
    """Write a file; gives its path as a kind."""

    def write(text, name="my_method.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def load(kind):
    return plugins.load(plugins.METHODS, kind, allow_code=True)


@pytest.mark.parametrize("name", ["a.py", "my [v1] *?.py", "ä b.py", "if.py", "json.py", "1st.py"])
def test_a_file_is_imported_and_nothing_else_is_changed(write, name, tmp_path):
    plugins.kinds(plugins.METHODS)  # looked through first, whatever was imported before
    path, modules = list(sys.path), set(sys.modules)
    module = load(write("X = __name__", name))
    assert sys.path == path
    (added,) = set(sys.modules) - modules
    assert added == module.X
    assert added.startswith("_orchestrator_plugin_")
    assert added.isidentifier()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_without_permission_it_is_not_even_read(tmp_path):
    with pytest.raises(NotAllowedError, match="which needs permission"):
        plugins.load(plugins.METHODS, str(tmp_path / "not_there.py"))


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("/x/brevity.py", "brevity"),
        ("/x/my [v1].py", "my_v1"),
        ("/x/1st.py", "_1st"),
        ("/x/judge/__init__.py", "judge"),
        ("/x/ä-b.py", "b"),
        ("acme.judges.brief", "brief"),
        ("acme.judges:Brief", "Brief"),
        ("answers", "answers"),
    ],
)
def test_tables_call_it_by_its_stem(kind, label):
    assert plugins.label(kind) == label
    assert MethodRef(kind, PLAIN).name == label


def test_paths_start_from_the_folder_of_the_recipe(tmp_path, monkeypatch):
    home, recipes = tmp_path / "home", tmp_path / "recipes"
    monkeypatch.setenv("HOME", str(home))
    recipes.mkdir()
    link = tmp_path / "link"
    link.symlink_to(recipes)
    found = [
        by_path.absolute(kind, str(link))
        for kind in ("a.py", "./a.py", "../b.py", "~/c.py", str(home / "d.py"))
    ]
    assert found == [
        str(recipes / "a.py"), str(recipes / "a.py"), str(tmp_path / "b.py"),
        str(home / "c.py"), str(home / "d.py"),
    ]  # fmt: skip


def test_an_edited_file_is_imported_again_and_has_another_digest(write, tmp_path):
    kind = write("X = 1")
    first = load(kind)
    before = by_path.digest(kind)
    assert load(kind) is first
    write("X = 2")
    assert load(kind).X == 2
    assert by_path.digest(kind) != before
    moved = write("X = 1", "elsewhere/my_method.py")
    assert load(moved).X == 1
    assert by_path.digest(moved) == before
    assert by_path.digest("answers") == ""


def test_neighbours_are_not_imported_and_the_error_says_what_to_do(write):
    write("Y = 1", "helper_of_mine.py")
    kind = write("\nimport helper_of_mine")
    with pytest.raises(PluginError) as caught:
        load(kind)
    said = str(caught.value)
    assert f"{kind}:2: ModuleNotFoundError" in said
    assert "from .helper_of_mine import" in said


def test_a_package_imports_its_own_modules(write):
    write("Y = 1", "mine/helper.py")
    kind = write("from .helper import Y", "mine/__init__.py")
    assert load(kind).Y == 1
    before = by_path.digest(kind)
    write("Y = 22", "mine/helper.py")
    assert load(kind).Y == 22
    assert by_path.digest(kind) != before


def test_a_neighbour_does_not_shadow_a_module(write):
    write("1 / 0", "json.py")
    assert load(write("import json\nX = json.dumps(1)")).X == "1"


def test_dataclasses_and_type_hints_find_the_module(write):
    text = """
from __future__ import annotations
from dataclasses import dataclass
from pydantic import BaseModel
@dataclass
class Part: x: int
class Config(BaseModel):
    part: Part
"""
    assert load(write(text)).Config(part={"x": 1}).part.x == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n\n1 / 0", "my_method.py:3: ZeroDivisionError"),
        ("\ndef f(:", "my_method.py:2: SyntaxError"),
        ("raise SystemExit(3)", "my_method.py:1: SystemExit"),
        ("import nothing_like_it", "my_method.py:1: ModuleNotFoundError"),
    ],
)
def test_a_broken_file_says_its_line_and_leaves_no_module(write, text, said):
    modules = set(sys.modules)
    kind = write(text)
    with pytest.raises(PluginError, match=said):
        load(kind)
    assert set(sys.modules) == modules


def test_what_it_raises_later_is_blamed_on_its_line(write):
    kind = write("\ndef f(): return 1 / 0")
    module = load(kind)
    said = r"my_method\.py:2: .* ZeroDivisionError"
    with pytest.raises(PluginError, match=said), plugins.blaming():
        module.f()


def test_a_missing_file_says_which_there_are(write, tmp_path):
    write("")
    with pytest.raises(PluginError, match=r"no such file: .*my_methd\.py; .* my_method\.py"):
        load(str(tmp_path / "my_methd.py"))
    with pytest.raises(PluginError, match="cannot be read"):
        load(str(tmp_path / "nul\0.py"))
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(PluginError, match=r"folder\.py cannot be read: Is a directory"):
        load(str(tmp_path / "folder.py"))


def test_what_is_neither_a_file_nor_a_module_is_said():
    for kind in ("./my_method", "a-b.c", "a.b:", ":A"):
        with pytest.raises(PluginError, match=r"neither a file that ends in \.py nor a module"):
            load(kind)
