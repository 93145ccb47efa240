"""Commands that change stored runs: merge, repair, gc and rm."""

import argparse
import contextlib
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from orchestrator import __version__, numbers
from orchestrator.columns import ITEMS
from orchestrator.disk import files
from orchestrator.disk.paths import RUNS, STORE_NAME, is_foreign
from orchestrator.errors import (
    EXIT_COMPLETE,
    OrchestratorError,
    RunDirectoryError,
    StoreError,
    UsageError,
)
from orchestrator.recipe.load import loads
from orchestrator.records import Failure, Outcome
from orchestrator.report.live import progress
from orchestrator.report.text import agreed, confirm, safe_line, write_to
from orchestrator.runner import api
from orchestrator.runner.commands.messages import run_path, say_of
from orchestrator.runner.planning.counts import count_plan, systems_of
from orchestrator.runner.planning.prepare import Prepared, prepare
from orchestrator.runner.planning.revisions import REVISION, last_revision, read_revision
from orchestrator.runner.planning.spending import SPENT
from orchestrator.runner.results.readable import check_items
from orchestrator.runner.results.runs import describe, list_runs
from orchestrator.runner.results.stored import missing_notes
from orchestrator.store import (
    RunDirectory,
    Salvaged,
    Store,
    Unplanned,
    damaged_files,
    drop,
    newest,
    plan_hashes,
    salvage,
    unplanned,
)

_DAY_S: Final = 24 * 3600


def merge(options: argparse.Namespace) -> int:
    """Put runs together."""
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


def gc(options: argparse.Namespace) -> int:
    """Count or drop what no kept recipe asks for."""
    if options.keep < 1:
        raise UsageError(f"--keep must be at least 1, got {options.keep}")
    path = newest(run_path(options.run))
    if is_foreign(path):
        # It would open the files that the recipes name.
        raise RunDirectoryError(f"{path} belongs to another user; gc deletes nothing from it")
    directory = RunDirectory.open(path)
    if not options.drop:
        keys, plans = _planned(directory, options.keep, allow_code=options.allow_code)
        found = unplanned(directory.store_path, keys, plans)
        say_of(path, _counted(found, damaged_files(directory.store_path), options.keep))
        return EXIT_COMPLETE
    with RunDirectory.lock(path) as held:
        keys, plans = _planned(held, options.keep, allow_code=options.allow_code)
        aside = damaged_files(held.store_path)
        before = _n_bytes([held.store_path, *aside])
        held.forget_outcomes()
        found = drop(held.store_path, keys, plans)
        for file in aside:
            file.unlink()
        after = _n_bytes([held.store_path])
    remain = f"{numbers.size(after)} of {numbers.size(before)} remain"
    confirm(f"{path}: deleted {_unplanned(found)}; {remain}")
    return EXIT_COMPLETE


def rm(options: argparse.Namespace) -> int:
    """Delete runs, after a question; nothing if one of them is in use or another user's."""
    days = options.older_than
    if days is None and not options.runs:
        raise UsageError("which runs? RUN, or --older-than DAYS for those in runs/")
    if options.runs:
        rows = [describe(run) for run in dict.fromkeys(map(run_path, options.runs))]
    else:
        rows = [row for row in list_runs(Path(RUNS)) if row["state"] not in {"running", "foreign"}]
    rows = [row for row in rows if days is None or row["age_s"] > days * _DAY_S]
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
            _delete(Path(row["path"]))
    confirm(f"deleted {n}, {total}")
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


def _delete(run: Path) -> None:
    """Delete a run, its store last: what an interruption leaves is still a run."""
    for path in run.iterdir():
        if path.name == STORE_NAME:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.rmtree(run)


def _planned(
    directory: RunDirectory, keep: int, *, allow_code: bool
) -> tuple[set[bytes], set[bytes]]:
    """Keys of stored outcomes that the last recipes ask for, and the hashes of their plans."""
    keys: set[bytes] = set()
    plans: set[bytes] = set()
    opened = plan_hashes(directory.store_path)
    with Store.open(directory.store_path, read_only=True) as store:
        for file in directory.last_revisions(keep):
            prepared = _prepared(file, allow_code=allow_code)
            plan_hash = prepared.plan.hash()
            if plan_hash not in opened:
                version = read_revision(file).get("orchestrator")
                by = "" if version == __version__ else f" by orchestrator {version!s:.20}"
                raise RunDirectoryError(
                    f"{file}: this recipe now gives a different plan than when it was run{by}: "
                    f"its items, models or a method version have "
                    "changed. The outcomes that it needs are unknown; nothing was deleted. Run "
                    "the recipe once more, which asks only what is missing and stores the plan "
                    "of now; or see what other recipes keep by a smaller --keep"
                )
            plans.add(plan_hash)
            _add_keys(prepared, store, keys)
    return keys, plans


def _prepared(file: Path, *, allow_code: bool) -> Prepared:
    recipe = read_revision(file).get("recipe", {})
    try:
        content = yaml.safe_dump(recipe, sort_keys=False).encode()
        loaded = loads(content, file, allow_code=allow_code)
        return prepare(loaded, file.parent, allow_code=allow_code)
    except OrchestratorError as error:
        raise RunDirectoryError(
            f"{file}: cannot determine which outcomes it needs; nothing was deleted. {error}"
        ) from error


def _add_keys(prepared: Prepared, store: Store, keys: set[bytes]) -> None:
    """Keys of the outcomes that `orchestrator plan` would find."""

    def look_up(key: bytes) -> Outcome | Failure | None:
        found = store.get(key)
        if found is not None:
            keys.add(key)
        return found

    with progress("counting items", len(prepared.plan.items)) as advance:
        count_plan(prepared.plan, look_up, systems_of(prepared), {}, advance=advance)


def _n_bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.exists())


def _counted(found: Unplanned, aside: list[Path], keep: int) -> list[str]:
    recipes = "the last recipe" if keep == 1 else f"the last {keep} recipes"
    lines = [f"{found.n_kept:,} outcomes are needed by {recipes}"]
    for (model, kind), n in sorted(found.outcomes.items()):
        lines.append(f"no longer needed: {n:,} of {model} ({kind})")
    if aside:
        lines.append(f"left by repair: {', '.join(file.name for file in aside)}")
    if found.is_empty and not aside:
        return [*lines, "nothing to delete"]
    room = numbers.size(found.n_bytes + _n_bytes(aside))
    would = f"`orchestrator runs gc --drop` would delete {_unplanned(found)}, about {room}"
    lines.append(f"{would}; nothing was changed")
    return lines


def _unplanned(found: Unplanned) -> str:
    n_outcomes = sum(found.outcomes.values())
    plans = "1 older plan" if found.n_plans == 1 else f"{found.n_plans:,} older plans"
    return f"{n_outcomes:,} outcomes and {found.n_units:,} units of {plans}"


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
