"""Results of a run on stdout, and the command that shows them."""

import argparse
import sys
from typing import Final

from orchestrator import numbers
from orchestrator.disk import paths
from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report.page import print_to
from orchestrator.report.results import as_tables, as_text, first_screen
from orchestrator.report.text import write_to
from orchestrator.runner import api
from orchestrator.runner.commands.files import run_path, write_files
from orchestrator.runner.commands.messages import Said

# Lines of a terminal that say, below the results, that it was interrupted or that units failed.
_LINES_BELOW: Final = 2


def report(options: argparse.Namespace) -> int:
    """Show what a run found."""
    result = api.load(run_path(options.run), allow_code=options.allow_code)
    said = Said()
    if not write_files(result, options, said):
        show(result, options.format, whole=options.full)
    return EXIT_COMPLETE


def show(result: api.Result, form: str, *, whole: bool, taken: int = 0) -> None:
    """Print the results of a run.

    Args:
        result: Of the run.
        form: "table", "markdown" or "json".
        whole: All tables, not one screen of them.
        taken: Lines of the screen that are written already.
    """
    found = result.findings
    if form == "table":
        # Lines below the results: that it was interrupted, or that units failed.
        done = result.completeness
        taken += _LINES_BELOW if taken and (done.left or done.failed) else 0
        more = _elsewhere(result)
        shown = as_tables(found) if whole else first_screen(found, more, taken=taken)
        for renderable in shown:
            print_to(sys.stdout, renderable)
    else:
        write_to(sys.stdout, as_text("json" if form == "json" else "markdown", found))


def _elsewhere(result: api.Result) -> list[str]:
    """Say where the rest of the results is."""
    run = paths.shown(result.path)
    n_tables = len(result.tables) + len(result.rankings)
    full = f"In full ({numbers.counted(n_tables, 'table')}): orchestrator report {run} --full"
    return [
        *([full] if n_tables else []),
        f"A page: orchestrator report {run} --html · Each item: orchestrator view {run}",
    ]
