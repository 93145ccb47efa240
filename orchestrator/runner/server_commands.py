"""The commands about servers: their options, and what they print."""

import argparse
import sys

import msgspec

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report import tables
from orchestrator.report.page import print_to, write_to
from orchestrator.runner import probing


def probe_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator probe`, but for those that it shares with other commands."""
    command.add_argument("what", metavar="URL|RECIPE", help="a running server, or a recipe's")
    command.add_argument("--json", action="store_true", help="for programs")
    command.add_argument(
        "--model", action="append", default=[], help="at a URL: only this one; may be given again"
    )
    command.add_argument("--backend", metavar="KIND", help="at a URL: recognised where left out")
    command.add_argument("--api-key-env", metavar="VAR", help="at a URL: variable with the key")
    command.add_argument("--plain", action="store_true", help="at a URL: models without a chat")


def probe(options: argparse.Namespace) -> int:
    """Find out what servers really do, and say which methods that allows."""
    found = probing.probe(
        options.what,
        probing.Wanted(
            models=tuple(options.model),
            backend=options.backend or "",
            api_key_env=options.api_key_env or "",
            plain=options.plain,
        ),
        overrides=options.set,
        allow_code=options.allow_code,
    )
    if options.json:
        write_to(sys.stdout, msgspec.json.encode(found).decode() + "\n")
    for one in () if options.json else found:
        shown = tables.probe_tables(one.title, one.record.findings, one.verdicts)
        print_to(sys.stdout, shown)
    return EXIT_COMPLETE
