"""`orchestrator merge`: runs of one recipe are put together into one run directory."""

import argparse
import sys

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report.live import progress
from orchestrator.report.text import safe_line, write_to
from orchestrator.runner import api
from orchestrator.runner.commands.files import run_path


def merge(options: argparse.Namespace) -> int:
    """Put runs together.

    Raises:
        UsageError: If the runs are of different recipes, or one is in use.
        StoreError: If a run is damaged, or the merged one can't be written.
    """
    with progress("copying outcomes", None) as advance:
        merged = api.merge(
            *(run_path(run) for run in options.runs),
            into=options.into,
            accept_server_change=options.accept_server_change,
            advance=advance,
        )
    for line in merged.lines():
        write_to(sys.stdout, safe_line(line) + "\n")
    return EXIT_COMPLETE
