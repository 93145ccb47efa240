"""Change the product in one place at a time, and see whether the fast tests notice.

    .venv/bin/python tools/mutants.py --n 300 --to FOLDER

`FOLDER` gets a copy of the files of git's last commit, in which everything happens, and
`results.jsonl`, a line for each mutant: the same command goes on where the last one stopped. A
mutant is tried by the files of tests that import its module, then by those of its room, then by
others that name its module, for `--limit-s` seconds of processor time. What none of these notices
counts as survived, so that the share of those killed is a lower bound. Mutants come in an order
drawn by `--seed`, so those done so far are a random sample of all. A test that fails is run again
without the change: if it fails then, too, its file is left out.
"""

from __future__ import annotations

import argparse
import ast
import copy
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

from scipy.stats import binomtest

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("orchestrator", "backends", "launch")
_FLIPS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_SWAPS: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
}
_SERVER: Final = ROOT / "tools" / "mutant_tests.py"
# Seconds that a second of processor time may take.
_SLOWER: Final = 10
_FAST: Final = ("-m", "not slow", "-p", "no:cacheprovider")
_CHANGED: Final = (
    *(ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Call),
    *(ast.Return, ast.Expr, ast.AugAssign, ast.Raise, ast.Delete, ast.Continue),
)


class Mutant(NamedTuple):
    """One change of a file: bytes `start:end` become `text`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    @property
    def name(self) -> str:
        """Its name, which no other of this commit has."""
        return f"{self.path}:{self.start}:{self.end}:{self.kind}:{self.text}"

    def applied(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file's functions, in the order of their places.

    F-strings, annotations and decorators stay as they are.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in _in_functions(ast.parse(source)):
        for kind, changed in _changes(node):
            end_line, end_col = node.end_lineno or 0, node.end_col_offset or 0
            text = ast.unparse(ast.fix_missing_locations(changed))
            if isinstance(node, ast.expr):
                text = f"({text})"
            start, end = starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_col
            found.append(Mutant(path, node.lineno, kind, start, end, text))
    return sorted(found, key=lambda m: (m.start, m.end, m.kind, m.text))


def _in_functions(tree: ast.AST, *, inside: bool = False) -> Iterator[ast.expr | ast.stmt]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in child.body:
                yield statement
                yield from _in_functions(statement, inside=True)
        elif not isinstance(child, ast.JoinedStr | ast.AnnAssign | ast.arguments):
            if inside and isinstance(child, ast.expr | ast.stmt):
                yield child
            yield from _in_functions(child, inside=inside)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(node, _CHANGED):
        return
    changed = copy.deepcopy(node)
    match changed:
        case ast.Compare(ops=[op]) if type(op) in _FLIPS:
            changed.ops = [_FLIPS[type(op)]()]
            yield "comparison", changed
            yield from _by_one(node)
        case ast.BinOp(op=op) if type(op) in _SWAPS and not _is_text(changed):
            changed.op = _SWAPS[type(op)]()
            yield "arithmetic", changed
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "removed sign", operand
        case ast.BoolOp(op=op):
            changed.op = ast.And() if isinstance(op, ast.Or) else ast.Or()
            yield "and, or", changed
        case ast.IfExp(body=body, orelse=orelse):
            changed.body, changed.orelse = orelse, body
            yield "branches", changed
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return None", ast.Return(ast.Constant(None))
        case (
            ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete()
        ):
            yield "deleted statement", ast.Pass()
        case ast.Continue():
            yield "break", ast.Break()
        case ast.Call(args=[ast.Name() as a, ast.Name() as b, *rest]) if a.id != b.id:
            changed.args = [b, a, *rest]
            yield "swapped arguments", changed


def _by_one(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for step in (-1, 1):
        changed = copy.deepcopy(node)
        for part in ast.walk(changed):
            if isinstance(part, ast.Constant) and type(part.value) is int:
                part.value += step
                yield f"boundary {step:+d}", changed
                break


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


class Tests:
    """Files of tests, and how near each is to a module."""

    def __init__(self, tree: Path) -> None:
        files = sorted((tree / "tests").rglob("test_*.py"))
        self._texts = {str(p.relative_to(tree)): p.read_text("utf-8") for p in files}

    def of(self, path: str) -> list[str]:
        """Return those that import a module, share a room with it, or name it: nearest first."""
        module = Path(path).with_suffix("")
        module = module.parent if module.name == "__init__" else module
        package, name = ".".join(module.parts[:-1]), re.escape(module.name)
        imports = re.compile(
            rf"{re.escape(package)}\.{name}\b|from {re.escape(package)} import [\w\s,(]*?\b{name}\b"
        )
        rooms = {*module.parts[1:], *module.parts[:1]} - {"orchestrator"}
        named = re.compile(rf"\b{name.strip('_')}\b")
        near = {
            file: (
                bool(imports.search(text)),
                len(rooms & set(Path(file).parts)),
                bool(named.search(text)),
            )
            for file, text in self._texts.items()
        }
        return sorted((one for one in near if any(near[one])), key=near.__getitem__, reverse=True)


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}


class Bench:
    """A copy of the tree in which mutants are tried, one at a time.

    They are tried in forks of one process that has collected the tests (`mutant_tests.py`). One
    that survives, of a function that runs when a module is imported, is tried in a new process.
    """

    def __init__(self, tree: Path, limit_s: float) -> None:
        self.tree = tree
        self.tests = Tests(tree)
        self.limit_s = limit_s
        self.left_out: set[str] = set()
        self._served: subprocess.Popen[str] | None = None
        # A compiled file stands for its source of the same second and size: no two are alike.
        self._seconds = itertools.count(time.monotonic_ns() // 10**7)

    def tried(self, mutant: Mutant) -> tuple[str, str]:
        """Return "killed", "survived" or "timeout", and the test that failed."""
        path = self.tree / mutant.path
        if self._served is None:
            self._served = self._serving()
        source, times = path.read_bytes(), path.stat()
        tests = self.tests.of(mutant.path)
        while True:
            path.write_bytes(mutant.applied(source))
            os.utime(path, (second := next(self._seconds), second))
            try:
                verdict, failed = self._tested(tests, mutant, source)
            finally:
                path.write_bytes(source)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if verdict != "killed" or not failed or self._tested([failed])[0] == "survived":
                return verdict, failed
            self.left_out.add(failed.partition("::")[0])

    def close(self) -> None:
        """End the process that runs the tests."""
        if self._served is not None:
            self._served.communicate()
            self._served = None

    def _tested(
        self, tests: Sequence[str], mutant: Mutant | None = None, source: bytes = b""
    ) -> tuple[str, str]:
        wanted = [t for t in tests if t.partition("::")[0] not in self.left_out]
        if not wanted:
            return "survived", ""
        changed = source if mutant is None else mutant.applied(source)
        question = {
            "path": "" if mutant is None else str(self.tree / mutant.path),
            "line": 0 if mutant is None else mutant.line,
            "source": source.decode(),
            "changed": changed.decode(),
            "tests": wanted,
            "limit_s": self.limit_s,
            "hung_s": _SLOWER * self.limit_s,
        }
        verdict, failed = self._asked(question)
        # A fork lacks its parent's threads, and those who wait for them hang.
        if verdict not in ("loaded before", "timeout"):
            return verdict, failed
        return self._in_new_process(wanted)

    def _asked(self, question: Mapping[str, object]) -> tuple[str, str]:
        served = self._served
        if served is None or served.stdin is None or served.stdout is None:
            raise RuntimeError("nothing runs the tests")
        served.stdin.write(json.dumps(question) + "\n")
        served.stdin.flush()
        verdict, failed = json.loads(served.stdout.readline())
        return verdict, failed.partition("[")[0]

    def _serving(self) -> subprocess.Popen[str]:
        served = subprocess.Popen(
            [sys.executable, str(_SERVER), str(self.tree.parent / "scratch"), "-q", *_FAST],
            cwd=self.tree,
            env=_environment(self.tree),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if served.stdout is None or served.stdout.readline() != "ready\n":
            raise RuntimeError("the tests could not be collected")
        return served

    def _in_new_process(self, tests: Sequence[str]) -> tuple[str, str]:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", *_FAST, *tests]
        with subprocess.Popen(
            command,
            cwd=self.tree,
            env=_environment(self.tree),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=_SLOWER * self.limit_s)
            except subprocess.TimeoutExpired:
                return "timeout", ""
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode in (0, 5):
            return "survived", ""
        for line in said.splitlines():
            if line.startswith(("FAILED ", "ERROR ")):
                return "killed", line.split(" ", 1)[1].split(" - ")[0]
        return "killed", ""


def copied(to: Path) -> Path:
    """Return a copy of the last commit's files; one that is there already is used again."""
    tree = to / "tree"
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


