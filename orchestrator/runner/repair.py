"""`orchestrator repair`: what can be read of a damaged run is kept, the rest is asked again."""

import argparse

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.runner.report_commands import run_path, say_of
from orchestrator.runner.results import missing_notes
from orchestrator.store import RunDirectory, Salvaged, Store, newest, salvage


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
        if found.damaged is not None:
            directory.forget_outcomes()
    with Store.open(directory.store_path, read_only=True) as store:
        missing = missing_notes(store, directory)
    say_of(path, [*_said(found), *missing])
    return EXIT_COMPLETE


def _said(found: Salvaged) -> list[str]:
    n_kept = sum(found.kept.values())
    if found.damaged is None:
        return [f"nothing is damaged; {n_kept:,} outcomes are held"]
    bound = "at most " if found.n_lost and not found.lost else ""
    lines = [f"{n_kept:,} outcomes kept, {bound}{found.n_lost:,} lost"]
    lines += [f"lost: {n:,} of {model} ({kind})" for (model, kind), n in sorted(found.lost.items())]
    lines.append(f"the damaged file is kept as {found.damaged.name}")
    lines.append("`orchestrator run` with the same recipe asks again what was lost, and no more")
    return lines
