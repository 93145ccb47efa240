"""Bounds that keep the code readable. They hold for every file, so new ones meet them too."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("orchestrator", "backends", "launch")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
FOLDERS = (*PACKAGES, "tests", "benchmarks", "examples", "tools")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SOURCES = [path for path in FILES if path.relative_to(ROOT).parts[0] in PACKAGES]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_functions_are_short(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lengths = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions(tree)}
    assert {n: length for n, length in lengths.items() if length > MAX_FUNCTION_LINES} == {}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_ships_its_types(package):
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_code_is_a_package(package):
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert [name_of(f) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


def test_every_package_of_the_core_has_a_place_in_the_layers():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["id"] == "layers")["layers"]
    placed = {name.strip() for layer in layers for name in layer.split("|")}
    found = {path.stem for path in (ROOT / "orchestrator").iterdir() if path.suffix == ".py"}
    found |= {path.parent.name for path in (ROOT / "orchestrator").glob("*/__init__.py")}
    assert found - placed == {"__init__", "__main__"} & found


def test_tracked_files_name_no_package_index():
    hosts = ("pypi" + ".org", "pythonhosted" + ".org", "download.pytorch" + ".org")
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in ("constraints.txt", "pyproject.toml", "Makefile", ".pre-commit-config.yaml")
    }
    assert [(name, host) for name, text in texts.items() for host in hosts if host in text] == []


def test_constraints_pin_versions_without_addresses():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if "==" not in pin or "@" in pin or "/" in pin or "+" in pin] == []
