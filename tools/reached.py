"""Note which statements of the product each fast test runs, for `tools/mutants.py`.

    .venv/bin/python tools/reached.py --to FOLDER [TESTS…]

`FOLDER/marked` gets a copy of the files of git's last commit in which each statement of a function
sets a byte of a file before it runs, so that statements count, too, which programs that a test
starts run. A file `FOLDER/reached.*.jsonl` gets a line for each test: its name, its seconds, and
the numbers of the statements that ran; `FOLDER/statements.json` says where each stands. Several at
once may note different tests, in one copy. All fast tests take about six minutes of a processor.
"""

from __future__ import annotations

import argparse
import ast
import json
import mmap
import os
import subprocess
import sys
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("orchestrator", "backends", "launch")
FAST: Final = ("-m", "not slow", "-p", "no:cacheprovider")
# A program that has no such file sets keys of a dictionary that nobody reads.
_MARKS: Final = """\
import mmap
import os

try:
    with open(os.environ["MARKS_FILE"], "r+b") as file:
        MARKS = mmap.mmap(file.fileno(), 0)
except (KeyError, OSError):
    MARKS = {}
"""
_IMPORTED: Final = (
    "try:\n    from _marks import MARKS as __REACHED__\nexcept ImportError:\n    __REACHED__ = {}"
)


