"""The command that holds a run against requirements: what it prints and writes."""

import argparse
import sys
from pathlib import Path

from orchestrator.errors import EXIT_COMPLETE, EXIT_GATE_OPEN, UsageError
from orchestrator.report.export.files import write_text
from orchestrator.report.gate import gate_text
from orchestrator.report.page import print_to
from orchestrator.report.text import write_to
from orchestrator.runner import api
from orchestrator.runner.commands.files import run_path
from orchestrator.runner.commands.messages import Said


def gate(options: argparse.Namespace) -> int:
    """Hold a run against requirements; the exit code says the verdict."""
    found = api.gate(
        run_path(options.run),
        options.require,
        against=None if options.against is None else run_path(options.against),
        match=options.match,
        confidence_level=options.confidence,
        allow_code=options.allow_code,
    )
    said = Said()
    if options.junit is not None:
        junit = Path(options.junit)
        write_text(junit, found.to_junit(pass_unknown=options.pass_unknown))
        said.wrote(junit)
    if options.summary is not None:
        _append(Path(options.summary), found.to_markdown())
    if options.format == "json":
        write_to(sys.stdout, found.to_json())
    elif options.format == "markdown":
        write_to(sys.stdout, found.to_markdown())
    else:
        print_to(sys.stdout, gate_text(found))
    code = found.exit_code
    return EXIT_COMPLETE if code == EXIT_GATE_OPEN and options.pass_unknown else code


def _append(path: Path, text: str) -> None:
    """Append to a file to which other steps of the job write too.

    Raises:
        UsageError: If it can't be written.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
