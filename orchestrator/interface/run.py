"""A run from its recipe to its results: every step in order, each done by a room of its own."""

import asyncio
import contextlib
import importlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import msgspec

from orchestrator import numbers
from orchestrator.errors import OrchestratorError, RunDirectoryError, UsageError
from orchestrator.interface.checking import directory_of, prepared_from
from orchestrator.interface.tracking import Tracking, hooked, needed, own_hook
from orchestrator.report.display import Kind, make_display
from orchestrator.report.lines import Display
from orchestrator.report.progress import Progress
from orchestrator.runner.event_loop import (
    CANCELLED,
    Errand,
    Stop,
    deferred_interrupts,
    event_loop,
    unwrapped,
)
from orchestrator.runner.logs import logged
from orchestrator.runner.models.records import Probes, needs_of
from orchestrator.runner.planning.budget import budget_of, keep_spent
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.planning.reuse import copies_of, open_lenders
from orchestrator.runner.planning.similar_items import notes_on_items
from orchestrator.runner.planning.stopping import remember_not_needed
from orchestrator.runner.results.stored import completeness, failed_units, keep_items, missing_notes
from orchestrator.runner.servers.connections import warn_of_missing_keys
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.runner.servers.machine import raise_file_limit
from orchestrator.runner.servers.placement import Waves
from orchestrator.runner.servers.registry import ServerRegistry
from orchestrator.runner.servers.slurm import On, are_shared, carriers, places_on
from orchestrator.runner.servers.slurm_chain import is_handed_on
from orchestrator.runner.session.adaptive import Adaptive
from orchestrator.runner.session.control import Interrupts, obey
from orchestrator.runner.session.opening import Opened, announce, check_retry, open_plan
from orchestrator.runner.session.session import Ended, HandedOn, Session
from orchestrator.scheduler.core import Core
from orchestrator.store import RunDirectory, Store, newest

if TYPE_CHECKING:
    from orchestrator.interface.recipe import Recipe
    from orchestrator.interface.result import Result

# How often displays and status.json are brought up to date, seconds.
_WATCH_S: Final = 1.0

_log = logging.getLogger(__name__)


