"""Change the product in one place at a time, and see whether the fast tests notice.

    .venv/bin/python tools/mutants.py --n 300 --to FOLDER

`FOLDER` gets a copy of the files of git's last commit, in which everything happens, and
`results.jsonl`, a line for each mutant: the same command goes on where the last one stopped. A
mutant is tried by the fast tests for `--limit-s` seconds of processor time, first by those of files
that import its module and share words with the changed function; with `--reached FOLDER`, only by
the tests that run the changed statement, as `tools/reached.py` noted them. What none of these
notices counts as survived, so that the share of those killed is a lower bound. Mutants come in an
order drawn by `--seed`, so those done so far are a random sample of all. With more seconds than
before, survivors are tried again. A test that fails is run again without the change: if it fails
then, too, it is left out.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import itertools
import json
import math
import os
import random
import re
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, NamedTuple

import pytest
from scipy.stats import binomtest

from tools.reached import FAST, PRODUCT, ROOT, Reached, copied, forget

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
_LIBRARIES: Final = (
    *("aiohttp", "hypothesis", "jinja2", "msgspec", "numpy", "polars", "pydantic"),
    *("pytest_asyncio", "rich.console", "rich.markdown", "scipy.stats", "uvloop", "yaml"),
)
_PASSED: Final = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
# Of the time that pytest gives a test that hangs, what is waited for an answer.
_PATIENCE: Final = 5
# Of an import among the weights of words, which are at most 7.
_IMPORTED: Final = 20.0
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
    """Files of tests, and how near each is to a function by the words that both use."""

    def __init__(self, tree: Path, reached: Reached | None = None) -> None:
        self._reached = reached
        files = sorted((tree / "tests").rglob("test_*.py"))
        self._words = {str(p.relative_to(tree)): _words(p.read_text("utf-8")) for p in files}
        in_files = Counter(chain.from_iterable(self._words.values()))
        self._weights = {word: math.log(len(files) / n) for word, n in in_files.items()}

    def of(self, mutant: Mutant, source: bytes) -> list[list[str]]:
        """Return those of each file, the nearest file first.

        A rare word counts more, an import of the module most. Where tests are known that run the
        statement, only those are returned; a program that sees neither our variables nor our
        folder runs some unseen.
        """
        module = Path(mutant.path).with_suffix("")
        place = module.parts[:-1] if module.name == "__init__" else module.parts
        about = _words(_function(source, mutant.line)) | {*place}

        def near(file: str) -> float:
            words = self._words[file]
            is_imported = ".".join(place) in words or {".".join(place[:-1]), place[-1]} <= words
            return _IMPORTED * is_imported + sum(self._weights[word] for word in about & words)

        running = self._reached.running(mutant.path, mutant.line) if self._reached else None
        files = sorted(self._words, key=near, reverse=True)
        if not running:
            return [[file] for file in files]
        by_file = defaultdict(list)
        for test in running:
            by_file[test.partition("::")[0]].append(test)
        return [by_file[file] for file in files if file in by_file]


def _words(text: str) -> set[str]:
    return {*re.findall(r"[^\W\d]\w{2,}", text), *re.findall(r"[^\W\d][\w.]+", text)}


def _function(source: bytes, line: int) -> str:
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    )
    return ast.unparse(max(functions, key=lambda one: one.lineno))


class Noticed:
    """Plug-in of pytest that notes the first test that fails, and stops when the time is over."""

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.test = ""
        self.is_over = False

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Note a test, or a file of tests, that failed."""
        if report.failed and not self.test:
            self.test = report.nodeid

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Let the test be the last one if the time is over."""
        if sum(os.times()[:4]) > self.until_s:
            self.is_over = True
            item.session.shouldstop = "no time is left"


class Bench:
    """A copy of the tree in which mutants are tried, one at a time.

    Each is tried in a fork of this process, which has loaded the product, and in which the changed
    functions get their new code. Where there are none, as the change is of a function that ran
    when its module was loaded, the fork loads the product anew.
    """

    def __init__(
        self, tree: Path, limit_s: float, reached: Reached | None = None, hang_s: float = 60.0
    ) -> None:
        self.tree = tree
        self.tests = Tests(tree, reached)
        self.limit_s = limit_s
        self.hang_s = hang_s
        self.left_out: set[str] = set()
        # A compiled file stands for its source of the same second and size: no two are alike.
        self._seconds = itertools.count(time.monotonic_ns() // 10**7)
        os.chdir(tree)
        sys.path[0] = os.environ["PYTHONPATH"] = str(tree)
        forget("tools")
        # As `tests/conftest.py` says it, before the product is loaded.
        os.environ["ORCHESTRATOR_RAISE_FAULTS"] = "1"
        for name in _LIBRARIES:
            importlib.import_module(name)
        # Code that ran as modules were loaded.
        self._ran: set[CodeType] = set()
        sys.setprofile(lambda frame, *_: self._ran.add(frame.f_code))
        for path in sorted(one for folder in PRODUCT for one in Path(folder).rglob("*.py")):
            if path.stem != "__main__":
                # A module that needs what is not installed is loaded by no test.
                with suppress(ImportError):
                    importlib.import_module(".".join(path.with_suffix("").parts))
        sys.setprofile(None)
        gc.collect()
        self._functions: defaultdict[str, list[FunctionType]] = defaultdict(list)
        for one in gc.get_objects():
            if type(one) is FunctionType:
                self._functions[one.__code__.co_filename].append(one)
        gc.freeze()

    def tried(self, mutant: Mutant) -> tuple[str, str]:
        """Return "killed", "survived" or "timeout", and the test that failed."""
        path = self.tree / mutant.path
        source, times = path.read_bytes(), path.stat()
        while True:
            tests = [
                kept
                for of in self.tests.of(mutant, source)
                if (kept := [one for one in of if one not in self.left_out])
            ]
            path.write_bytes(mutant.applied(source))
            os.utime(path, (second := next(self._seconds), second))
            try:
                verdict, failed = self._tested(tests, mutant, source)
            finally:
                path.write_bytes(source)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if verdict != "killed":
                return verdict, failed
            if self._tested([[failed]] if failed else tests)[0] == "survived":
                return verdict, failed
            if not failed:
                return "timeout", ""
            self.left_out |= {failed, failed.partition("::")[0]}

    def _tested(
        self, tests: Sequence[Sequence[str]], mutant: Mutant | None = None, source: bytes = b""
    ) -> tuple[str, str]:
        # Few files at first: most mutants fail the nearest, and to collect all takes longest.
        verdict, failed, left_s, n = "survived", "", self.limit_s, 2
        while tests and verdict == "survived" and left_s > 0:
            change = partial(self._change, mutant, source) if mutant else None
            verdict, failed, took_s = self._forked([*chain(*tests[:n])], left_s, change)
            tests, left_s, n = tests[n:], left_s - took_s, 2 * n
        return verdict, failed

    def _forked(
        self, tests: Sequence[str], left_s: float, change: Callable[[], None] | None
    ) -> tuple[str, str, float]:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._run(tests, left_s, writing, change)
        os.close(writing)
        with os.fdopen(reading) as said:
            ready, *_ = select.select([said], [], [], _PATIENCE * self.hang_s)
            verdict, _, failed = (said.readline() if ready else "timeout").partition("\t")
        # What the tests have started is in the session of the child.
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        *_, used = os.wait4(child, 0)
        took_s = used.ru_utime + used.ru_stime
        return verdict or "killed", failed.strip().partition("[")[0], took_s

    def _run(
        self, tests: Sequence[str], left_s: float, to: int, change: Callable[[], None] | None
    ) -> None:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        noticed, code = Noticed(left_s + sum(os.times()[:4])), -1
        try:
            with open(os.devnull, "r+b") as nothing:  # noqa: PTH123
                for number in range(3):
                    os.dup2(nothing.fileno(), number)
            if change is not None:
                change()
            options = ("-x", "--assert=plain", f"--basetemp={self.tree.parent / 'scratch'}")
            hangs = ("-o", f"timeout={self.hang_s}")
            code = pytest.main([*options, *hangs, *FAST, *tests], plugins=[noticed])
        finally:
            is_killed = noticed.test or not (noticed.is_over or code in _PASSED)
            os.write(to, f"{'killed' if is_killed else 'survived'}\t{noticed.test}\n".encode())
            os._exit(0)

    def _change(self, mutant: Mutant, source: bytes) -> None:
        """Give the loaded functions their new code, or forget what is loaded."""
        path = str(self.tree / mutant.path)
        old, new = (_codes(text, path) for text in (source, mutant.applied(source)))
        n_changed = 0
        with suppress(ValueError):  # of a function that uses other variables around it than before
            for function in self._functions[path]:
                for key, code in old.items():
                    if code == function.__code__ and key in new:
                        function.__code__ = new[key]
                        n_changed += code != new[key]
        has_run = any(code in self._ran for key, code in old.items() if code != new.get(key))
        if not n_changed or has_run:
            forget(*PRODUCT)


def _codes(source: bytes, path: str) -> dict[tuple[str, int], CodeType]:
    """Return the code of each function of a file by its name and its number among those of it."""
    found: dict[tuple[str, int], CodeType] = {}
    left = [compile(source, path, "exec", dont_inherit=True)]
    while left:
        inner = [one for one in left.pop().co_consts if isinstance(one, CodeType)]
        for code in inner:
            name = code.co_qualname
            found[name, sum(known == name for known, _ in found)] = code
        left += inner
    return found


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
    parser.add_argument("--hang-s", type=float, default=60, help="seconds of a test that hangs")
    parser.add_argument(
        "--only", default="", help="part of the product, such as orchestrator/methods"
    )
    parser.add_argument("--reached", type=Path, help="folder of what tools/reached.py noted")
    args = parser.parse_args(argv)
    to = args.to.resolve()
    # Ended from outside, it puts the file back that it has changed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Tests that read it would be skipped beside the copy.
    os.environ.setdefault("ORCHESTRATOR_SHARED", str(ROOT.parent / "shared"))
    if to.is_relative_to(ROOT):
        parser.error("--to must be outside the checkout")
    kept = to / "results.jsonl"
    lines = kept.read_text().splitlines() if kept.exists() else []
    results = {one["name"]: one for one in map(json.loads, lines)}
    tree = copied(to)
    wanted = [m for m in drawn(tree, args.seed) if m.path.startswith(args.only)][: args.n]
    known_to_run = Reached(args.reached) if args.reached else None
    bench = Bench(tree, args.limit_s, known_to_run, args.hang_s)
    for mutant in wanted:
        known = results.get(mutant.name)
        if known and (known["verdict"] == "killed" or known["limit_s"] >= args.limit_s):
            continue
        start = time.monotonic()
        verdict, failed = bench.tried(mutant)
        result = {**mutant._asdict(), "name": mutant.name, "verdict": verdict, "test": failed}
        result |= {"seconds": round(time.monotonic() - start, 1), "limit_s": args.limit_s}
        with kept.open("a") as file:
            file.write(json.dumps(result) + "\n")
        results[mutant.name] = result
        print(f"{verdict} {mutant.path}:{mutant.line} {mutant.kind} {failed}", flush=True)
    print(summary([results[m.name] for m in wanted]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
