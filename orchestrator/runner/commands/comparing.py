"""The command that compares runs: what it prints."""

import argparse
import sys
from collections.abc import Iterator

from rich.console import RenderableType

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report.generic import generic_table
from orchestrator.report.page import FAINT, HEADING, Page, paged, print_to
from orchestrator.report.text import write_to
from orchestrator.runner import api
from orchestrator.runner.commands.files import run_path
from orchestrator.runner.commands.messages import Said


def compare(options: argparse.Namespace) -> int:
    """Compare runs, or parts of runs, on common items."""
    found = api.compare(
        *map(run_path, options.compared),
        by=options.by,
        match=options.match,
        scores=options.score,
        baseline=options.baseline,
        confidence_level=options.confidence,
        allow_code=options.allow_code,
    )
    if options.html is not None:
        Said().wrote(found.to_html(options.html))
    elif options.format == "json":
        write_to(sys.stdout, found.to_json())
    elif options.format == "markdown":
        write_to(sys.stdout, found.to_markdown())
    else:
        print_to(sys.stdout, _summary(found))
        for table in found.tables:
            print_to(sys.stdout, generic_table(table))
    return EXIT_COMPLETE


@paged
def _summary(page: Page, found: api.Comparison) -> Iterator[RenderableType]:
    """The result in a few sentences, and what limits it."""
    for line in found.headline:
        yield page.prose(line, HEADING)
    for note in found.notes:
        yield page.prose(note, FAINT, bullet=True)
    yield page.words("")
