"""Public names: there, lazily imported, typed, and documented."""

import doctest
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator
from orchestrator import errors
from orchestrator.interface import api

ROOT = Path(__file__).parents[2]
FUNCTIONS = [name for name in orchestrator.__all__ if name.islower()]
ERRORS = [name for name in orchestrator.__all__ if name.endswith("Error")]


def python(text, *arguments, cwd=ROOT):
    done = subprocess.run(
        [sys.executable, *arguments, "-c", text],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
    )
    return done.stdout


def test_every_public_name_is_there():
    assert set(orchestrator.__all__) <= set(dir(orchestrator))
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        _ = orchestrator.walk  # type: ignore[attr-defined]


def test_the_whole_error_tree_is_public():
    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.OrchestratorError)
    }
    assert tree == set(ERRORS)


def test_no_submodule_takes_the_place_of_a_public_name():
    modules = {path.stem for path in (ROOT / "orchestrator").iterdir()}
    assert modules.isdisjoint(orchestrator.__all__)


def test_importing_the_package_imports_nothing_else():
    said = python("import orchestrator, sys, json; print(json.dumps(sorted(sys.modules)))")
    loaded = json.loads(said)
    assert [name for name in loaded if name.startswith("orchestrator")] == ["orchestrator"]
    assert not {"polars", "pydantic", "numpy", "rich", "asyncio", "yaml"} & set(loaded)


def test_errors_can_be_caught_without_importing_polars():
    said = python(
        "import sys; from orchestrator import RecipeError; print('polars' in sys.modules)"
    )
    assert said == "False\n"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_documents_its_arguments_returns_errors_and_an_example(name):
    function = getattr(orchestrator, name)
    text = inspect.getdoc(function) or ""
    for section in ("Args:", "Returns:", "Raises:", "Example:"):
        assert section in text
    for argument in inspect.signature(function).parameters:
        assert re.search(rf"^ +{argument}: ", text, re.MULTILINE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_twin_takes_what_the_function_takes(name):
    twin = getattr(orchestrator, f"a{name}", None)
    if twin is None:
        assert name.startswith("a")
        return
    mine, others = (
        [(one.name, one.kind, one.default) for one in inspect.signature(call).parameters.values()]
        for call in (getattr(orchestrator, name), twin)
    )
    assert mine == others
    assert inspect.iscoroutinefunction(twin)


def methods(kind):
    for name, value in vars(kind).items():
        if not name.startswith("_"):
            found = value.__func__ if isinstance(value, classmethod) else value
            yield f"{kind.__name__}.{name}", found


@pytest.mark.parametrize("kind", [api.Result, api.Recipe, api.Plan, api.Comparison])
def test_everything_public_of_a_class_has_a_docstring(kind):
    own = getattr(kind, "__struct_fields__", getattr(kind, "__dataclass_fields__", ()))
    fields = [name for name in own if not name.startswith("_")]
    assert [
        name
        for name, value in methods(kind)
        if name.rpartition(".")[2] not in fields and not getattr(value, "__doc__", "")
    ] == []
    for field in fields:
        assert re.search(rf"^ +{field}: ", kind.__doc__, re.MULTILINE)


@pytest.mark.parametrize("kind", [api.Result, api.Recipe, api.Plan, api.Comparison])
def test_a_class_is_written_without_any_of_its_docstrings_failing(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder()
    names = {"orchestrator": orchestrator, kind.__name__: kind}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for one in finder.find(kind, kind.__name__, globs=names):
        runner.run(one)
    assert runner.summarize(verbose=False).failed == 0


def test_the_examples_of_functions_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner()
    for name in FUNCTIONS:
        names = {"orchestrator": orchestrator}
        for one in doctest.DocTestFinder().find(getattr(orchestrator, name), name, globs=names):
            runner.run(one)
    assert runner.summarize(verbose=False).failed == 0


USER = """
import asyncio
import orchestrator

reveal_type(orchestrator.run("x"))
reveal_type(orchestrator.plan("x"))
reveal_type(orchestrator.check("x"))
reveal_type(orchestrator.load("x").frames["a"])
reveal_type(orchestrator.compare("a", "b").to_frame())
reveal_type(asyncio.run(orchestrator.arun("x")))
reveal_type(orchestrator.Recipe.from_yaml("x").settings)
try:
    orchestrator.run(orchestrator.Recipe(models={}, dataset=[{"prompt": "a"}], methods=["answers"]))
except orchestrator.RecipeError as error:
    reveal_type(error.faults)
orchestrator.run("x", limit="3")
orchestrator.walk
"""
REVEALED = [
    "orchestrator.interface.result.Result",
    "orchestrator.report.planned.Plan",
    "tuple[str, ...]",
    "polars.dataframe.frame.DataFrame",
    "polars.dataframe.frame.DataFrame",
    "orchestrator.interface.result.Result",
    "dict[str, Any]",
    "list[orchestrator.errors.Fault]",
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_users_script_sees_types(tmp_path):
    (tmp_path / "script.py").write_text(USER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "script.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert [one.replace("builtins.", "") for one in revealed] == REVEALED, done.stdout
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(found) == 2, done.stdout
    assert "[arg-type]" in found[0]
    assert '"walk"' in found[1]
