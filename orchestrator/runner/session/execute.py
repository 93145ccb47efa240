"""Executing a prepared run in its directory: what is left to do, and then the results."""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from orchestrator.errors import OrchestratorError
from orchestrator.recipe.schema import DEFAULT_UNITS
from orchestrator.report.progress import Progress
from orchestrator.runner.models.identity import server_label
from orchestrator.runner.planning.budget import Budget
from orchestrator.runner.planning.prepare import Prepared, describe_change
from orchestrator.runner.planning.reuse import copies_of
from orchestrator.runner.planning.revisions import REVISION, revision_of, revision_text
from orchestrator.runner.planning.spending import budget_of, keep_spent
from orchestrator.runner.planning.stopping import RULE, open_blocks, remember_not_needed, rule_text
from orchestrator.runner.probing.records import Probes, needs_of
from orchestrator.runner.results.items import keep_items
from orchestrator.runner.results.stored import plan_values
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.runner.servers.keeping import Keep
from orchestrator.runner.servers.launched import Places
from orchestrator.runner.servers.machine import raise_file_limit
from orchestrator.runner.servers.placement import find_places
from orchestrator.runner.servers.registry import ServerRegistry
from orchestrator.runner.servers.slurm import On, carriers, places_on
from orchestrator.runner.servers.waves import Waves
from orchestrator.runner.session import adaptive
from orchestrator.runner.session.event_loop import CANCELLED, Stop
from orchestrator.runner.session.order import unfinished_before
from orchestrator.runner.session.session import Session, Watch
from orchestrator.runner.session.steering import Interrupts, obey
from orchestrator.runner.session.wiring import Wiring
from orchestrator.scheduler.blocks import Blocks
from orchestrator.scheduler.core import Core
from orchestrator.scheduler.retry import RetryPolicy
from orchestrator.statistics.trust import Thresholds
from orchestrator.store import RunDirectory, Store

_MEGABYTE = 1e6
# How often displays and status.json are brought up to date, seconds.
_WATCH_S = 1.0

_log = logging.getLogger(__name__)


class Opened(msgspec.Struct, frozen=True):
    """A plan in its store.

    Attributes:
        plan_id: Its number there.
        done: One byte a position.
        changes: What differs from the call before, in words.
        adopted: Units of earlier plans that this plan keeps.
        blocks: Which units are needed, where the recipe has a stopping rule. Those that are not
            are marked in `done`.
        first: Items whose units are begun first.
    """

    plan_id: int
    done: bytearray
    changes: list[str]
    adopted: int
    blocks: Blocks | None = None
    first: tuple[int, ...] = ()

    @property
    def n_not_needed(self) -> int:
        """Units that the stopping rule has found to be not needed."""
        return 0 if self.blocks is None else self.blocks.n_not_needed


class Ended(msgspec.Struct, frozen=True):
    """The end of a call.

    Attributes:
        progress: At the end; None where nothing was left to do.
        stopping: Why it stopped early; empty if it did not.
        interrupted: Whether a signal stopped it.
    """

    progress: Progress | None
    stopping: str
    interrupted: bool

    @property
    def n_left(self) -> int:
        """Units not done."""
        return 0 if self.progress is None else self.progress.units_left


def open_plan(prepared: Prepared, run_dir: RunDirectory, store: Store) -> Opened:
    """Find what of the plan is done, and write a revision if the recipe changed."""
    plan = prepared.plan
    before = revision_of(run_dir, prepared.recipe.name)
    changes = describe_change(before, prepared.identities, prepared.recipe)
    record = {"identities": prepared.identities, "recipe": prepared.recipe.resolved()}
    text = revision_text(record)
    # Reports and gates read from the last revision what they compute, and at which level.
    read = ("analyses", "statistics", "gates")
    known, wanted = (before or {}).get("recipe", {}), record["recipe"]
    is_other = changes or any(known.get(key) != wanted.get(key) for key in read)
    if before is None or before.get("identities") != record["identities"] or is_other:
        run_dir.write_revision(text)
    plan_hash = plan.hash()
    is_current, plan_before = store.is_current_plan(plan_hash), store.current_plan
    # Readers take the recipe from there, with the plan; `orchestrator repair` restores the file.
    values = {**plan_values(plan), RULE: rule_text(prepared.rule), REVISION: text}
    plan_id = store.open_plan(plan_hash, len(plan), values)
    adopted = 0
    if not is_current:
        hashes = ((position, plan.unit_hash(position)) for position in range(len(plan)))
        adopted = store.adopt(plan_id, hashes)
    done = store.done_bitmap(plan_id, len(plan))
    rule = prepared.rule
    blocks = None if rule is None else open_blocks(rule, store, plan_id, done)
    remember_not_needed(blocks, plan_id, store)
    first = () if is_current else unfinished_before(store, plan_before, done, plan.n_per_item)
    return Opened(plan_id, done, changes, adopted, blocks, first)


