"""Measure style: docstrings, private functions, `Any`, lines of the wheel, files a folder.

`python tools/house_measures.py [--against REVISION]`

Prints a Markdown table; with a revision, also that revision's numbers. Files are those that git
tracks; of a revision they are read from `git archive`, and no tree is checked out.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
WHEEL: Final = ("orchestrator", "backends", "launch")
QUESTION_WORDS: Final = frozenset({"What", "Who", "Whether", "How", "Where", "Which", "When"})
_SHOWN_FOLDERS: Final = 5
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)

Sources = Mapping[str, str]
"""Text of Python files, by path from the root of the repository."""


class Share(NamedTuple):
    """A part of a whole, in counts."""

    part: int
    whole: int

    def __str__(self) -> str:
        share = 100 * self.part / self.whole if self.whole else 0.0
        return f"{self.part:,} of {self.whole:,} ({share:.1f} %)"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", metavar="REVISION", help="a revision to compare with")
    options = parser.parse_args()
    columns = {"now": measures(tracked(ROOT))}
    if options.against is not None:
        columns = {options.against: measures(archived(ROOT, options.against)), **columns}
    sys.stdout.write(as_markdown(columns))
    return 0


def tracked(root: Path) -> dict[str, str]:
    """Return the Python files of the working tree that git tracks."""
    names = _git(root, "ls-files", "-z", "*.py").decode().split("\0")
    files = {name: root / name for name in names if name}
    return {name: path.read_text("utf-8") for name, path in files.items() if path.is_file()}


def archived(root: Path, revision: str) -> dict[str, str]:
    """Return the Python files of a revision."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", revision))) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                found[member.name] = file.read().decode()
    return found


def _git(root: Path, *arguments: str) -> bytes:
    command = [shutil.which("git") or "git", "-C", str(root), *arguments]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return done.stdout


def measures(sources: Sources) -> dict[str, str]:
    """Return every measure of a tree, by its name."""
    trees = {name: ast.parse(text) for name, text in sources.items()}
    wheel = {name: tree for name, tree in trees.items() if _folder(name) in WHEEL}
    found = {}
    for folder in ("", *sorted({_folder(name) for name in trees})):
        of_folder = [tree for name, tree in trees.items() if folder in {"", _folder(name)}]
        title = f"docstrings that open with a question word{f', {folder}/' if folder else ''}"
        found[title] = str(questions(of_folder))
    found["private functions used once, wheel"] = str(used_once(wheel.values()))
    found["functions with `Any` in the signature, wheel"] = str(with_any(wheel.values()))
    n_lines = sum(len(sources[name].splitlines()) for name in wheel)
    found["lines of the wheel's Python"] = f"{n_lines:,}"
    found["files of the wheel's Python"] = f"{len(wheel):,}"
    folders = collections.Counter(str(PurePosixPath(name).parent) for name in wheel)
    largest = folders.most_common(_SHOWN_FOLDERS)
    found["files a folder, mean"] = f"{len(wheel) / len(folders):.1f}" if folders else "none"
    found["files a folder, most"] = ", ".join(f"{name} {n}" for name, n in largest) or "none"
    return found


def _folder(name: str) -> str:
    return name.partition("/")[0] if "/" in name else "."


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield docstrings, and strings that describe the assignment above them."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in node.body:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if text.strip():
                    yield text.strip()


def questions(trees: Iterable[ast.Module]) -> Share:
    """Count the docstrings whose first word is a question word."""
    texts = [text for tree in trees for text in docstrings(tree)]
    first = [text.split(maxsplit=1)[0].partition("'")[0].rstrip(",.;:") for text in texts]
    return Share(sum(word in QUESTION_WORDS for word in first), len(texts))


def used_once(trees: Iterable[ast.Module]) -> Share:
    """Count, of all functions, the private ones that their own file names exactly once."""
    n_once = n_all = 0
    for tree in trees:
        nodes = list(ast.walk(tree))
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


def with_any(trees: Iterable[ast.Module]) -> Share:
    """Count the functions with `Any` in the annotation of an argument or of the result."""
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
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


def as_markdown(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a Markdown table with a row a measure and a column a tree."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    lines = [f"| measure | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    for name in names:
        cells = [column.get(name, "none") for column in columns.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