def drawn(tree: Path, seed: int) -> list[Mutant]:
    """Return all mutants of the product in the order of their trial."""
    found = []
    for folder in PRODUCT:
        for path in sorted((tree / folder).rglob("*.py")):
            found += mutants_of(str(path.relative_to(tree)), path.read_bytes())
    random.Random(seed).shuffle(found)  # noqa: S311 (a sample, no secret)
    return found


def summary(results: Sequence[Mapping[str, str]]) -> str:
    """Say how many were killed, with a Wilson interval, by room, and list the survivors."""
    counted = Counter(r["verdict"] for r in results)
    decided = counted["killed"] + counted["survived"]
    if not decided:
        return "no mutant decided"
    low, high = binomtest(counted["killed"], decided).proportion_ci(method="wilson")
    said = [
        f"{counted['killed']} of {decided} killed: {counted['killed'] / decided:.0%} "
        f"[{low:.0%}, {high:.0%}]; {counted['timeout']} without an answer in time"
    ]
    rooms = sorted({"/".join(r["path"].split("/")[:2]) for r in results})
    for room in rooms:
        of = Counter(r["verdict"] for r in results if r["path"].startswith(room))
        said.append(f"  {room}: {', '.join(f'{n} {verdict}' for verdict, n in sorted(of.items()))}")
    said += [
        f"  {r['path']}:{r['line']} {r['kind']}: {r['text']}"
        for r in results
        if r["verdict"] == "survived"
    ]
    return "\n".join(said)


