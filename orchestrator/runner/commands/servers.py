"""The commands about servers: their options, and what they print."""

import argparse
import sys

import msgspec

from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.report import tables
from orchestrator.report.page import print_to
from orchestrator.report.text import confirm, write_to
from orchestrator.runner.commands.probe import Wanted, probe_all
from orchestrator.runner.servers.registry import ServerRegistry


def probe(options: argparse.Namespace) -> int:
    """Find out what servers really do, and say which methods that allows."""
    found = probe_all(
        options.what,
        Wanted(
            models=tuple(options.model),
            backend=options.backend or "",
            api_key_env=options.api_key_env or "",
            plain=options.plain,
        ),
        overrides=options.overrides,
        allow_code=options.allow_code,
    )
    if options.json:
        write_to(sys.stdout, msgspec.json.encode(found).decode() + "\n")
    for one in () if options.json else found:
        shown = tables.probe_tables(one.title, one.record.findings, one.verdicts)
        print_to(sys.stdout, shown)
    return EXIT_COMPLETE


def servers(options: argparse.Namespace) -> int:
    """List the servers that runs have kept, or end some.

    Raises:
        UsageError: If a name is none of theirs, or it is not clear which are to be stopped.
    """
    shelf = ServerRegistry()
    found = {kept.name: kept for kept in shelf.all()}
    if options.action == "stop":
        unknown = [name for name in options.name if name not in found]
        if unknown:
            raise UsageError(f"no kept server {', '.join(unknown)}; available: {', '.join(found)}")
        if not options.name and not options.all:
            raise UsageError("specify a server name or --all")
        for name in options.name or found:
            shelf.stop(found[name])
            confirm(f"{name} stopped")
        return EXIT_COMPLETE
    if options.json:
        write_to(sys.stdout, msgspec.json.encode(list(found.values())).decode() + "\n")
        return EXIT_COMPLETE
    rows = [
        (kept.name, f"{kept.kind} at {kept.base_url}, {', '.join(kept.models)}; log {kept.log}")
        for kept in found.values()
    ]
    if rows:
        print_to(sys.stdout, tables.listing(rows))
    else:
        write_to(
            sys.stdout, "no kept servers (orchestrator run --keep-servers keeps them running)\n"
        )
    return EXIT_COMPLETE
