"""`orchestrator gc`: what the last recipes of a run no longer ask for is counted, or dropped."""

import argparse
from collections.abc import Iterable
from pathlib import Path

import yaml

from orchestrator import __version__, numbers
from orchestrator.disk.paths import is_foreign
from orchestrator.errors import EXIT_COMPLETE, OrchestratorError, RunDirectoryError, UsageError
from orchestrator.recipe.load import loads
from orchestrator.records import Failure, Outcome
from orchestrator.report.live import progress
from orchestrator.report.text import confirm
from orchestrator.runner.commands.files import run_path, say_of
from orchestrator.runner.planning.counts import count_plan, systems_of
from orchestrator.runner.planning.prepare import Prepared, prepare
from orchestrator.runner.planning.revisions import read_revision
from orchestrator.store import (
    RunDirectory,
    Store,
    Unplanned,
    damaged_files,
    drop,
    newest,
    plan_hashes,
    unplanned,
)


def gc(options: argparse.Namespace) -> int:
    """Count or drop what no kept recipe asks for.

    Raises:
        UsageError: If an option is wrong.
        RunDirectoryError: If there is no run, another process writes it, or what its recipes ask
            for can't be told any more.
        StoreError: If it can't be read or written.
    """
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
    """The plan of a recipe as it was run."""
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
    would = f"`orchestrator gc --drop` would delete {_unplanned(found)}, about {room}"
    lines.append(f"{would}; nothing was changed")
    return lines


def _unplanned(found: Unplanned) -> str:
    n_outcomes = sum(found.outcomes.values())
    plans = "1 older plan" if found.n_plans == 1 else f"{found.n_plans:,} older plans"
    return f"{n_outcomes:,} outcomes and {found.n_units:,} units of {plans}"
