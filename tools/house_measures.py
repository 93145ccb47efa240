"""Measure the house: lines, files, names, value classes, layers, and what a run goes through.

`python tools/house_measures.py [--run] [--against REVISION]`

Prints a Markdown table; with a revision, also that revision's numbers. Files are those that git
tracks; of a revision they are read from `git archive`, and no tree is checked out. With `--run`,
a tiny run is measured too (`tools/house_run.py`). `tests/tools/test_house_ceilings.py` holds the
measures to `CEILINGS`.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import io
import itertools
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
WHEEL: Final = ("orchestrator", "backends", "launch")
CEILINGS: Final[Mapping[str, int]] = {
    "private functions used once": 822,
    "functions with `Any` in the signature": 199,
    "lines": 94_887,
    "files": 393,
    "distinct names": 3_193,
    "value classes": 463,
    "fields of value classes": 2_262,
    "pairs of value classes that share 60 % of their fields": 14,
    "floors of layers": 10,
    "frames to a run's first request": 13,
    "files to a run's first request": 7,
    "files that one run enters": 172,
}
"""The most that each measure may be. A ceiling never rises, and is lowered as its measure falls.

Means have none: they rise and fall by what is taken away."""

QUESTION_WORDS: Final = frozenset({"What", "Who", "Whether", "How", "Where", "Which", "When"})
_SHOWN_FOLDERS: Final = 5
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
# A ceiling above its measure by more than this factor must come down.
_ROOM: Final = 1.03
# A value class is decorated by the first, or derives from one of the others.
_VALUES: Final = frozenset({"dataclass", "Struct", "NamedTuple", "BaseModel", "Settings"})
# Fields that a class needs before it is compared, and the part of the larger that both then share.
_MIN_FIELDS: Final = 3
_ALIKE: Final = 0.6

Sources = Mapping[str, str]
"""Text of Python files and of `pyproject.toml`, by path from the root of the repository."""
Nodes = Sequence[ast.AST]
"""All syntax nodes of a file."""


class Share(NamedTuple):
    """A part of a whole, in counts."""

    part: int
    whole: int

    def __str__(self) -> str:
        share = 100 * self.part / self.whole if self.whole else 0.0
        return f"{self.part:,} of {self.whole:,} ({share:.1f} %)"


Measure = Share | float | str
"""A count, a part of a whole, a mean, or words."""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", metavar="REVISION", help="a revision to compare with")
    parser.add_argument("--run", action="store_true", help="measure a tiny run, too")
    options = parser.parse_args()
    # It would look through millions of syntax nodes, none of which is in a circle, again and again.
    gc.disable()
    columns = {"now": measures(tracked(ROOT)) | (run_measures(ROOT) if options.run else {})}
    if options.against is not None:
        before = measures(archived(ROOT, options.against))
        if options.run:
            with tempfile.TemporaryDirectory() as code:
                _archive(ROOT, options.against).extractall(code, filter="data")
                before |= run_measures(Path(code))
        columns = {options.against: before, **columns}
    sys.stdout.write(as_markdown(columns))
    return 0


def tracked(root: Path) -> dict[str, str]:
    """Return the Python files of the working tree that git tracks, and its `pyproject.toml`."""
    names = _git(root, "ls-files", "-z", "*.py", "pyproject.toml").decode().split("\0")
    files = {name: root / name for name in names if name}
    return {name: path.read_text("utf-8") for name, path in files.items() if path.is_file()}


def archived(root: Path, revision: str) -> dict[str, str]:
    """Return the Python files and the `pyproject.toml` of a revision."""
    found = {}
    with _archive(root, revision) as archive:
        for member in archive:
            is_read = member.name.endswith(".py") or member.name == "pyproject.toml"
            file = archive.extractfile(member) if is_read else None
            if file is not None:
                found[member.name] = file.read().decode()
    return found


def _archive(root: Path, revision: str) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(_git(root, "archive", revision)))


def _git(root: Path, *arguments: str) -> bytes:
    command = [shutil.which("git") or "git", "-C", str(root), *arguments]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return done.stdout


def measures(sources: Sources) -> dict[str, Measure]:
    """Return every measure of a tree that is taken without running it, by its name."""
    files = {name: nodes_of(text) for name, text in sources.items() if name.endswith(".py")}
    found: dict[str, Measure] = {}
    for folder in ("", *sorted({_folder(name) for name in files})):
        of_folder = [nodes for name, nodes in files.items() if folder in {"", _folder(name)}]
        title = f"docstrings that open with a question word{f', {folder}/' if folder else ''}"
        found[title] = questions(of_folder)
    return found | wheel_measures(sources)


def wheel_measures(sources: Sources) -> dict[str, Measure]:
    """Return the measures of the wheel's Python, by their names."""
    wheel = {name: nodes_of(sources[name]) for name in sources if _folder(name) in WHEEL}
    files = wheel.values()
    any_of_all = with_any(files)
    found: dict[str, Measure] = {
        "private functions used once": used_once(files),
        "functions with `Any` in the signature": any_of_all,
    }
    n_lines = sum(len(sources[name].splitlines()) for name in wheel)
    folders = collections.Counter(str(PurePosixPath(name).parent) for name in wheel)
    largest = folders.most_common(_SHOWN_FOLDERS)
    found["lines"], found["files"] = n_lines, len(wheel)
    found["lines a file, mean"] = n_lines / max(len(wheel), 1)
    found["files a folder, mean"] = len(wheel) / max(len(folders), 1)
    found["files a folder, most"] = ", ".join(f"{name} {n}" for name, n in largest) or "none"
    found["functions a thousand lines"] = 1000 * any_of_all.whole / max(n_lines, 1)
    found["distinct names"] = len(defined(files))
    classes = value_classes(files)
    found["value classes"] = len(classes)
    found["fields of value classes"] = sum(len(fields) for _, fields in classes)
    found["pairs of value classes that share 60 % of their fields"] = len(alike(classes))
    if "pyproject.toml" in sources:
        found["floors of layers"] = floors(sources["pyproject.toml"])
    return found


