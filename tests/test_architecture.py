"""Bounds beyond which code is hard to read: hints with room, for every file, new ones too."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("orchestrator", "backends", "launch")
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
FOLDERS = (*PACKAGES, "tests", "benchmarks", "examples", "tools", "training")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SOURCES = [path for path in FILES if path.relative_to(ROOT).parts[0] in PACKAGES]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def long_functions(path: Path) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, kinds)]
    too_long = [f for f in functions if (f.end_lineno or 0) - f.lineno >= MAX_FUNCTION_LINES]
    return [f"{name_of(path)}:{f.lineno}: {f.name}" for f in too_long]


def test_files_are_short():
    lengths = {name_of(p): len(p.read_text(encoding="utf-8").splitlines()) for p in FILES}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_are_short():
    assert [line for path in FILES for line in long_functions(path)] == []


def test_modules_say_what_they_are():
    assert [name_of(path) for path in SOURCES if not ast.get_docstring(tree(path))] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_ships_its_types(package):
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_code_is_a_package(package):
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert [name_of(f) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


def layers(contract: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    return next(list(one["layers"]) for one in contracts if one["id"] == contract)


def test_the_table_of_layers_is_the_one_that_is_held():
    held = layers("layers")
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition("## Layers")[2].partition("\n\nThe first row")[0]
    rows = re.findall(r"^\| (`[^|]*`(?: \\\| `[^|]*`)*) \| ", table, flags=re.MULTILINE)
    said = [row.replace("`", "").replace(" \\|", " |") for row in rows]
    assert said == held


@pytest.mark.parametrize(
    ("contract", "container"), [("layers", "orchestrator"), ("rooms", "orchestrator/runner")]
)
def test_modules_that_are_imported_late_are_below_too(contract, container):
    # import-linter does not see what `import_module` imports.
    held = layers(contract)
    floor = {name: n for n, layer in enumerate(held) for name in re.findall(r"\w+", layer)}
    prefix = container.replace("/", ".") + "."
    upwards = []
    for path in sorted((ROOT / container).rglob("*.py")):
        own = path.relative_to(ROOT / container).with_suffix("").parts[0]
        late = re.findall(r"import_module\(\s*\"([\w.]+)", path.read_text(encoding="utf-8"))
        for name in late:
            target = name.removeprefix(prefix).partition(".")[0]
            if name.startswith(prefix) and floor[target] < floor.get(own, len(held)):
                upwards.append((name_of(path), name))
    # A task of Ray is a process of its own, which begins with the command line.
    upwards = [
        one for one in upwards if one != ("orchestrator/runner/servers/ray.py", "orchestrator.cli")
    ]
    assert upwards == []


def test_the_files_of_reports_that_are_named_exist_and_all_briefs_are_named():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition("`report/` computes")[2].partition("`orchestrator/templates/`")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }
    folder = ROOT / "orchestrator" / "report"
    assert [name for name in sorted(named) if not (folder / name).exists()] == []
    assert {path.name for path in folder.glob("brief*.py")} <= named


def test_the_files_and_names_that_answer_a_question_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition("## Where is it decided?")[2].partition("## ")[0]
    cells = [row.split(" | ")[1] for row in table.splitlines() if row.startswith("| ")][1:]
    named = [pair for cell in cells for pair in re.findall(r"`([\w/]+\.py)`(?: `(\w+)`)?", cell)]
    assert len(named) > len(cells)
    missing = []
    for path, name in named:
        file = ROOT / "orchestrator" / path
        lines = file.read_text(encoding="utf-8") if file.is_file() else ""
        if not re.search(
            rf"^(?:def |class |async def )?{name}\b" if name else ".", lines, re.MULTILINE
        ):
            missing.append((path, name))
    assert missing == []


def test_the_python_files_that_the_pages_name_exist():
    ours = {"/" + path.relative_to(ROOT).as_posix() for path in FILES}
    for_contributors = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
    for_contributors += (ROOT / "docs" / "design").glob("*.md")
    missing = []
    for page in (*for_contributors, ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for name in re.findall(r"`([\w./]+\.py)`", page.read_text(encoding="utf-8")):
            # Other pages also name files of a user, and of other projects.
            is_meant = page in for_contributors or name.partition("/")[0] in FOLDERS
            template = name.rpartition("/")[2] == "NAME.py"
            if is_meant and not template and not any(one.endswith(f"/{name}") for one in ours):
                missing.append((page.name, name))
    assert missing == []


def test_every_package_of_the_core_has_a_place_in_the_layers():
    placed = {name for layer in layers("layers") for name in re.findall(r"\w+", layer)}
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


def test_constraints_pin_versions_with_hashes_and_without_addresses():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line.removesuffix(" \\") for line in text.splitlines() if not line.startswith("#")]
    line = re.compile(r"[\w.-]+==[\w.!]+|    --hash=sha256:[0-9a-f]{64}")
    assert [one for one in lines if not line.fullmatch(one)] == []


def calls(path: Path, *words: str) -> list[tuple[ast.Call, ast.Attribute]]:
    """The calls of methods in a file that has one of some words."""
    if not any(word in path.read_text(encoding="utf-8") for word in words):
        return []
    found = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    return [(node, node.func) for node in found if isinstance(node.func, ast.Attribute)]


def test_only_one_module_has_polars_open_paths():
    # Elsewhere `[1]` in a folder's name would be a pattern.
    opening = [
        f"{name_of(path)}:{node.lineno}: pl.{function.attr}"
        for path in SOURCES
        if path != ROOT / "orchestrator" / "disk" / "columnar.py"
        for node, function in calls(path, "polars")
        if isinstance(function.value, ast.Name)
        and function.value.id in {"pl", "polars"}
        and function.attr.startswith(("read_", "scan_"))
    ]
    assert opening == []


def test_no_name_becomes_part_of_a_pattern():
    globs = [
        (path, node)
        for path in SOURCES
        for node, function in calls(path, "glob", "fnmatch")
        if function.attr in {"glob", "rglob", "iglob", "fnmatch"}
    ]
    parts = [
        (path, part.value)
        for path, node in globs
        for part in ast.walk(node)
        if isinstance(part, ast.FormattedValue)
    ]
    loose = [
        f"{name_of(path)}:{value.lineno}: {ast.unparse(value)}"
        for path, value in parts
        if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "glob.escape")
    ]
    assert globs
    assert loose == []
