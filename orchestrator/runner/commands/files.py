"""The commands that make files of a run: their options, and what they print."""

import argparse
import difflib
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from orchestrator.disk import paths
from orchestrator.errors import RunDirectoryError
from orchestrator.report.text import safe_line, write_to
from orchestrator.runner.commands.messages import Said

if TYPE_CHECKING:
    from orchestrator.runner.interface.result import Result

_RUNS: Final = Path(paths.RUNS)


def run_path(name: str) -> Path:
    """A run by its folder, or by its name in runs/.

    Raises:
        RunDirectoryError: If there is neither, with the nearest name.
    """
    path = Path(name)
    meant = (path, _RUNS / name)
    # A folder of the same name that holds no run hides none.
    for one in (*(one for one in meant if (one / paths.STORE_NAME).exists()), *meant):
        if one.exists():
            return one
    beside = {str(one.parent) for one in path.parent.glob("*/store.sqlite")}
    known = {*beside, *(one.parent.name for one in _RUNS.glob("*/store.sqlite"))}
    near = difflib.get_close_matches(name, sorted(known), n=1)
    advice = f"did you mean {near[0]!r}?" if near else "list runs with: orchestrator runs"
    raise RunDirectoryError(f"no run found at {name}; {advice}")


def say_of(run: Path, lines: Iterable[str]) -> None:
    """Lines about a run."""
    for line in lines:
        write_to(sys.stdout, safe_line(f"{run}: {line}") + "\n")


def write_files(result: "Result", options: argparse.Namespace, said: Said) -> bool:
    """Write the files of a report that are asked for; whether there were any.

    Their paths go to stderr, because what `run` prints to stdout are its results.
    """
    charts: str | None = getattr(options, "charts", None)
    if options.html is None and charts is None:
        return False
    if options.html is not None:
        to = Path(options.html) if options.html else None
        said.wrote(_document().write_html(result, to))
    if charts is not None:
        for path in _document().write_charts(result, Path(charts)):
            said.wrote(path)
    return True


def _document() -> ModuleType:
    # No other command needs what it imports.
    return importlib.import_module("orchestrator.runner.interface.html_report")