def run_measures(code: Path) -> dict[str, Measure]:
    """Return the measures of a tiny run with the code in a folder, by their names.

    Raises:
        subprocess.CalledProcessError: If the run fails.
    """
    command = [sys.executable, "-P", str(ROOT / "tools" / "house_run.py"), str(code)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=300)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def above(measured: Mapping[str, Measure]) -> list[str]:
    """Return a sentence for each measure above its ceiling, or so far below that it must follow."""
    said = []
    for name in CEILINGS.keys() & measured.keys():
        value, ceiling = measured[name], CEILINGS[name]
        n = value.part if isinstance(value, Share) else int(value)
        if n > ceiling:
            said.append(
                f"{name}: {n:,}, above the ceiling of {ceiling:,}. Ceilings only go down: take "
                "as much away elsewhere, or say this with less"
            )
        elif ceiling > n * _ROOM:
            said.append(f'{name}: {n:,}, well done; lower its line in CEILINGS to "{name}": {n:_},')
    return sorted(said)


def _folder(name: str) -> str:
    return name.partition("/")[0] if "/" in name else "."


def nodes_of(text: str) -> Nodes:
    """Return the syntax nodes of a file."""
    return list(ast.walk(ast.parse(text)))


def docstrings(nodes: Nodes) -> Iterator[str]:
    """Yield docstrings, and strings that describe the assignment above them."""
    for node in nodes:
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in node.body:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if text.strip():
                    yield text.strip()


def questions(files: Iterable[Nodes]) -> Share:
    """Count the docstrings whose first word is a question word."""
    texts = [text for nodes in files for text in docstrings(nodes)]
    first = [text.split(maxsplit=1)[0].partition("'")[0].rstrip(",.;:") for text in texts]
    return Share(sum(word in QUESTION_WORDS for word in first), len(texts))