async def execute(  # noqa: PLR0913 (the parts of a run, and its options by keyword)
    prepared: Prepared,
    opened: Opened,
    run_dir: RunDirectory,
    store: Store,
    *,
    accept_change: bool = False,
    keep_servers: bool = False,
    on: On = "local",
    watch: Watch | None = None,
    meanwhile: Callable[[], object] | None = None,
    stop: Stop | None = None,
) -> Ended:
    """Evaluate the units that are not done.

    Args:
        prepared: The run.
        opened: Its plan.
        run_dir: Held for writing.
        store: Open for writing.
        accept_change: Go on although another server answered before.
        keep_servers: Leave the servers that were launched for a later run.
        on: Machines that launched servers run on.
        watch: Called with the progress about once a second.
        meanwhile: Called in a thread once the first request is sent: imports that only the end
            needs. Then no request waits for them, and the end waits less.
        stop: Requested by another thread, where signals don't come here.

    Raises:
        OrchestratorError: Whatever made it impossible to go on.
    """
    places, waves, keep = _servers(prepared, on, keep_servers=keep_servers)
    fleet = _fleet(prepared, run_dir, store, places, keep, accept_change=accept_change)
    budget = budget_of(prepared, store)
    wiring = _wiring(prepared, opened, run_dir, store, fleet, budget)
    session = Session(
        msgspec.structs.replace(
            wiring,
            waves=waves,
            rest=fleet.rest,
            move=fleet.move,
            admit=fleet.admit,
        )
    )
    _listen(fleet, session, wiring.core)
    fleet.warn_of_missing_keys()
    raise_file_limit()
    told = _Monitor(session, fleet, run_dir, store, budget, watch)
    interrupts = Interrupts(session, stop)
    _log.info("sending begins", extra={"units_left": opened.done.count(0)})
    with interrupts.handled():
        try:
            await _to_end(told, interrupts, prepared, meanwhile)
        finally:
            await fleet.stop()
            keep_spent(store, budget, is_ending=True)
            remember_not_needed(opened.blocks, opened.plan_id, store)
            store.flush()
    progress = told.tell()
    left = progress.units_left
    _log.info(
        "sending ended",
        extra={
            "requests": progress.requests_sent,
            "units_done": progress.units_done,
            "units_failed": progress.units_failed,
            "units_not_needed": progress.units_not_needed,
            "units_left": left,
            "stopping": progress.stopping,
        },
    )
    return Ended(progress, session.stopping, interrupts.count > 0)


def _listen(fleet: Fleet, session: Session, core: Core) -> None:
    """Have the fleet's news told to those who act on them."""
    now = asyncio.get_running_loop().time
    fleet.counted = session.adaptive.servers
    fleet.asked_again = session.asked_again
    fleet.has_answered = core.has_answered
    fleet.quiet_s = lambda model: core.quiet_s(model, now())
    fleet.lost = session.lose
    fleet.doubted = session.doubt
    fleet.restarted = lambda model: core.restarted(model, now())


def _servers(
    prepared: Prepared, on: On, *, keep_servers: bool
) -> tuple[Places, Waves | None, Keep]:
    """Return the places of a run's servers, their waves, and how they are found and kept."""
    carrier_of = carriers(prepared, on, keep_servers=keep_servers)
    if on == "local":
        placed = find_places(prepared)
    else:
        placed = places_on(prepared, on)
        placed.log()
    shelf = ServerRegistry()
    if keep_servers:
        shelf.prepare()
    keep = Keep(shelf, prepared.plan.identities, keep_servers)
    places = msgspec.structs.replace(placed.places, carrier_of=carrier_of)
    return places, placed.turns(), keep


