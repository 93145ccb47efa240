"""Runs of one recipe put together into one run directory, in bulk and without a request."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec

from orchestrator import numbers
from orchestrator.columns import ITEMS
from orchestrator.disk import files
from orchestrator.disk.paths import STORE_NAME, is_foreign
from orchestrator.errors import RunDirectoryError, ServerChangedError, StoreError, UsageError
from orchestrator.frames import FrameFiles
from orchestrator.report.progress import Progress
from orchestrator.runner.models.identity import provenance_words
from orchestrator.runner.models.records import changes
from orchestrator.runner.planning.budget import SPENT, add_spent
from orchestrator.runner.planning.prepare import method_changes
from orchestrator.runner.planning.revisions import REVISION, last_revision, missing, parse
from orchestrator.runner.planning.stopping import NOT_NEEDED, RULE
from orchestrator.runner.results.frames import export, failed_units, items_path
from orchestrator.runner.results.stored import UNITS, completeness
from orchestrator.store import (
    FRAMES,
    ROLES,
    EndedStore,
    RunDirectory,
    Store,
    check_ended,
    newest,
    opened,
)
from orchestrator.store.merging import FromRun, put_in_place
from orchestrator.store.merging import merge as merge_stores

_FOLDER: Final = ".merging"
# How long a merge waits for readers of the store that it replaces.
_READERS_S: Final = 60.0
# Values of a run that belong to its current plan; what is not needed depends on all of it.
_OF_PLAN: Final = (REVISION, FRAMES, ROLES, UNITS, RULE, NOT_NEEDED)


class Merged(msgspec.Struct, frozen=True):
    """Result of a merge.

    Attributes:
        path: The merged run.
        runs: What each run gave, in the order of precedence; that of `path` first if it was there.
        n_outcomes: Outcomes that the merged run holds.
        n_units: Units of its plan that have ended.
        n_total: Units of its plan; None if the runs have different items, so that it has no plan
            yet.
    """

    path: Path
    runs: tuple[FromRun, ...]
    n_outcomes: int
    n_units: int
    n_total: int | None

    @property
    def n_conflicts(self) -> int:
        """Outcomes and units that differ from those that were kept."""
        return sum(run.n_conflicts + run.n_unit_conflicts for run in self.runs)

    def lines(self) -> list[str]:
        """Describe the merge, a line each."""
        lines = []
        for run in self.runs:
            n_new = run.n_outcomes - run.n_same - run.n_conflicts
            said = f"{run.run}: {n_new:,} outcomes copied"
            said += f", {run.n_same:,} held already" if run.n_same else ""
            n = run.n_conflicts
            lines.append(said + (f", {n:,} with another reply than the one kept" if n else ""))
            if run.n_units_left:
                lines.append(
                    f"{run.run}: {numbers.counted(run.n_units_left, 'unit')} left out: some rest "
                    "on replies that were not kept, or on another server; the next run evaluates "
                    "them again"
                )
            if run.n_unit_conflicts:
                n_units = numbers.counted(run.n_unit_conflicts, "unit")
                lines.append(f"{run.run}: {n_units} with other rows than those kept")
        said = f"merged: {self.n_outcomes:,} outcomes"
        again = f"orchestrator run RECIPE --run-dir {self.path}"
        if self.n_total is None:
            said += (
                "; the plans of the runs differ, as with other items or limits. With the recipe "
                f"of all items, {again} joins them and requests only what is missing"
            )
            return [*lines, said]
        said += f", {self.n_units:,} of {self.n_total:,} units"
        if self.n_units < self.n_total:
            said += f"; {again} evaluates the others and requests only what is missing"
        return [*lines, said]


def merge(
    *runs: str | PathLike[str],
    into: str | PathLike[str],
    accept_server_change: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Merged:
    """Put runs of one recipe together; the runs stay as they are.

    Of two outcomes of one request, a good one is kept before a failure, otherwise that of the run
    that is named first. Units that rest on an outcome which was not kept are evaluated again by
    the next `run`, from stored outcomes.

    Args:
        runs: Run directories, those of other machines included, with the same models, methods and
            seed. Their items may differ.
        into: Run directory of the result. If it holds a run, this is merged too, before others.
        accept_server_change: Merge also what different servers answered for one model.
        advance: Called with the number of outcomes copied since the last call.

    Returns:
        What each run gave, and how complete the merged run is.

    Raises:
        UsageError: If the runs are of different recipes, or one is in use.
        ServerChangedError: If different servers answered for one model.
        StoreError: If a run is damaged, or the merged one can't be written.

    Example:
        >>> orchestrator.merge("runs/a", "runs/b", into="runs/all").n_conflicts  # doctest: +SKIP
        0
    """
    target = newest(Path(into))
    paths = [_source(Path(run)) for run in runs]
    if not paths:
        raise UsageError("name at least one run to merge")
    for at, path in enumerate(paths):
        if target.exists() and path.samefile(target):
            raise UsageError(f"{path} is merged into itself; name the other runs only")
        if any(path.samefile(other) for other in paths[:at]):
            raise UsageError(f"{path} is named twice")
    with RunDirectory.lock(target) as directory:
        found = merge_into(directory, paths, accept_change=accept_server_change, advance=advance)
        return _ended(directory, found)


def merge_into(
    directory: RunDirectory,
    paths: Sequence[Path],
    *,
    accept_change: bool,
    advance: Callable[[int], None] | None = None,
) -> list[FromRun]:
    """As `merge`, into a run directory that is held for writing, and without the frames.

    `paths` are runs that nobody writes.

    Raises:
        OrchestratorError: As `merge`.
    """
    with ExitStack() as stack:
        if directory.store_path.exists():
            _settle(directory)
            paths = [directory.path, *paths]
        # For what is known meanwhile; it goes with the stack.
        folder = directory.path / _FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stores = [stack.enter_context(opened(path, folder)) for path in paths]
        _check_recipes(stores)
        if not accept_change:
            _check_servers(stores)
        # That of all runs, or the one that the merged run had.
        plans = {store.plan for store in stores if store.plan is not None}
        own = stores[0].plan if stores[0].run == directory.path else None
        plan = plans.pop() if len(plans) == 1 else own
        found = merge_stores(stores, folder, plan, advance or (lambda _: None))
        _finish(stores, found, plan, folder / STORE_NAME, directory)
        return found


def _settle(directory: RunDirectory) -> None:
    end = time.monotonic() + _READERS_S
    while True:
        with Store.open(directory.store_path, check_owned=directory.check_owned) as store:
            pass
        # Closing waits a moment for readers.
        if not store.wal_bytes or time.monotonic() >= end:
            return


def _source(path: Path) -> Path:
    """A run that can be merged: of this user, with a store that nobody writes."""
    path = newest(path)
    if not (path / STORE_NAME).exists():
        raise RunDirectoryError(f"no run found at {path}; list runs with: orchestrator runs")
    if is_foreign(path):
        raise RunDirectoryError(f"{path} belongs to another user; copy it and merge the copy")
    check_ended(RunDirectory.open(path))
    return path


# -- agreement -----------------------------------------------------------------------------------


def _record(store: EndedStore) -> dict[str, Any]:
    """The last recipe of a run, with the identities of its models."""
    if (latest := last_revision(RunDirectory(store.run))) is not None:
        return latest
    text = store.meta.get(REVISION)
    if text is None:
        raise missing(store.run)
    try:
        return parse(text.encode())
    except ValueError as error:
        raise StoreError(f"{store.path}: its recipe is damaged: {error}") from error


def _check_recipes(stores: Sequence[EndedStore]) -> None:
    """See that runs are of one recipe."""
    # Empty ones have no recipe: a merge that was cut off makes them.
    begun = [store for store in stores if store.last_outcome or store.plan is not None]
    first, *others = begun or stores
    record = _record(first)
    faults = [
        f"{other.run} differs from {first.run}: {'; '.join(differences)}"
        for other in others
        if (differences := _differences(record, _record(other)))
    ]
    if faults:
        raise UsageError(
            f"only runs of one recipe can be merged. {'. '.join(faults)}. To copy single outcomes "
            "from runs of other recipes, name them in `reuse` of a recipe"
        )


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Describe what differs between two recipes and enters the fingerprints of units."""
    found = []
    models, others = one["identities"], other["identities"]
    for name in dict.fromkeys((*models, *others)):
        if name not in models or name not in others:
            found.append(f"model {name} is only in one of them")
        elif models[name] != others[name]:
            keys = dict.fromkeys((*models[name], *others[name]))
            of = [key for key in keys if models[name].get(key) != others[name].get(key)]
            found.append(f"model {name} ({', '.join(of)})")
    recipe, second = one["recipe"], other["recipe"]
    if recipe.get("seed") != second.get("seed"):
        found.append(f"seed ({recipe.get('seed')} and {second.get('seed')})")
    if recipe.get("methods") != second.get("methods"):
        found.append(method_changes(recipe.get("methods"), second.get("methods")))
    return found