def used_once(files: Iterable[Nodes]) -> Share:
    """Count, of all functions, the private ones that their own file names exactly once."""
    n_once = n_all = 0
    for nodes in files:
        uses = collections.Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in nodes
            if isinstance(node, ast.Name | ast.Attribute)
        )
        names = [node.name for node in nodes if isinstance(node, _FUNCTIONS)]
        private = {name for name in names if name[0] == "_" and not name.startswith("__")}
        n_all += len(names)
        n_once += sum(uses[name] == 1 for name in private)
    return Share(n_once, n_all)


def with_any(files: Iterable[Nodes]) -> Share:
    """Count the functions with `Any` in the annotation of an argument or of the result."""
    functions = [node for nodes in files for node in nodes if isinstance(node, _FUNCTIONS)]
    return Share(sum(map(_takes_any, functions)), len(functions))


def _takes_any(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    annotations = [function.returns, *(argument.annotation for argument in every)]
    return any(
        isinstance(node, ast.Name) and node.id == "Any"
        for annotation in annotations
        if annotation is not None
        for node in ast.walk(annotation)
    )


def defined(files: Iterable[Nodes]) -> set[str]:
    """Return the names of functions, methods and classes, nested ones and `__init__` too."""
    definitions = (*_FUNCTIONS, ast.ClassDef)
    return {node.name for nodes in files for node in nodes if isinstance(node, definitions)}


def value_classes(files: Iterable[Nodes]) -> list[tuple[str, frozenset[str]]]:
    """Return the name and the fields of each value class that has fields of its own.

    That is a dataclass, or a class derived, however remotely, from `msgspec.Struct`, `NamedTuple`,
    pydantic's `BaseModel` or our `Settings`. Bases are looked up by name in all files.
    """
    classes = [
        (node, _bases(node)) for nodes in files for node in nodes if isinstance(node, ast.ClassDef)
    ]
    known = set(_VALUES)
    while more := {node.name for node, bases in classes if bases & known} - known:
        known |= more
    values = [node for node, bases in classes if bases & known]
    return [(node.name, fields) for node in values if (fields := _fields(node))]


def _bases(node: ast.ClassDef) -> set[str]:
    """Return the last names of bases and decorators, without brackets and arguments."""
    found = set()
    for one in (*node.bases, *node.decorator_list):
        match one:
            case ast.Subscript(value=named) | ast.Call(func=named):
                found.add(ast.unparse(named).rpartition(".")[2])
            case _:
                found.add(ast.unparse(one).rpartition(".")[2])
    return found


def _fields(node: ast.ClassDef) -> frozenset[str]:
    return frozenset(
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and "ClassVar" not in ast.unparse(statement.annotation)
    )


def alike(classes: Sequence[tuple[str, frozenset[str]]]) -> list[tuple[str, str]]:
    """Return the pairs that share 60 % of the larger's fields, of classes of three or more."""
    large = [one for one in classes if len(one[1]) >= _MIN_FIELDS]
    return [
        (one, other)
        for (one, fields), (other, others) in itertools.combinations(large, 2)
        if len(fields & others) >= _ALIKE * max(len(fields), len(others))
    ]


def floors(pyproject: str) -> int:
    """Count the floors of import-linter's contract `layers`."""
    contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    return next(len(one["layers"]) for one in contracts if one.get("id") == "layers")


def as_markdown(columns: Mapping[str, Mapping[str, Measure]]) -> str:
    """Return a Markdown table with a row a measure and a column a tree."""
    rows = dict.fromkeys(name for column in columns.values() for name in column)
    lines = [f"| measure | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    for name in rows:
        cells = [_written(column.get(name, "none")) for column in columns.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _written(value: Measure) -> str:
    match value:
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.1f}"
        case _:
            return str(value)


if __name__ == "__main__":
    sys.exit(main())
