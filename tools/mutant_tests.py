"""Run tests against changed functions without starting Python anew, for `mutants.py`.

    python tools/mutant_tests.py SCRATCH -m "not slow"

Collects the tests of this folder once; they write to `SCRATCH`. Each line of standard input is a
question in JSON: `path`, `line`, `source`, `changed` (a file, and its text without and with a
change of that line), `tests`, `limit_s`, `hung_s`. A fork of this process changes the function and
runs the tests up to the first that fails, or that ends after `limit_s` of processor time; one that
takes longer than `hung_s` is ended. It answers with a line of JSON, `[verdict, test]`.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import select
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest


def put(path: str, line: int, source: str, changed: str) -> CodeType | None:
    """Put the changed code of the function at a line of a file into the one that is loaded.

    Returns the code that was there, None if the function is not loaded.
    """
    place = next(i for i, (a, b) in enumerate(_lines(ast.parse(source))) if a <= line <= b)
    old = list(_codes(compile(source, path, "exec", dont_inherit=True)))[place]
    new = list(_codes(compile(changed, path, "exec", dont_inherit=True)))[place]
    if old.co_qualname != new.co_qualname:
        raise ValueError(f"{path}:{line} is in {old.co_qualname} and in {new.co_qualname}")
    # What the tests' conftest.py has frozen is not listed; some objects do things when asked what
    # they are an instance of.
    gc.unfreeze()
    found = [one for one in gc.get_objects() if type(one) is FunctionType and _is(one, old)]
    replaced = None
    for one in found:
        replaced, one.__code__ = one.__code__, new
    return replaced


def _is(function: FunctionType, code: CodeType) -> bool:
    mine = function.__code__
    return mine.co_filename == code.co_filename and mine.co_qualname == code.co_qualname


def _lines(node: ast.AST) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each function that is in no other, in their order."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child.lineno, child.end_lineno or child.lineno
        else:
            yield from _lines(child)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of those functions."""
    for part in code.co_consts:
        if isinstance(part, CodeType) and not part.co_name.startswith("<"):
            # A class is executed once, and its names are not local.
            yield from [part] if part.co_flags & 1 else _codes(part)


class Served:
    """Answers questions instead of running the tests that pytest has collected."""

    def __init__(self, asked: int, answers: int) -> None:
        self.asked = os.fdopen(asked, "r")
        self.answers = os.fdopen(answers, "w", buffering=1)
        self.failed = ""
        self.on_import: dict[int, CodeType] = {}

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Note a function that is called while the tests are collected (`sys.setprofile`)."""
        if event == "call":
            self.on_import[id(frame.f_code)] = frame.f_code

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first test that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer until there are no more questions."""
        sys.setprofile(None)
        items = defaultdict(list)
        for item in session.items:
            items[item.nodeid.partition("[")[0]].append(item)
            items[item.nodeid.partition("::")[0]].append(item)
        self.answers.write("ready\n")
        for line in self.asked:
            question = json.loads(line)
            wanted = {id(x): x for test in question["tests"] for x in items[test]}
            self.answers.write(json.dumps(self._answer(question, list(wanted.values()))) + "\n")
        return True

    def _answer(self, question: Mapping[str, Any], items: list[pytest.Item]) -> tuple[str, str]:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            os.setsid()
            self._run(question, items, writing)
        os.close(writing)
        with os.fdopen(reading) as said:
            ready, *_ = select.select([said], [], [], question["hung_s"])
            text = said.readline() if ready else "timeout"
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        verdict, _, test = (text or "killed").strip("\n").partition("\t")
        return verdict, test

    def _run(self, question: Mapping[str, Any], items: list[pytest.Item], to: int) -> None:
        verdict, replaced = "loaded before", None
        try:
            if is_changed := question["changed"] != question["source"]:
                replaced = put(*(question[n] for n in ("path", "line", "source", "changed")))
            if replaced or not is_changed:
                verdict = "killed"
                for item, after in zip(items, [*items[1:], None], strict=True):
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                    if self.failed or sum(os.times()[:4]) > question["limit_s"]:
                        break
                if not self.failed:
                    verdict = "loaded before" if id(replaced) in self.on_import else "survived"
        except Exception as error:  # noqa: BLE001 (said by the parent)
            verdict = f"fault: {error!r}"
        finally:
            os.write(to, f"{verdict}\t{self.failed}\n".encode())
            os._exit(0)


def main(scratch: str, *options: str) -> int:
    """Collect, answer questions from standard input, and return pytest's exit status."""
    asked, answers = os.dup(0), os.dup(1)
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    served = Served(asked, answers)
    sys.setprofile(served.note)
    return int(pytest.main([*options, "--basetemp", scratch], plugins=[served]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
