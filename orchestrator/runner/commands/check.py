"""`orchestrator check`, for editors and hooks: it imports neither statistics nor polars.

What draws a fault (rich) is imported when there is one.
"""

import argparse
import importlib
import logging
import sys

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE, UsageError
from orchestrator.recipe.load import find
from orchestrator.report.text import safe_line, write_to
from orchestrator.runner.interface.checking import check as check_recipe


def check(options: argparse.Namespace) -> int:
    """Find all faults of recipes."""
    # What the look at servers warns of is among the faults: nobody else prints it.
    log, silent = logging.getLogger("orchestrator"), logging.NullHandler()
    log.addHandler(silent)
    try:
        return _check_each(options)
    finally:
        log.removeHandler(silent)


def _check_each(options: argparse.Namespace) -> int:
    worst = EXIT_COMPLETE
    for name in options.recipes:
        try:
            notes = check_recipe(
                name,
                overrides=options.overrides,
                allow_code=options.allow_code,
                online=options.online,
            )
        except UsageError as error:
            tables = importlib.import_module("orchestrator.report.tables")
            page = importlib.import_module("orchestrator.report.page")
            # Words are kept whole at a terminal; an editor that reads a pipe needs whole lines.
            wrap = sys.stderr.isatty()
            page.print_to(sys.stderr, tables.faults(error, summary=False), wrap=wrap)
            worst = EXIT_USAGE
        else:
            for note in notes:
                messages = importlib.import_module("orchestrator.runner.commands.messages")
                messages.Said().note(f"{find(name).name}: {note}")
            write_to(sys.stdout, f"{safe_line(name)}: no faults\n")
    return worst
