"""The command that counts what a recipe would send."""

import argparse
import sys
from contextlib import nullcontext

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report import tables
from orchestrator.report.live import progress
from orchestrator.report.page import print_to
from orchestrator.report.text import write_to
from orchestrator.runner import api
from orchestrator.runner.commands.submit import job_of


def plan(options: argparse.Namespace) -> int:
    """Count what would be sent; send nothing."""
    job = job_of(options) if options.submit else None
    shown = progress("counting items", None) if options.exact else nullcontext(_unseen)
    with shown as advance:
        counted = api.plan(
            options.recipe,
            run_dir=options.run_dir,
            overrides=[*options.overrides, *([] if job is None else job.overrides)],
            limit=options.limit,
            on=options.on,
            allow_code=options.allow_code,
            exact=options.exact,
            advance=advance,
        )
    if options.json:
        write_to(sys.stdout, counted.to_json() + "\n")
    else:
        print_to(sys.stdout, tables.plan_table(counted))
    if job is not None:
        write_to(sys.stdout, f"\n{job.submission()}:\n\n{job.script}")
    return EXIT_COMPLETE


def _unseen(_n: int) -> None:
    """Show nothing: a short task."""