def run(  # noqa: PLR0913 (options of one command, all but one by keyword)
    recipe: "str | PathLike[str] | Recipe",
    *,
    run_dir: str | PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    fresh: bool = False,
    display: Kind | None = "auto",
    accept_server_change: bool = False,
    keep_servers: bool = False,
    on_end: str | None = None,
    on: On = "local",
    allow_code: bool = False,
    retry: str = "",
) -> "Result":
    """Run a recipe, or continue where it stopped.

    Works in a notebook too. An interrupt while requests are sent (Ctrl-C, or the stop button) stops
    softly: no new requests are sent, those in flight may end, every answer is recorded, and the
    result says so (`result.ended.interrupted`). The same call continues.

    Args:
        recipe: The path of a file, the name of a bundled recipe, or a `Recipe`.
        run_dir: Where to keep the run; `runs/<recipe name>` if omitted.
        overrides: Settings as `a.b=c`.
        limit: Use only this many items from the start.
        fresh: Begin in a new directory.
        display: "live", "plain", "json", "notebook" or "none"; "auto" is "notebook" in a notebook
            and otherwise "none"; None is "live" at a terminal and otherwise "plain".
        accept_server_change: Continue even if another server answered before.
        keep_servers: Leave the servers that were launched running for a later run.
        on_end: Command for the shell when the call ends, with the result in its environment,
            instead of the recipe's `on_end`. It gets all environment variables, and needs no
            permission.
        on: Start servers on this machine ("local"), or on the nodes of a cluster of Slurm
            ("slurm") or Ray ("ray").
        allow_code: Run code and programs that the recipe names.
        retry: Ask the kept failures of this cause again, or those of "all" causes.

    Returns:
        The run, with its frames, rankings, tables and reports.

    Raises:
        RecipeError: With all faults of the recipe.
        OrchestratorError: If the run can't begin or continue.

    Example:
        >>> result = orchestrator.run("pairwise_ranking", limit=20)  # doctest: +SKIP
        >>> result.frames["judgments"]  # doctest: +SKIP
    """
    prepared = prepared_from(recipe, overrides, limit, allow_code=allow_code)
    given = None if isinstance(recipe, str | PathLike) else recipe
    call = Call(
        fresh=fresh, display=display, accept_server_change=accept_server_change,
        keep_servers=keep_servers, on_end=on_end, on=on, retry=retry,
    )  # fmt: skip
    result = run_prepared(prepared, directory_of(run_dir, prepared.recipe.run_name), call, given)
    if isinstance(result, HandedOn):
        loaded: Result = _module().load(result.path)
        loaded.ended = result.ended
        return loaded
    return result


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a call; see `run`, which has the same."""

    fresh: bool = False
    display: Kind | None = "auto"
    accept_server_change: bool = False
    keep_servers: bool = False
    on_end: str | None = None
    on: On = "local"
    retry: str = ""


def run_prepared(
    prepared: Prepared, where: Path, call: Call, given: "Recipe | None" = None
) -> "Result | HandedOn":
    """Run a recipe that was read, in a run directory; `given` is the recipe if Python gave it.

    Errors are those of `run`. Without results if another call shows them.
    """
    if call.retry and call.fresh:
        raise UsageError("a fresh run has no failures to retry")
    if call.retry:
        check_retry(newest(where), call.retry)
    recipe, shown = prepared.recipe, make_display(call.display, sys.stderr)
    if call.on_end is not None:
        settings = recipe.settings.model_copy(update={"on_end": own_hook(call.on_end)})
        recipe = replace(recipe, settings=settings)
    settings = recipe.settings
    prepared = msgspec.structs.replace(prepared, recipe=recipe, retry=call.retry)
    needed(settings.log_to)
    with hooked(settings.on_end, recipe.name, where, shown) as ended:
        with Tracking(recipe, where, shown) as tracked:
            result = _in_directory(prepared, given, where, tracked, call)
            if isinstance(result, HandedOn):
                return result
            tracked.result = result
        # The lock is gone: the gates and the command of `on_end` may read the run.
        ended.append(result)
        if settings.gates:
            importlib.import_module("orchestrator.interface.gating").hold(result, shown.note)
    return result


def _in_directory(
    prepared: Prepared, given: "Recipe | None", where: Path, shown: Display, call: Call
) -> "Result | HandedOn":
    """Hold the run directory, send what is left to send, and return the results."""
    with contextlib.ExitStack() as stack:
        lenders = open_lenders(prepared.recipe.reuse, None if call.fresh else newest(where))
        prepared = msgspec.structs.replace(prepared, lenders=stack.enter_context(lenders))
        late = stack.enter_context(deferred_interrupts())
        directory = stack.enter_context(RunDirectory.lock(where, fresh=call.fresh))
        if given is not None:
            recipe = given.keep(prepared.recipe, directory)
            prepared = msgspec.structs.replace(prepared, recipe=recipe)
        stack.enter_context(logged(directory.log_path, shown))
        if prepared.retry:
            directory.forget_outcomes()
            # Few calls need it.
            merging = importlib.import_module("orchestrator.store.merging")
            n = merging.drop_failures(directory.store_path, prepared.retry)
            if n:
                said = f"{numbers.counted(n, 'failed request')} ({prepared.retry})"
                shown.note(f"{said} may be asked again")
        path, check_owned = directory.store_path, directory.check_owned
        store = stack.enter_context(Store.open(path, check_owned=check_owned))
        for line in missing_notes(store, directory, directory.last_outcome):
            if not store.last_outcome:  # All would be paid for again, and nobody has asked for it.
                raise RunDirectoryError(f"{store.path}: {line}; to do so, start again with --fresh")
            shown.note(line)

        opened = open_plan(prepared, directory, store)
        alike = notes_on_items(prepared) if _is_read(prepared, Ended()) else ()
        for line in (*announce(prepared, opened, store), *prepared.read_as, *alike):
            shown.note(line)

        before = directory.status()
        ended = Ended()
        if opened.n_left:
            shown.start(f"{prepared.recipe.name} → {directory.path}", len(prepared.plan))
            try:
                with event_loop() as (to_end, stop):
                    ended = to_end(_send(prepared, opened, directory, store, shown, call, stop))
            finally:
                shown.stop()
        else:
            n_stored = len(prepared.plan) - opened.n_not_needed
            shown.note(f"complete: nothing to send ({n_stored:,} units in the store)")

        late.begin()
        if not _is_read(prepared, ended):
            return _ended(opened, directory, store, ended)
        # Imported while requests were in flight: none of them waited for it.
        result: Result = _module().result_of(
            prepared, opened, directory, store, shown, ended, late, notes=alike, before=before
        )
    return result


def _ended(opened: Opened, directory: RunDirectory, store: Store, ended: Ended) -> HandedOn:
    """Return the end of a call that another client goes on from, or puts together with others."""
    done = completeness(store, opened.n_not_needed)
    if not ended.interrupted:
        # Otherwise the other client waits for this one.
        done = msgspec.structs.replace(done, failed=failed_units(store))
        if ended.progress is not None:
            n_before = max(0, done.failed - ended.progress.units_failed)
            progress = msgspec.structs.replace(ended.progress, units_failed_before=n_before)
            directory.write_status(msgspec.to_builtins(progress), last_outcome=store.last_outcome)
    return HandedOn(directory.path, ended, done)


async def _send(  # noqa: PLR0913 (the parts of a run)
    prepared: Prepared,
    opened: Opened,
    directory: RunDirectory,
    store: Store,
    shown: Display,
    call: Call,
    stop: Stop,
) -> Ended:
    """Evaluate the units that are not done, with servers that are started or reached for them."""
    fleet, waves = _fleet(prepared, directory, store, call)
    budget = budget_of(prepared, store)
    limits = Adaptive.of_run(prepared, fleet, store)
    core = Core(limits.first)
    session = Session(
        prepared, opened, store, core, budget, fleet, limits, waves, run_dir=directory.path
    )
    fleet.tell(session)
    # Not only when the first request of a judge needs one.
    warn_of_missing_keys(prepared.models[name] for name in prepared.identities)
    raise_file_limit()
    interrupts = Interrupts(session, stop)

    def tell() -> Progress:
        """Bring the display and status.json up to date."""
        progress = session.progress(fleet.states)
        shown.update(progress)
        last_outcome = store.last_outcome
        directory.write_status(msgspec.to_builtins(progress), last_outcome=last_outcome)
        return progress

    async def watch() -> None:
        """Tell until cancelled, and look for a stop that another thread requested."""
        while True:
            tell()
            keep_spent(store, budget)
            interrupts.look()
            await asyncio.sleep(_WATCH_S)

    beside: list[Errand] = [
        watch,
        partial(obey, directory, session, interrupts),
        partial(fleet.mend, session.scheduler.fail),
        session.adaptive.run,
        session.loads.run,
        session.texts.run,
    ]
    if _is_read(prepared, Ended()):
        items = partial(keep_items, lambda: session.n_sent, prepared.dataset, directory, _module)
        beside.append(items)
    _log.info("sending begins", extra={"units_left": opened.n_left})
    with interrupts.handled():
        try:
            await _to_end(session, interrupts, beside)
        finally:
            await fleet.stop()
            keep_spent(store, budget, is_ending=True)
            remember_not_needed(opened.blocks, opened.plan_id, store)
            store.flush()
    progress = tell()
    _log.info(
        "sending ended",
        extra={
            "requests": progress.requests_sent,
            "units_done": progress.units_done,
            "units_failed": progress.units_failed,
            "units_not_needed": progress.units_not_needed,
            "units_left": progress.units_left,
            "stopping": progress.stopping,
        },
    )
    return Ended(progress, session.stopping, interrupts.count > 0)


def _fleet(
    prepared: Prepared, directory: RunDirectory, store: Store, call: Call
) -> tuple[Fleet, Waves | None]:
    """Return the servers of a run, none of which is started or reached yet, and their waves."""
    on, keep, accept_change = call.on, call.keep_servers, call.accept_server_change
    carrier_of = carriers(prepared, on, keep_servers=keep)
    placed = places_on(prepared, on)
    is_shared = are_shared(prepared)
    shelf = ServerRegistry(mode="shared" if is_shared else "kept" if keep else "ended")
    if keep:
        shelf.prepare()
    identities = prepared.plan.identities
    needs, enabled = needs_of(prepared.plan.parts), prepared.recipe.settings.probe
    fleet = Fleet(
        [prepared.models[name] for name in prepared.identities],
        identities,
        directory.server_log,
        store,
        accept_change=accept_change,
        allow_code=prepared.allow_code,
        placed=placed.servers,
        carrier_of=carrier_of,
        probes=Probes(store, needs, accept_change=accept_change, enabled=enabled),
        shelf=shelf,
        copies=copies_of(prepared, store, accept_change=accept_change),
    )
    return fleet, placed.turns()


async def _to_end(session: Session, interrupts: Interrupts, beside: Sequence[Errand]) -> None:
    """Run the session, and beside it everything that watches, steers and supplies it."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one()) for one in beside]
            interrupts.task = group.create_task(session.run())
            await asyncio.wait([interrupts.task])
            for task in tasks:
                task.cancel()
            if interrupts.task.cancelled() and not interrupts.count:
                raise OrchestratorError(CANCELLED)
    except BaseExceptionGroup as errors:
        raise unwrapped(errors) from None


def _module() -> ModuleType:
    # It imports frames, tables and reports, which nothing needs before there is a result.
    return importlib.import_module("orchestrator.interface.loading")


def _is_read(prepared: Prepared, ended: Ended) -> bool:
    """Return False if another client goes on with the run, and nothing looks at its results.

    Then no frames are written: that would only delay the other client, and readers make their own.
    """
    settings = prepared.recipe.settings
    return bool(settings.on_end or settings.log_to) or not is_handed_on(ended.interrupted)
