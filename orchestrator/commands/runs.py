"""Commands that change stored runs: merge, repair, gc and rm."""

import argparse
import contextlib
import shutil
from pathlib import Path

import yaml

from orchestrator import numbers
from orchestrator.columns import ITEMS
from orchestrator.commands.messages import run_path, say_of
from orchestrator.disk import files
from orchestrator.disk.paths import RUNS, STORE_NAME, is_foreign
from orchestrator.errors import (
    EXIT_COMPLETE,
    OrchestratorError,
    RunDirectoryError,
    StoreError,
    UsageError,
)
from orchestrator.interface.merging import merge as merge_runs
from orchestrator.recipe.load import loads
from orchestrator.records import Failure, Outcome
from orchestrator.report.live import progress
from orchestrator.report.text import agreed, confirm, say
from orchestrator.runner.planning.budget import SPENT
from orchestrator.runner.planning.counts import count_plan
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.planning.revisions import REVISION, last_revision, stored_revision
from orchestrator.runner.results.readable import check_items
from orchestrator.runner.results.runs import describe, list_runs
from orchestrator.runner.results.stored import missing_notes
from orchestrator.store import RunDirectory, Store, newest
from orchestrator.store.merging import unplanned
from orchestrator.store.salvage import Salvaged, salvage


def merge(options: argparse.Namespace) -> int:
    """Put runs together."""
    with progress("copying outcomes", None) as advance:
        merged = merge_runs(
            *(run_path(run) for run in options.runs),
            into=options.into,
            accept_server_change=options.accept_server_change,
            advance=advance,
        )
    for line in merged.lines():
        say(line)
    return EXIT_COMPLETE


def gc(options: argparse.Namespace) -> int:
    """Count or drop what the last recipe of a run does not ask for."""
    path = newest(run_path(options.run))
    if is_foreign(path):
        # It would open the files that the recipe names.
        raise RunDirectoryError(f"{path} belongs to another user; gc deletes nothing from it")
    with contextlib.ExitStack() as stack:
        if options.drop:
            held = stack.enter_context(RunDirectory.lock(path))
        else:
            held = RunDirectory.open(path)
        keys = _needed(held, allow_code=options.allow_code)
        aside = sorted(path.glob("store.damaged-*"))  # left by repair
        before = sum(file.stat().st_size for file in (held.store_path, *aside))
        if options.drop:
            held.forget_outcomes()
        found = unplanned(held.store_path, keys, drop=options.drop)
        for file in aside if options.drop else ():
            file.unlink()
    n_left = held.store_path.stat().st_size
    what = f"{sum(found.outcomes.values()):,} outcomes and {found.n_units:,} units of earlier plans"
    if options.drop:
        confirm(f"{path}: deleted {what}; {numbers.size(n_left)} of {numbers.size(before)} remain")
        return EXIT_COMPLETE
    room = found.n_bytes + before - n_left
    would = f"`orchestrator runs gc --drop` would delete {what}, about {numbers.size(room)}"
    lines = [f"{found.n_kept:,} outcomes are needed by the last recipe"]
    lines += [
        f"no longer needed: {n:,} of {model} ({kind})"
        for (model, kind), n in sorted(found.outcomes.items())
    ]
    lines += [f"left by repair: {file.name}" for file in aside]
    say_of(path, [*lines, f"{would}; nothing was changed" if room else "nothing to delete"])
    return EXIT_COMPLETE


