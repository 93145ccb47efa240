"""One call of `orchestrator run`: store, driver, window and scheduler working together.

Everything here happens on the event loop's thread, in plain calls; only the scheduler's workers
wait. What has ended is handed to the store first and to the units second, so a unit's row can never
become durable before the outcomes it rests on.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import numpy as np

from orchestrator.ask import Request
from orchestrator.columns import pack_row
from orchestrator.driver import Driver, Finished
from orchestrator.errors import MethodError
from orchestrator.recipe.schema import DEFAULT_UNITS
from orchestrator.records import DONE, Failure, Generation, Outcome
from orchestrator.report.progress import Completeness, Progress
from orchestrator.runner.logs import RepeatedEvents
from orchestrator.runner.planning.budget import Budget
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.runner.servers.health import Loads
from orchestrator.runner.servers.placement import Waves
from orchestrator.runner.servers.replicas import Listener
from orchestrator.runner.session.adaptive import Adaptive
from orchestrator.runner.session.opening import Opened
from orchestrator.runner.session.progress import Ints, LiveRankings, Stages, models_progress
from orchestrator.runner.session.token_texts import TokenTexts
from orchestrator.scheduler.core import Core
from orchestrator.scheduler.loop import Scheduler
from orchestrator.scheduler.ready import Admission
from orchestrator.scheduler.window import Window
from orchestrator.store import Store

# A fault in a method is likely to fail every unit; a few are enough to see why.
_MAX_FAULTS = 3
# Bytes that may wait for the disk before no more units are opened.
_MAX_PENDING_BYTES = 64 << 20
# How soon to look again whether the disk has caught up, seconds.
_DISK_S = 0.05
# Units opened in one turn of the event loop. Where the store answers all they ask, nothing else
# gives way to replies, signals and displays.
_OPENED_AT_ONCE = 32

_MEGABYTE: Final = 1e6
_NO_SERVER = "the remaining units wait for a model that no server serves"

_log = logging.getLogger(__name__)

# Answers kept in memory, and the longest that is: a few megabytes at most.
_RECENT = 512
_RECENT_CHARACTERS = 8_000


class Ended(msgspec.Struct, frozen=True):
    """The end of a call.

    Attributes:
        progress: At the end; None where nothing was left to do.
        stopping: Why it stopped early; empty if it did not.
        interrupted: Whether a signal stopped it.
    """

    progress: Progress | None = None
    stopping: str = ""
    interrupted: bool = False


class HandedOn:
    """A call whose results another one shows: without them, and without what computes them."""

    warnings: ClassVar[tuple[str, ...]] = ()
    gate: ClassVar[None] = None
    gate_fault: ClassVar[None] = None

    def __init__(self, path: Path, ended: Ended, completeness: Completeness) -> None:
        self.path, self.ended, self.completeness = path, ended, completeness
        self.n_left = completeness.left


class Session(Listener):
    """Runs the units that are not done yet.

    Without `waves`, all servers run at the same time.

    Attributes:
        models: Of the run.
        n_sent: Requests of this call.
    """

    def __init__(  # noqa: PLR0913 (the parts of a run)
        self,
        prepared: Prepared,
        opened: Opened,
        store: Store,
        core: Core,
        budget: Budget,
        fleet: Fleet,
        adaptive: Adaptive,
        waves: Waves | None = None,
        *,
        run_dir: Path,
    ) -> None:
        plan, self._opened = prepared.plan, opened
        self._plan, self._store, self._core, self._budget = plan, store, core, budget
        self._fleet, self._all_waves, self._run_dir = fleet, waves, str(run_dir)
        self._recent: dict[bytes, Generation] = {}
        copies = fleet.copies
        self._n_copied = {} if copies is None else copies.n_copied
        self._driver = Driver(
            plan,
            # Past the answers that have just come: all pairs of an item ask for them.
            lambda key: self._recent.get(key) or self._failed_now.get(key) or store.get(key),
            prepared.systems,
            reuse=None if copies is None else copies.find,
            epoch_of=store.epoch,
            # The handler of signals never raises in a run.
            is_interruptible=False,
        )
        self._n_stored = opened.done.count(1) - opened.n_not_needed
        self._stages = Stages(plan, opened.done, self._not_needed)
        blocks, left = opened.blocks, (at for at, done in enumerate(opened.done) if not done)
        window = prepared.recipe.settings.window
        self._window = Window(
            plan,
            left if blocks is None else blocks.positions(),
            window.units or DEFAULT_UNITS,
            window.megabytes * _MEGABYTE,
            bytearray(opened.done) if blocks is None else blocks.ended,
            core.limit if window.units is None else None,
        )
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        per_minute = {
            spec.name: spec.limits.requests_per_minute
            for spec in map(prepared.models.__getitem__, prepared.identities)
            if spec.limits.requests_per_minute is not None and spec.entry.batch is None
        }
        self.scheduler = Scheduler(
            core, fleet.connect, self, per_minute, lambda *left: self.texts.leave(*left)
        )
        self.texts = TokenTexts(store, fleet.server_ids, self.scheduler.backend)
        self._n_done = self._n_failed = self.n_sent = 0
        self._failures: dict[str, int] = {}
        self._tokens = {name: [0, 0] for name in plan.identities}
        self.loads = Loads(core.models, self.scheduler.backend)
        self.adaptive, self.models = adaptive, tuple(core.models)
        adaptive.steer(core, self.scheduler, self.loads, self._tokens)
        self._faults: list[str] = []
        self._often = RepeatedEvents()
        statistics = prepared.recipe.settings.statistics
        self._board = LiveRankings(
            plan,
            stops_early=opened.blocks is not None,
            thresholds=statistics.trust,
            confidence_level=statistics.confidence_level,
        )
        self._came: deque[tuple[Request, Outcome | Failure]] = deque()
        self._pump_is_due = self._turning = False
        # Failures of this call that are no outcomes: refusals, which every unit that asks the same
        # would meet, and where units are played again in another wave all others too: asking anew
        # what has failed would take them to and fro for ever.
        self._failed_now: dict[bytes, Failure] = {}
        self.stopping = ""
        if self._waves is not None:
            self._enter_wave(self._waves)

    async def run(self) -> None:
        """Evaluate until all is done, a bound is reached or `stop` is called.

        Raises:
            MethodError: If a method is at fault in several units.
            OrchestratorError: Whatever makes it impossible to go on.
        """
        left_s = self._budget.left_s
        ending = None if left_s is None else self._loop.call_later(left_s, self._end_in_time)
        try:
            await self.scheduler.run(self._pump)
            self._flush()
        finally:
            if ending is not None:
                ending.cancel()
            self._budget.run_for(self._loop.time() - self._started)
            # What was in flight when the bound stopped the run has ended since.
            self.stopping = self._budget.words() or self.stopping
            self._driver.close()
        if len(self._faults) >= _MAX_FAULTS:
            raise MethodError(
                f"{self._faults[-1]}\nA fault of a method made {len(self._faults)} units fail; "
                f"all answers so far are saved in {self._run_dir}"
            )
        if not self.stopping:
            await self._fleet.compare_at_end()

    def stop(self, why: str) -> None:
        """Send nothing more; what is in flight is still recorded."""
        if not self.stopping:
            self.stopping = why
        self.scheduler.stop()

    # -- told by the scheduler -------------------------------------------------------------------

    def may_send(self, request: Request) -> Admission:
        """Count a request, unless it might exceed a bound."""
        admission = self._budget.admit(request, self._loop.time() - self._started)
        if admission is Admission.SEND:
            self.n_sent += 1
        elif admission is Admission.STOP:
            if self.scheduler.n_deferred and self._budget.left_s != 0:
                # Who stops leaves batches where they are; within the budget they are waited for.
                return Admission.WAIT
            self.stop(self._budget.words())
        return admission

    def _end_in_time(self) -> None:
        """Stop a run that only waits for batches and sends nothing, which would tell the time."""
        self._budget.run_for(self._loop.time() - self._started)
        if self.scheduler.n_deferred:
            self.stop("budget.hours is used")

    # -- told by the servers ---------------------------------------------------------------------

    def counted(self, model: str, n_there: int) -> None:
        """Have the limit of a model follow how many of its servers are there."""
        self.adaptive.servers(model, n_there)

    def has_answered(self, model: str) -> bool:
        """Return whether a request to a model was answered in this call."""
        return self._core.models[model].n_done > 0

    def quiet_s(self, model: str) -> float:
        """Return for how long a model has ended none of the requests that it has."""
        return self._core.quiet_s(model, self._loop.time())

    def restarted(self, model: str) -> None:
        """Note that the server of a model was started."""
        self._core.restarted(model, self._loop.time())

    def asked_again(self) -> None:
        """Count a request that was sent to another server because one lost or failed it."""
        self.n_sent += 1
        self._budget.spent.requests += 1

    def left(self, request: Request) -> None:  # noqa: ARG002 (all are counted alike)
        """Count a request as not sent: the call that reads its reply counts it."""
        self.n_sent -= 1
        self._budget.spent.requests -= 1

    def attempted(self, request: Request) -> None:
        """End what was reserved for an attempt."""
        self._budget.release(request)

    def retried(self, request: Request, failure: Failure, wait_s: float) -> None:
        """Record an attempt that failed."""
        model = request.ask.model
        self._store.put_attempt(request.key, model, failure)
        self._budget.receive(request, failure)
        if failure.cause == "connection":
            self.doubted(model)
        self._often.retried(model, failure, wait_s)

    def doubted(self, model: str) -> None:
        """Have it found out whether the server of a model is still the one that it was."""
        self._fleet.doubt(model, self.scheduler.hold)

    def settled(self, request: Request, outcome: Outcome | Failure, latency_s: float) -> None:
        """Record an end and let the units go on that waited for it."""
        model = request.ask.model
        if isinstance(outcome, Failure) and not outcome.permanent:
            self._store.put_attempt(request.key, model, outcome)
            if outcome.cause == "connection":
                self.doubted(model)
            if self._waves is not None or not outcome.retriable:
                self._failed_now[request.key] = outcome
        else:
            self._store.put_outcome(
                request.key,
                request.ask.kind,
                model,
                outcome,
                server=self._fleet.server_ids.get(model, 0),
                prompt_hash=request.prompt_hash,
                attempts=request.attempts,
                latency_s=latency_s,
            )
            self.texts.note(model, outcome)
        prompt_tokens, completion_tokens = self._budget.receive(request, outcome)
        counts = self._tokens[model]
        counts[0] += prompt_tokens
        counts[1] += completion_tokens
        if isinstance(outcome, Generation) and len(outcome.text) <= _RECENT_CHARACTERS:
            if len(self._recent) >= _RECENT:
                del self._recent[next(iter(self._recent))]
            self._recent[request.key] = outcome
        # Units that go on together, once a turn of the event loop, cost less than one by one.
        self._came.append((request, outcome))
        self._pump_later(0.0)

    # -- the pump ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what units ask for, record units that ended, open others."""
        self._pump_is_due = False
        self._flush()
        self._open_units()
        if self._window.empty and self._driver.n_open == 0:
            self.scheduler.stop()
        elif self._waves is not None and not (self._turning or self.stopping):
            is_idle = not self._pump_is_due and self._is_idle()
            leaving = self._enter_wave(self._waves) if is_idle else ()
            if leaving is None:
                self.stop(_NO_SERVER)
            elif is_idle:
                # Units of the next wave open as soon as the servers that leave have ended.
                self._turning = True
                self.scheduler.change(leaving, lambda: self._fleet.rest(leaving), self._turned)

    def _is_idle(self) -> bool:
        """Return True if nothing is asked of the servers of this wave, and nothing left to ask."""
        core, absent = self._core, frozenset(self._driver.absent)
        return not any(
            core.busy(model) for model in core.models if model not in absent
        ) and absent.issuperset(self._driver.models_asked())

    def _enter_wave(self, waves: Waves) -> tuple[str, ...] | None:
        """Go on to the next wave with something to do; the models that leave, None for no wave."""
        core = self._core.models
        dead = [name for name, state in core.items() if state.dead is not None]
        # Requests to a server that has lost its node wait for another wave.
        leaving = waves.turn(
            lambda model: (
                self._window.waits_for(model) or (model in core and self._core.busy(model))
            ),
            dead,
        )
        self._driver.absent = self._window.absent = waves.absent
        if leaving is not None:
            _log.info("wave %d of %d: %s", waves.number, len(waves), ", ".join(waves.present))
        return leaving

    def lost(self, node: str) -> None:
        """Plan anew what was to run on a node of a cluster that is out of reach."""
        waves = self._all_waves
        if waves is not None and (loss := waves.lose(node)) is not None:
            self._fleet.move(loss)
            self._driver.absent = self._window.absent = waves.absent
            self.scheduler.soon(self._pump)

    @property
    def _waves(self) -> Waves | None:
        """The waves of the run; None while all servers run at the same time."""
        waves = self._all_waves
        return waves if waves is not None and len(waves) > 1 else None

    def _turned(self) -> None:
        if self._all_waves is not None:
            self._fleet.admit(self._all_waves.models)
        self._turning = False
        self._pump()

    def _open_units(self) -> None:
        driver = self._driver
        for _ in range(_OPENED_AT_ONCE):
            if self.stopping or self._turning:
                return
            if self._store.pending_bytes >= _MAX_PENDING_BYTES:
                self._pump_later(_DISK_S)
                return
            position = self._window.next_position(driver.n_open, driver.waiting, driver.n_bytes)
            if position is None:
                if self._window.scanning:
                    self._pump_later(0.0)
                return
            driver.open(position)
            self._flush()
        self._pump_later(0.0)

    def _pump_later(self, delay_s: float) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            self.scheduler.soon(self._pump, delay_s)

    def _flush(self) -> None:
        """Give units what has come; record those that ended, and queue what others ask for."""
        while self._came:
            self._driver.deliver(*self._came.popleft())
        outbox, finished = self._driver.outbox, self._driver.finished
        while finished:
            self._record(finished.popleft())
        while self._driver.set_aside:
            self._window.put_back(*self._driver.set_aside.popleft())
        while outbox:
            self.scheduler.submit(outbox.popleft())

    def _record(self, end: Finished) -> None:
        plan = self._plan
        self._window.end(end.position)
        part = plan.part(end.position)
        of_all = {"method": part.name, "server_epoch": end.server_epoch}
        rows = [pack_row(part.columns, of_all | row) for row in end.rows]
        self._store.put_unit(
            plan.unit_hash(end.position),
            self._opened.plan_id,
            end.position,
            end.status,
            end.frame,
            rows,
            cause="" if end.status == DONE else str(end.rows[0]["cause"]),
        )
        if self._opened.blocks is not None:
            self._opened.blocks.end(end.position, end.status, rows)
        self._n_done += 1
        # A method may say of single rows that they failed.
        cause = next((str(row["cause"]) for row in end.rows if row["status"] != "ok"), None)
        self._stages.ended(end.position, failed=cause is not None)
        self._board.ended(end.position, part, end.rows)
        if cause is not None:
            self._n_failed += 1
            self._failures[cause] = self._failures.get(cause, 0) + 1
        if end.fault is not None:
            self._faults.append(end.fault.said)
            told = {"position": end.position, "raised_at": end.fault.raised_at}
            _log.warning("%s; its unit failed", end.fault.noted, extra=told)
            if len(self._faults) >= _MAX_FAULTS:
                self.stop("error in a method")

    # -- looked at by displays ---------------------------------------------------------------------

    def progress(self, states: Mapping[str, str]) -> Progress:
        """The run at this moment; `states` gives each model's connection state."""
        units = self._stages.of_models(self._not_needed)
        models = models_progress(self._core, states, self._tokens, self.loads, units)
        return Progress(
            run_dir=self._run_dir,
            elapsed_s=self._loop.time() - self._started,
            units_total=len(self._plan),
            units_stored=self._n_stored,
            units_done=self._n_done,
            units_failed=self._n_failed,
            units_not_needed=self._opened.n_not_needed,
            units_open=self._driver.n_open,
            units_aside=self._window.n_aside,
            requests_sent=self.n_sent,
            # What a wave copies may not have been found yet.
            asks_found=max(0, self._driver.n_found - sum(self._n_copied.values())),
            asks_copied=dict(self._n_copied),
            asks_joined=self._driver.n_joined,
            models=models,
            stages=self._stages.progress(self._not_needed),
            failures=dict(self._failures),
            stopping=self.stopping,
            paused=self._core.paused,
            rankings=self._board.rankings(self._loop.time()),
            money=self._budget.money,
            bound=self._budget.spent.bound,
        )

    @property
    def _not_needed(self) -> Ints:
        """By unit of an item, how many are not asked because they would decide nothing."""
        if self._opened.blocks is None:
            return np.zeros(self._plan.n_per_item, dtype=np.int64)
        return self._opened.blocks.not_needed