def _fleet(
    prepared: Prepared,
    run_dir: RunDirectory,
    store: Store,
    places: Places,
    keep: Keep,
    *,
    accept_change: bool,
) -> Fleet:
    """Return the servers of a run, none of which is started or connected to yet."""
    needs, enabled = needs_of(prepared.plan.parts), prepared.recipe.settings.probe
    probes = Probes(store, needs, accept_change=accept_change, enabled=enabled)
    return Fleet(
        [prepared.models[name] for name in prepared.identities],
        prepared.plan.identities,
        run_dir.server_log,
        store,
        accept_change=accept_change,
        allow_code=prepared.allow_code,
        places=places,
        probes=probes,
        keep=keep,
        copies=copies_of(prepared, store, accept_change=accept_change),
    )


async def _to_end(
    told: "_Monitor",
    interrupts: Interrupts,
    prepared: Prepared,
    meanwhile: Callable[[], object] | None,
) -> None:
    session = told.session
    try:
        async with asyncio.TaskGroup() as group:
            watchers = [
                group.create_task(_watch(told, interrupts)),
                group.create_task(obey(told.run_dir, told.session, interrupts)),
                group.create_task(told.fleet.mend(told.session.fail)),
                group.create_task(told.session.adaptive.run()),
                group.create_task(told.session.loads.run()),
                group.create_task(told.session.spelling.run()),
                group.create_task(
                    keep_items(lambda: session.n_sent, prepared.dataset, told.run_dir, meanwhile)
                ),
            ]
            interrupts.task = group.create_task(_run(session, told.fleet))
            await interrupts.wait()
            for watcher in watchers:
                watcher.cancel()
            if interrupts.task.cancelled() and not interrupts.count:
                raise OrchestratorError(CANCELLED)
    except BaseExceptionGroup as errors:
        raise unwrapped(errors) from None


async def _run(session: Session, fleet: Fleet) -> None:
    await session.run()
    if not session.stopping:
        await fleet.compare_at_end()


def _wiring(
    prepared: Prepared,
    opened: Opened,
    run_dir: RunDirectory,
    store: Store,
    fleet: Fleet,
    budget: Budget,
) -> Wiring:
    recipe = prepared.recipe
    specs = {name: prepared.models[name] for name in prepared.identities}
    labels = {name: server_label(name, prepared.plan.identities[name]) for name in specs}
    kept = adaptive.decoded(store.get_meta(adaptive.META))
    n_servers = {name: fleet.n_servers(name) for name in specs}
    controllers, limits = adaptive.first_limits(specs, n_servers, labels, kept)
    core = Core(limits, RetryPolicy())
    return Wiring(
        plan=prepared.plan,
        plan_id=opened.plan_id,
        done=opened.done,
        store=store,
        core=core,
        budget=budget,
        connect=fleet.connect,
        doubt=fleet.doubt,
        server_of=fleet.server_of,
        systems={name: spec.system for name, spec in specs.items() if spec.system},
        per_minute={
            name: spec.limits.requests_per_minute
            for name, spec in specs.items()
            if spec.limits.requests_per_minute is not None
        },
        max_open=recipe.settings.window.units or DEFAULT_UNITS,
        max_bytes=recipe.settings.window.megabytes * _MEGABYTE,
        limit=core.limit if recipe.settings.window.units is None else None,
        run_dir=str(run_dir.path),
        n_servers=n_servers,
        controllers=controllers,
        labels=labels,
        kept_limits=kept,
        blocks=opened.blocks,
        first=opened.first,
        copies=fleet.copies,
        thresholds=Thresholds(**recipe.settings.statistics.trust.model_dump()),
        confidence_level=recipe.settings.statistics.confidence_level,
    )


class _Monitor(msgspec.Struct, frozen=True):
    """Sources of the progress that is read once a second, and its listeners."""

    session: Session
    fleet: Fleet
    run_dir: RunDirectory
    store: Store
    budget: Budget
    watch: Watch | None

    def tell(self) -> Progress:
        """Bring displays and status.json up to date."""
        progress = self.session.progress(self.fleet.states)
        if self.watch is not None:
            self.watch(progress)
        self.run_dir.write_status(
            msgspec.to_builtins(progress), last_outcome=self.store.last_outcome
        )
        return progress


async def _watch(told: _Monitor, interrupts: Interrupts) -> None:
    """Keep displays, status.json and the record of what is spent up to date."""
    while True:
        told.tell()
        keep_spent(told.store, told.budget)
        interrupts.look()
        await asyncio.sleep(_WATCH_S)


def unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the run, out of its groups of tasks: ours before others."""
    leaves: list[BaseException] = []

    def walk(error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                walk(inner)
        else:
            leaves.append(error)

    walk(group)
    return next((leaf for leaf in leaves if isinstance(leaf, OrchestratorError)), leaves[0])
