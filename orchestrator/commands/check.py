"""`orchestrator check`, for editors and hooks, and `orchestrator allow`; light to import.

What draws a fault (rich) is imported when there is one.
"""

import argparse
import importlib
import json
import logging
import sys

from orchestrator.disk.paths import expanded
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE, UsageError
from orchestrator.interface.checking import check as check_recipe
from orchestrator.plugins import permission
from orchestrator.recipe.load import find
from orchestrator.report.text import confirm, say, write_to


def check(options: argparse.Namespace) -> int:
    """Find all faults of recipes."""
    # What the look at servers warns of is among the faults: nobody else prints it.
    log, silent = logging.getLogger("orchestrator"), logging.NullHandler()
    log.addHandler(silent)
    worst = EXIT_COMPLETE
    try:
        for name in options.recipes:
            try:
                notes = check_recipe(
                    name,
                    overrides=options.overrides,
                    allow_code=options.allow_code,
                    online=options.online,
                )
            except UsageError as error:
                calls = importlib.import_module("orchestrator.report.calls")
                page = importlib.import_module("orchestrator.report.page")
                # Words are kept whole at a terminal; an editor that reads a pipe needs whole lines.
                wrap = sys.stderr.isatty()
                page.print_to(sys.stderr, calls.faults(error, summary=False), wrap=wrap)
                worst = EXIT_USAGE
            else:
                for note in notes:
                    messages = importlib.import_module("orchestrator.commands.messages")
                    messages.Said().note(f"{find(name).name}: {note}")
                say(f"{name}: no faults")
    finally:
        log.removeHandler(silent)
    return worst


def allow(options: argparse.Namespace) -> int:
    """Allow a folder, take that back, or list the allowed folders."""
    if options.list:
        if options.revoke or options.folder is not None:
            raise UsageError("--list takes neither a folder nor --revoke")
        found = [str(one) for one in permission.allowed()]
        if options.json:
            write_to(sys.stdout, json.dumps(found) + "\n")
        for line in () if options.json else found:
            say(line)
        return EXIT_COMPLETE
    if options.json:
        raise UsageError("--json goes with --list")
    folder = expanded(options.folder or ".")
    if options.revoke:
        confirm(f"{permission.revoke(folder)}: recipes and runs in it need --allow-code again")
    else:
        confirm(
            f"{permission.allow(folder)}: recipes and runs in it may run code and programs "
            "that they name; revoke with: orchestrator allow --revoke"
        )
    return EXIT_COMPLETE
