"""`orchestrator repair`: what can be read of a damaged run is kept, the rest is asked again."""

import argparse

from orchestrator.columns import ITEMS
from orchestrator.disk import files
from orchestrator.disk.paths import is_foreign
from orchestrator.errors import EXIT_COMPLETE, RunDirectoryError, StoreError
from orchestrator.report.live import progress
from orchestrator.report.text import confirm
from orchestrator.runner.commands.files import run_path, say_of
from orchestrator.runner.planning.revisions import REVISION, last_revision
from orchestrator.runner.planning.spending import SPENT
from orchestrator.runner.results.readable import check_items
from orchestrator.runner.results.stored import missing_notes
from orchestrator.store import RunDirectory, Salvaged, Store, newest, salvage


def repair(options: argparse.Namespace) -> int:
    """Keep what can be read of a damaged run.

    Raises:
        RunDirectoryError: If there is no run, another process writes it, or it is another user's.
        StoreError: If nothing of it can be read.
    """
    path = newest(run_path(options.run))
    if is_foreign(path):
        raise RunDirectoryError(f"{path} belongs to another user; copy it and repair the copy")
    mended = RunDirectory.mend(path)
    RunDirectory.open(path)
    with RunDirectory.lock(path) as directory:
        # How many there are is not known of a damaged store.
        with progress("checking outcomes", None) as advance:
            found = salvage(directory.store_path, advance)
        if found.damaged is not None:
            directory.forget_outcomes()
        said = directory.last_outcome
        with Store.open(directory.store_path, read_only=True) as store:
            missing = missing_notes(store, directory, said)
            mended += [*_recipe_mended(directory, store), *_items_mended(directory)]
    lines = [*_salvaged(found), *mended, *missing]
    if found.damaged is None and len(lines) == 1:
        confirm(f"{path}: {lines[0]}")
    else:
        say_of(path, lines)
    return EXIT_COMPLETE


def _recipe_mended(directory: RunDirectory, store: Store) -> list[str]:
    """Restore the last recipe from the store, where its file is damaged."""
    (file,) = directory.last_revisions(1) or [directory.revisions / "1.yaml"]
    text = store.get_meta(REVISION)
    try:
        if last_revision(directory) is not None or text is None:
            return []
    except StoreError:
        aside = files.set_aside(file)
        if text is None:
            again = "`orchestrator run` with the same recipe rewrites it"
            return [f"the recipe in {file.name} is damaged, and kept as {aside.name}: {again}"]
    files.write(file, text.encode(), durable=True)
    return [f"the recipe in {file.name} was damaged, and is restored"]


def _items_mended(directory: RunDirectory) -> list[str]:
    """Set the frame of items aside, where it is damaged."""
    try:
        check_items(directory)
    except StoreError:
        aside = files.set_aside(directory.results / f"{ITEMS}.parquet")
        return [f"{aside.name} is damaged: `orchestrator run` with the same recipe rewrites it"]
    return []


def _salvaged(found: Salvaged) -> list[str]:
    n_kept = sum(found.kept.values())
    if found.damaged is None:
        return [f"no damage found; the store holds {n_kept:,} outcomes"]
    bound = "at most " if found.n_lost and not found.lost else ""
    lines = [f"{n_kept:,} outcomes kept, {bound}{found.n_lost:,} lost"]
    lines += [f"lost: {n:,} of {model} ({kind})" for (model, kind), n in sorted(found.lost.items())]
    if found.values_lost:
        lines.append(f"damaged values of the run left out: {', '.join(found.values_lost)}")
    if SPENT in found.values_lost:
        lines.append("what was spent is not known any more: bounds of `budget` count from 0")
    lines.append(f"the damaged file is kept as {found.damaged.name}")
    lines.append("`orchestrator run` with the same recipe requests only what was lost")
    return lines
