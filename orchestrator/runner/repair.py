"""`orchestrator repair`: what can be read of a damaged run is kept, the rest is asked again."""

import argparse
import sys

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report.streams import write_to
from orchestrator.report.text import safe_line
from orchestrator.runner.report_commands import run_path
from orchestrator.store import RunDirectory, Salvaged, newest, salvage


def repair(options: argparse.Namespace) -> int:
    """Keep what can be read of a damaged run.

    Raises:
        RunDirectoryError: If there is no run, or another process writes it.
        StoreError: If nothing of it can be read.
    """
    path = newest(run_path(options.run))
    RunDirectory.open(path)
    with RunDirectory.lock(path) as directory:
        found = salvage(directory.store_path)
    for line in _said(found):
        write_to(sys.stdout, safe_line(f"{path}: {line}") + "\n")
    return EXIT_COMPLETE


def _said(found: Salvaged) -> list[str]:
    n_kept = sum(found.kept.values())
    if found.damaged is None:
        return [f"nothing is damaged; {n_kept:,} outcomes are held"]
    bound = "" if found.lost else "at most "
    lines = [f"{n_kept:,} outcomes kept, {bound}{found.n_lost:,} lost"]
    lines += [f"lost: {n:,} of {model} ({kind})" for (model, kind), n in sorted(found.lost.items())]
    lines.append(f"the damaged file is kept as {found.damaged.name}")
    lines.append("`orchestrator run` with the same recipe asks again what was lost, and no more")
    return lines
