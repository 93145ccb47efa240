"""`orchestrator check`, for editors and hooks: it imports neither statistics nor polars.

What draws a fault (rich) is imported when there is one.
"""

import argparse
import importlib
import sys
from pathlib import Path

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE, LaunchError, UsageError
from orchestrator.recipe.load import find
from orchestrator.recipe.load import load as load_recipe
from orchestrator.report.streams import write_to
from orchestrator.report.text import safe_line
from orchestrator.runner.alike import notes_on_items
from orchestrator.runner.prepare import prepare


def check(options: argparse.Namespace) -> int:
    """Find all faults of recipes."""
    worst = EXIT_COMPLETE
    for name in options.recipes:
        try:
            _check_one(find(name), options)
        except UsageError as error:
            tables = importlib.import_module("orchestrator.report.tables")
            _print(tables.faults(error, summary=False), wrap=False)
            worst = EXIT_USAGE
        else:
            write_to(sys.stdout, f"{safe_line(name)}: no faults\n")
    return worst


def _check_one(path: Path, options: argparse.Namespace) -> None:
    recipe = load_recipe(path, overrides=options.set, allow_code=options.allow_code)
    if recipe.reuse:
        with importlib.import_module("orchestrator.runner.reuse").open_lenders(recipe.reuse, None):
            pass
    try:
        prepared = prepare(recipe, path.parent, allow_code=options.allow_code)
    except LaunchError as error:
        # Weights that are on another machine are no fault of the recipe.
        _complain(f"{path.name}: not on this machine: {error}")
    else:
        for note in notes_on_items(prepared):
            _complain(f"{path.name}: {note}")


def _complain(message: str) -> None:
    importlib.import_module("orchestrator.runner.said").Said().complain(message)


def _print(renderable: object, *, wrap: bool) -> None:
    importlib.import_module("orchestrator.report.page").print_to(sys.stderr, renderable, wrap=wrap)
