"""`orchestrator check`, for editors and hooks: it imports neither statistics nor polars."""

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType

from rich.text import Text

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE, LaunchError, UsageError
from orchestrator.recipe.load import find
from orchestrator.recipe.load import load as load_recipe
from orchestrator.report.page import print_to, write_to
from orchestrator.report.text import safe_line
from orchestrator.runner.prepare import prepare


def check(options: argparse.Namespace) -> int:
    """Find all faults of recipes."""
    worst = EXIT_COMPLETE
    for name in options.recipes:
        try:
            _check_one(find(name), options)
        except UsageError as error:
            print_to(sys.stderr, _tables().faults(error, summary=False), wrap=False)
            worst = EXIT_USAGE
        else:
            write_to(sys.stdout, f"{safe_line(name)}: no faults\n")
    return worst


def _check_one(path: Path, options: argparse.Namespace) -> None:
    recipe = load_recipe(path, overrides=options.set, allow_code=options.allow_code)
    try:
        prepare(recipe, path.parent, allow_code=options.allow_code)
    except LaunchError as error:
        # Weights that are on another machine are no fault of the recipe.
        line = safe_line(f"orchestrator: {path.name}: not on this machine: {error}")
        print_to(sys.stderr, Text(line), wrap=sys.stderr.isatty())


def _tables() -> ModuleType:
    # Where nothing is wrong there are none to draw.
    return importlib.import_module("orchestrator.report.tables")