def _needed(directory: RunDirectory, *, allow_code: bool) -> set[bytes]:
    """Keys of the stored outcomes that the last recipe of a run asks for."""
    keys: set[bytes] = set()
    where = directory.path
    with Store.open(directory.store_path, read_only=True) as store:
        recipe = stored_revision(store, directory).get("recipe", {})
        try:
            content = yaml.safe_dump(recipe, sort_keys=False).encode()
            loaded = loads(content, where / "recipe.yaml", allow_code=allow_code)
            prepared = prepare(loaded, allow_code=allow_code)
        except OrchestratorError as error:
            raise RunDirectoryError(
                f"{where}: cannot determine which outcomes it needs; nothing was deleted. {error}"
            ) from error
        if not store.is_current_plan(prepared.plan.hash()):
            raise RunDirectoryError(
                f"{where}: its recipe now gives a different plan than when it was run: its items, "
                "models or a method version have changed, so nobody knows what it needs; nothing "
                "was deleted. Run it once more, which asks only what is missing"
            )

        def find(key: bytes) -> Outcome | Failure | None:
            if (found := store.get(key)) is not None:
                keys.add(key)
            return found

        with progress("counting items", len(prepared.plan.items)) as advance:
            count_plan(prepared.plan, find, prepared.systems, {}, advance=advance)
    return keys


def rm(options: argparse.Namespace) -> int:
    """Delete runs, after a question; nothing if one of them is in use or another user's."""
    least_s = options.older_than
    if least_s is None and not options.runs:
        raise UsageError("which runs? RUN, or --older-than AGE for those in runs/")
    if options.runs:
        rows = [describe(run) for run in dict.fromkeys(map(run_path, options.runs))]
    else:
        rows = [row for row in list_runs(Path(RUNS)) if row["state"] not in {"running", "foreign"}]
    rows = [row for row in rows if least_s is None or row["age_s"] > least_s]
    with contextlib.ExitStack() as held:
        for run in (Path(row["path"]) for row in rows):
            _hold(run, held)
        for row in rows:
            size, age = numbers.size(row["size"]), numbers.duration(row["age_s"])
            say_of(Path(row["path"]), [f"{row['state']}, {size}, last written {age} ago"])
        n, total = numbers.counted(len(rows), "run"), numbers.size(sum(row["size"] for row in rows))
        if not rows or not (
            options.yes or agreed(f"Delete {n} ({total}) for good?", "delete with --yes")
        ):
            confirm("nothing was deleted")
            return EXIT_COMPLETE
        for row in rows:
            run = Path(row["path"])
            # Its store last: what an interruption leaves is still a run.
            for path in run.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != STORE_NAME:
                    path.unlink()
            shutil.rmtree(run)
    confirm(f"deleted {n}: {total} freed")
    return EXIT_COMPLETE


def _hold(run: Path, held: contextlib.ExitStack) -> None:
    if not (run / STORE_NAME).exists():
        raise RunDirectoryError(f"{run} is no run; nothing was deleted")
    if is_foreign(run) or run.is_symlink():
        whose = "stands elsewhere, by a link" if run.is_symlink() else "belongs to another user"
        raise RunDirectoryError(f"{run} {whose}; nothing was deleted")
    if Path.cwd().is_relative_to(run.resolve()):
        raise RunDirectoryError(f"{run} holds the working directory; nothing was deleted")
    RunDirectory.mend(run)
    held.enter_context(RunDirectory.lock(run, exactly=True))


def repair(options: argparse.Namespace) -> int:
    """Keep what can be read of a damaged run."""
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
            mended += _recipe_mended(directory, store)
        try:
            check_items(directory)
        except StoreError:
            aside = files.set_aside(directory.results / f"{ITEMS}.parquet").name
            mended.append(
                f"{aside} is damaged: `orchestrator run` with the same recipe rewrites it"
            )
    lines = [*_lines_of(found), *mended, *missing]
    if found.damaged is None and len(lines) == 1:
        confirm(f"{path}: {lines[0]}")
    else:
        say_of(path, lines)
    return EXIT_COMPLETE


def _recipe_mended(directory: RunDirectory, store: Store) -> list[str]:
    """Restore the last recipe from the store, where its file is damaged."""
    file = directory.last_revision or directory.revisions / "1.yaml"
    text = store.meta.get(REVISION)
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


def _lines_of(found: Salvaged) -> list[str]:
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
