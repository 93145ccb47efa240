"""Words to the user, paths of runs, and their results on the screen and in files."""

import argparse
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.text import Text

from orchestrator import numbers
from orchestrator.disk import paths
from orchestrator.errors import OrchestratorError, RecipeError, RunDirectoryError, nearest
from orchestrator.plugins.permission import is_allowed
from orchestrator.report import calls
from orchestrator.report.lines import event_line
from orchestrator.report.page import make_console, print_to
from orchestrator.report.progress import Progress
from orchestrator.report.text import is_quiet, safe_line, say, write_to

if TYPE_CHECKING:
    from orchestrator.interface.result import Result
    from orchestrator.report.gate import GateResult


class Said:
    """Says something on stderr; `as_json` to a program, one object a line (`docs/display.md`)."""

    def __init__(self, as_json: bool = False) -> None:  # noqa: FBT001, FBT002 (what it is)
        self.as_json = as_json

    def note(self, message: str) -> None:
        """Print a line that the user may do without; `--quiet` leaves it out."""
        if not is_quiet():
            self.complain(message)

    def complain(self, message: str) -> None:
        """Print a warning or an error, on a line."""
        if self.as_json:
            self._write("note", text=safe_line(message))
        else:
            text = Text(safe_line(f"orchestrator: {message}"))
            print_to(sys.stderr, text, wrap=sys.stderr.isatty())

    def interrupted(self) -> None:
        """Print that Ctrl-C ended the command, over the `^C` that the terminal has shown."""
        if not self.as_json and sys.stderr.isatty():
            write_to(sys.stderr, "\r")
        self.complain("interrupted; resume with the same command")

    def faults(self, error: OrchestratorError) -> None:
        """Print what is wrong, where, and what to do."""
        if not self.as_json:
            print_to(sys.stderr, calls.faults(error), wrap=sys.stderr.isatty())
            return
        faults = error.faults if isinstance(error, RecipeError) else []
        places = [{"file": f.file, "line": f.line, "message": f.message} for f in faults]
        self._write("error", text=str(error), faults=places)

    def summary(self, progress: Progress, n_left: int) -> int:
        """Print what a call did; a program has it from the last event of its progress.

        Returns:
            The lines that it takes of the terminal; 0 where stderr is none.
        """
        if self.as_json or is_quiet():
            return 0
        shown = calls.summary(progress, n_left)
        print_to(sys.stderr, shown)
        if not sys.stderr.isatty():
            return 0
        # What follows stands apart from it.
        write_to(sys.stderr, "\n")
        return len(make_console(sys.stderr).render_lines(shown)) + 1

    def verdict(self, found: "GateResult") -> None:
        """Send the verdict on gates to a program; a person has it with the results."""
        if self.as_json:
            self._write("gate", **found.as_json())

    def wrote(self, path: Path) -> None:
        """Print the path of a file that was written."""
        if self.as_json:
            self._write("file", path=str(path))
        elif not is_quiet():
            write_to(sys.stderr, f"{safe_line(str(path))}\n")

    def _write(self, event: str, **fields: object) -> None:
        write_to(sys.stderr, event_line(event, **fields))


_RUNS: Final = Path(paths.RUNS)
# Lines of a terminal that say, below the results, that it was interrupted or that units failed.
_LINES_BELOW: Final = 2


def run_path(name: str) -> Path:
    """A run by its folder, or by its name in runs/."""
    path = Path(name)
    meant = (path, _RUNS / name)
    # A folder of the same name that holds no run hides none.
    for one in (*(one for one in meant if (one / paths.STORE_NAME).exists()), *meant):
        if one.exists():
            return one
    beside = {str(one.parent) for one in path.parent.glob("*/store.sqlite")}
    known = {*beside, *(one.parent.name for one in _RUNS.glob("*/store.sqlite"))}
    advice = nearest(name, sorted(known), "") or "; list runs with: orchestrator runs"
    raise RunDirectoryError(f"no run found at {name}{advice}")


def say_of(run: Path, lines: Iterable[str]) -> None:
    """Lines about a run."""
    for line in lines:
        say(f"{run}: {line}")


def show(result: "Result", form: str, *, whole: bool, taken: int = 0) -> None:
    """Print the results of a run.

    `taken` are the lines of the screen that are written already.
    """
    if form != "table":
        write_to(sys.stdout, result.to_json() if form == "json" else result.to_markdown())
        return
    report = importlib.import_module("orchestrator.report.brief_text")
    done = result.completeness
    # Lines below the results: that it was interrupted, or that units failed.
    taken += _LINES_BELOW if taken and (done.left or done.failed) else 0
    tables = [table for table in result.tables if table.columns]
    run, n_tables = paths.shown(result.path), len(result.rankings) + len(tables)
    if result.allow_code and not is_allowed(result.path):
        run = f"{run} --allow-code"
    full = f"In full ({numbers.counted(n_tables, 'table')}): orchestrator report {run} --full"
    page = f"A page: orchestrator report {run} --html · Each item: orchestrator view {run}"
    more = None if whole else [*([full] if n_tables else []), page]
    shown = [report.brief_text(result.brief, more, result.gate, taken=taken)]
    if whole:
        # Of a table without columns the run in brief has told why.
        of_ranking = importlib.import_module("orchestrator.report.rankings").tables_of
        ranked = (table for one in result.rankings for table in of_ranking(one, result.exact_match))
        shown += ["", *map(report.generic_table, (*ranked, *tables))]
    for renderable in shown:
        print_to(sys.stdout, renderable)


def write_files(result: "Result", options: argparse.Namespace, said: Said) -> bool:
    """Write the HTML report if it is asked for; whether it is.

    Its path goes to stderr, because what `run` prints to stdout are its results.
    """
    if options.html is None:
        return False
    # No other command needs what this imports.
    exporting = importlib.import_module("orchestrator.interface.exporting")
    said.wrote(exporting.write_html(result, None if options.html is True else Path(options.html)))
    return True