def _check_servers(stores: Sequence[EndedStore]) -> None:
    """See that one server answered for each model, or the same several everywhere."""
    known: dict[str, tuple[EndedStore, set[Any]]] = {}
    for store in stores:
        if found_other := changes(store.meta):
            raise ServerChangedError(
                f"{store.run}: {'; '.join(found_other)}. Merge with --accept-server-change, or "
                f"without {store.run}"
            )
        of_model: dict[str, set[Any]] = {}
        for server in store.servers.values():
            of_model.setdefault(server.model, set()).add(server.provenance)
        for model, found in of_model.items():
            first, there = known.setdefault(model, (store, found))
            if found != there:
                name = model.rpartition(" ")[0]
                words, others = (
                    " and ".join(sorted(map(provenance_words, one))) for one in (there, found)
                )
                raise ServerChangedError(
                    f"model {name!r}: {first.run} was answered by {words}, {store.run} by "
                    f"{others}. Their numbers may differ. Merge with --accept-server-change, or "
                    f"without {store.run}"
                )


# -- the merged run ------------------------------------------------------------------------------


def _finish(
    stores: Sequence[EndedStore],
    found: list[FromRun],
    plan: bytes | None,
    new: Path,
    directory: RunDirectory,
) -> None:
    """Complete the new store, put it in place and write what a reader needs beside it."""
    values: dict[str, str] = {}
    for one in stores:
        left_out = (NOT_NEEDED,) if one.plan is not None and one.plan == plan else _OF_PLAN
        values = {key: text for key, text in one.meta.items() if key not in left_out} | values
    kept = [one for one, of in zip(stores, found, strict=True) if not of.is_contained]
    values.pop(SPENT, None)
    spent = add_spent({one.path: one.meta.get(SPENT) for one in kept})
    if spent is not None:
        values[SPENT] = spent
    with Store.open(new, check_owned=directory.check_owned) as store:
        for key, value in values.items():
            store.set_meta(key, value)
    with suppress(FileNotFoundError):
        # It says what the store before held.
        directory.status_path.unlink()
    put_in_place(new, directory.store_path)
    text, said, last = values.get(REVISION), None, directory.last_revision
    with suppress(OSError):
        said = None if last is None else files.read(last).decode("utf-8", "replace")
    if text is not None and text != said:
        directory.write_revision(text)
    if plan is not None:
        # The frame of items of the first run that has it whole, with its mark.
        for run in (RunDirectory(one.run) for one in stores if one.plan == plan):
            mark = run.results / f".{ITEMS}"
            if not (mark.exists() and items_path(run).exists()):
                continue
            for path in (items_path(run), mark) if run.path != directory.path else ():
                with files.replacing(directory.results / path.name, own=True) as copy:
                    copy.write(path.read_bytes())
            break


def _ended(directory: RunDirectory, found: Sequence[FromRun]) -> Merged:
    """Write the frames and the status of a merged run; return how complete it is."""
    with Store.open(directory.store_path, check_owned=directory.check_owned) as store:
        export(store, directory.results)
        done = completeness(store, n_failed=failed_units(FrameFiles(directory.results)))
        n_outcomes = sum(count.n for count in store.counts())
        if done.total:
            said = Progress(
                run_dir=str(directory.path), units_total=done.total, units_stored=done.ended,
                units_failed_before=done.failed,
            )  # fmt: skip
            directory.write_status(msgspec.to_builtins(said), last_outcome=store.last_outcome)
    return Merged(directory.path, tuple(found), n_outcomes, done.ended, done.total or None)