class Marked(ast.NodeTransformer):
    """Puts a mark before each statement of a file's functions; `places` are their lines."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.places: list[tuple[int, int]] = []
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Mark the statements of a function."""
        return self._in_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Mark the statements of a coroutine."""
        return self._in_function(node)

    def _in_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Mark the statements of a block."""
        super().generic_visit(node)
        if self._depth:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    setattr(node, name, [*self._block(node, block)])
        return node

    def _block(self, owner: ast.AST, block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        for at, statement in enumerate(block):
            is_docstring = (
                at == 0
                and isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and ast.get_docstring(owner) is not None
            )
            if not is_docstring:
                number = self.first + len(self.places)
                self.places.append((statement.lineno, statement.end_lineno or 0))
                yield ast.parse(f"__REACHED__[{number}] = 1").body[0]
            yield statement


def marked(source: str, first: int) -> tuple[str, list[tuple[int, int]]]:
    """Return the source with marks from number `first` on, and the lines of each."""
    tree, marks = ast.parse(source), Marked(first)
    marks.visit(tree)
    at = int(ast.get_docstring(tree) is not None)
    at += sum(isinstance(s, ast.ImportFrom) and s.module == "__future__" for s in tree.body)
    tree.body[at:at] = ast.parse(_IMPORTED).body
    return ast.unparse(ast.fix_missing_locations(tree)), marks.places


class Noting:
    """Plug-in of pytest that writes what each test has marked."""

    def __init__(self, marks: mmap.mmap, to: Path) -> None:
        self.marks = marks
        self.to = to
        self.start = 0.0

    def _taken(self, name: str, seconds: float) -> None:
        # A copy, as servers that tests started may be marking on.
        marked = self.marks[:]
        self.marks[:] = bytes(len(marked))
        numbers = np.flatnonzero(np.frombuffer(marked, np.uint8)).tolist()
        with self.to.open("a") as file:
            file.write(
                json.dumps({"test": name, "seconds": round(seconds, 3), "ran": numbers}) + "\n"
            )

    def pytest_collection_finish(self) -> None:
        """Note what ran as modules were imported."""
        self._taken("", 0)

    def pytest_runtest_logstart(self) -> None:
        """Begin a test."""
        self.start = time.process_time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a test's set-up, or the test with its tear-down, ran."""
        if report.when == "setup":
            self._taken(f"{report.nodeid}@setup", time.process_time() - self.start)
        elif report.when == "teardown":
            self._taken(report.nodeid, time.process_time() - self.start)


def copied(to: Path, name: str = "tree") -> Path:
    """Return a copy of the last commit's files; one that is there already is used again."""
    tree = to / name
    if not tree.is_dir():
        archive = subprocess.run(
            ["git", "archive", "HEAD"],  # noqa: S607
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
        tree.mkdir(parents=True)
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
    return tree


def forget(*packages: str) -> None:
    """Have these packages loaded anew, by tests from the copy in which they run."""
    for name in [one for one in sys.modules if one.partition(".")[0] in packages]:
        del sys.modules[name]


def prepared(to: Path) -> int:
    """Make the marked copy where there is none, and return how many statements have a mark."""
    where = to / "statements.json"
    if not where.exists():
        tree = copied(to, "marked")
        places: list[tuple[str, int, int]] = []
        for path in sorted(p for folder in PRODUCT for p in (tree / folder).rglob("*.py")):
            text, found = marked(path.read_text("utf-8"), len(places))
            path.write_text(text, "utf-8")
            places += [(str(path.relative_to(tree)), *lines) for lines in found]
        (tree / "_marks.py").write_text(_MARKS)
        where.write_text(json.dumps(places))
    return len(json.loads(where.read_text()))


class Reached:
    """Tests that run each statement, the quickest first, as `tools/reached.py` noted them."""

    def __init__(self, to: Path) -> None:
        places = json.loads((to / "statements.json").read_text())
        self._places: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for number, (path, first, last) in enumerate(places):
            self._places[path].append((last - first, number, first))
        noted: dict[str, tuple[float, set[int]]] = {}
        at_import: set[int] = set()
        set_up: defaultdict[str, set[int]] = defaultdict(set)
        for notes in sorted(to.glob("reached.*.jsonl"), key=lambda p: p.stat().st_mtime):
            for one in map(json.loads, notes.read_text("utf-8").splitlines()):
                if not one["test"]:
                    at_import |= {*one["ran"]}
                elif one["test"].endswith("@setup"):
                    # A fixture of several tests runs in the first of them.
                    set_up[one["test"].partition("::")[0]] |= {*one["ran"]}
                else:
                    test = one["test"].partition("[")[0]
                    seconds, ran = noted.get(test, (0.0, set()))
                    noted[test] = seconds + one["seconds"], ran | {*one["ran"]}
        self._at_import = at_import
        self._tests: defaultdict[int, list[str]] = defaultdict(list)
        for test, (_, ran) in sorted(noted.items(), key=lambda item: item[1][0]):
            for number in ran | set_up[test.partition("::")[0]]:
                self._tests[number].append(test)

    def running(self, path: str, line: int) -> list[str] | None:
        """Return the tests; None if it runs as modules are imported, or is of another commit."""
        inside = [
            (lines, number)
            for lines, number, first in self._places[path]
            if 0 <= line - first <= lines
        ]
        _, number = min(inside, default=(0, -1))
        is_unknown = number < 0 or number in self._at_import
        return None if is_unknown else self._tests[number]


def main(argv: Sequence[str] | None = None) -> int:
    """Mark a copy and run its fast tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, required=True, help="folder of the copy and the notes")
    parser.add_argument("tests", nargs="*")
    args = parser.parse_args(argv)
    to, number = args.to.resolve(), os.getpid()
    n = prepared(to)
    marks, tree = to / f"marks.{number}", to / "marked"
    marks.write_bytes(bytes(n))
    os.environ |= {"MARKS_FILE": str(marks), "PYTHONPATH": str(tree)}
    # Tests that read it would be skipped beside the copy.
    os.environ.setdefault("ORCHESTRATOR_SHARED", str(ROOT.parent / "shared"))
    os.chdir(tree)
    sys.path[0] = str(tree)
    forget("tools")
    with marks.open("r+b") as file:
        noting = Noting(mmap.mmap(file.fileno(), 0), to / f"reached.{number}.jsonl")
    options = ("-q", "--assert=plain", "--tb=no", f"--basetemp={to / f'scratch.{number}'}")
    code = pytest.main([*options, *FAST, *args.tests], plugins=[noting])
    marks.unlink()
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