def main(argv: Sequence[str] | None = None) -> int:
    """Try mutants until `--n` are done, and say what became of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, required=True, help="folder of the copy and the results")
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-s", type=float, default=20, help="seconds of tests for a mutant")
    parser.add_argument(
        "--only", default="", help="part of the product, such as orchestrator/methods"
    )
    args = parser.parse_args(argv)
    to = args.to.resolve()
    # Ended from outside, it puts the file back that it has changed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if to.is_relative_to(ROOT):
        parser.error("--to must be outside the checkout")
    kept = to / "results.jsonl"
    results = [json.loads(x) for x in kept.read_text().splitlines()] if kept.exists() else []
    done = {r["name"] for r in results}
    tree = copied(to)
    wanted = [m for m in drawn(tree, args.seed) if m.path.startswith(args.only)][: args.n]
    with closing(Bench(tree, args.limit_s)) as bench:
        for mutant in wanted:
            if mutant.name in done:
                continue
            start = time.monotonic()
            verdict, failed = bench.tried(mutant)
            result = {**mutant._asdict(), "name": mutant.name, "verdict": verdict, "test": failed}
            result["seconds"] = round(time.monotonic() - start, 1)
            with kept.open("a") as file:
                file.write(json.dumps(result) + "\n")
            results.append(result)
            print(f"{verdict} {mutant.path}:{mutant.line} {mutant.kind} {failed}", flush=True)
    names = {m.name for m in wanted}
    print(summary([r for r in results if r["name"] in names]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
