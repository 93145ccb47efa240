"""A run of a prepared recipe in a directory that is locked for it."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from orchestrator.recipe.ending import LogTo
from orchestrator.report.display import Display
from orchestrator.report.progress import ModelProgress
from orchestrator.runner.interface.on_end import hooked, state_of
from orchestrator.runner.interface.tracking import Tracking, needed, parameters
from orchestrator.runner.interrupts import DeferredInterrupts, deferred_interrupts
from orchestrator.runner.logs import logged
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.planning.reuse import open_lenders
from orchestrator.runner.planning.similar_items import notes_on_items
from orchestrator.runner.results.stored import check_whole, missing_notes
from orchestrator.runner.servers.slurm import On
from orchestrator.runner.servers.slurm_chain import HANDS_ON
from orchestrator.runner.session.announcement import announce
from orchestrator.runner.session.event_loop import Stop, run_to_end
from orchestrator.runner.session.execute import Ended, Opened, execute, open_plan
from orchestrator.store import RunDirectory, Store, newest
from orchestrator.trackers.base import Began, State

if TYPE_CHECKING:
    from orchestrator.runner.interface.recipe import Recipe
    from orchestrator.runner.interface.result import Result


class How(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one run of a prepared recipe.

    Attributes:
        where: The run directory.
        fresh: Begin in a new directory beside it.
        accept_change: Continue even if the server has changed.
        keep_servers: Leave the servers that were launched running for a later run.
        stop: Asked from another thread to stop the run.
        on: Machines that launched servers run on.
    """

    where: Path
    fresh: bool = False
    accept_change: bool = False
    keep_servers: bool = False
    stop: Stop
    on: On = "local"


def run_prepared(
    prepared: Prepared,
    given: "Recipe | None",
    shown: Display,
    how: How,
    decide: "Callable[[Result, Callable[[str], None]], None]",
) -> "Result":
    """Run a prepared recipe and export its frames.

    Args:
        prepared: The recipe.
        given: The recipe as Python gave it, which is kept in the run directory.
        shown: Display of the progress.
        how: Where and how.
        decide: Holds the run against the gates of its recipe; called with a function for notes.

    Raises:
        OrchestratorError: If the run can't continue.
    """
    recipe = prepared.recipe
    needed(recipe.settings.log_to)
    with hooked(recipe.settings.on_end, recipe.name, how.where, shown) as ended:
        # After the lock is gone: the command may read the run.
        result = _tracked(prepared, given, shown, how)
        ended.append(result)
        # Before the command, which gets the verdict.
        decide(result, shown.note)
    return ended[0]


def _tracked(prepared: Prepared, given: "Recipe | None", shown: Display, how: How) -> "Result":
    """Run with the trackers of `log_to`, if there are any."""
    recipe = prepared.recipe
    if not recipe.settings.log_to:
        return _locked(prepared, given, shown, how)
    settings = parameters(recipe.resolved())

    def began(tracker: LogTo) -> Began:
        return Began(
            project=tracker.project or recipe.name,
            name=recipe.name,
            folder=newest(how.where).absolute(),
            parameters=settings,
            uri=tracker.uri,
            mode=tracker.mode,
        )

    tracking = Tracking(shown, recipe.settings.log_to, began)
    result: Result | None = None
    state: State = "failed"
    try:
        result = _locked(prepared, given, tracking, how)
        state = state_of(result)
    finally:
        tracking.finish(result, state)
    return result


def _locked(prepared: Prepared, given: "Recipe | None", shown: Display, how: How) -> "Result":
    with (
        open_lenders(prepared.recipe.reuse, None if how.fresh else newest(how.where)) as lenders,
        deferred_interrupts() as late,
        RunDirectory.lock(how.where, fresh=how.fresh) as directory,
    ):
        check_whole(directory)
        prepared = msgspec.structs.replace(prepared, lenders=lenders)
        if given is not None:
            recipe = given.keep(prepared.recipe, directory)
            prepared = msgspec.structs.replace(prepared, recipe=recipe)
        return _run(prepared, directory, shown, how, late)


def _run(
    prepared: Prepared,
    directory: RunDirectory,
    shown: Display,
    how: How,
    late: DeferredInterrupts,
) -> "Result":
    """Run the remaining units of a run in the directory that is held for it; return its frames.

    Args:
        prepared: The run.
        directory: Held for writing.
        shown: Display of the progress.
        how: Options.
        late: Interrupts of the call.
    """
    with (
        logged(directory.log_path, shown),
        Store.open(directory.store_path, check_owned=directory.check_owned) as store,
    ):
        for line in missing_notes(store, directory, directory.last_outcome):
            shown.note(line)
        opened = open_plan(prepared, directory, store)
        alike = notes_on_items(prepared)
        for line in (*announce(prepared, opened, store), *alike):
            shown.note(line)
        told = _models_told(directory)
        ended = _finish(prepared, opened, directory, store, shown, how)
        late.begin()
        result: Result = _outcome().result_of(
            prepared,
            opened,
            directory,
            store,
            shown,
            ended,
            late,
            is_read=not _is_handed_on(prepared, ended),
            notes=alike,
            told=told,
        )
    return result


def _outcome() -> ModuleType:
    # It imports frames, tables and reports, which nothing needs before there is a result.
    return importlib.import_module("orchestrator.runner.interface.outcome")


def _is_handed_on(prepared: Prepared, ended: Ended) -> bool:
    """Return True if another client goes on with the run, and nothing looks at this call's results.

    Then no frames are written: that would only delay the other client, and readers make their own.
    """
    is_read = bool(prepared.recipe.settings.on_end or prepared.recipe.settings.log_to)
    return ended.interrupted and HANDS_ON in os.environ and not is_read


def _models_told(directory: RunDirectory) -> tuple[ModelProgress, ...]:
    """Return the requests by model of the last call that sent any; () where no status has them."""
    before = directory.read_status()
    try:
        return msgspec.convert(
            () if before is None else before.values.get("models", ()), tuple[ModelProgress, ...]
        )
    except msgspec.ValidationError:
        # Of another version, or damaged.
        return ()


def _finish(
    prepared: Prepared,
    opened: Opened,
    directory: RunDirectory,
    store: Store,
    shown: Display,
    how: How,
) -> Ended:
    left = opened.done.count(0)
    if left == 0:
        n_stored = len(prepared.plan) - opened.n_not_needed
        shown.note(f"complete: nothing to send ({n_stored:,} units in the store)")
        return Ended(None, "", interrupted=False)
    shown.start(f"{prepared.recipe.name} → {directory.path}", len(prepared.plan))
    try:
        return run_to_end(
            lambda stop: execute(
                prepared,
                opened,
                directory,
                store,
                accept_change=how.accept_change,
                keep_servers=how.keep_servers,
                on=how.on,
                watch=shown.update,
                meanwhile=_outcome,
                stop=stop,
            ),
            how.stop,
        )
    finally:
        shown.stop()
