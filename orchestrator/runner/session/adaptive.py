"""Limits that follow what servers can take: looks at servers and tells the scheduler.

What is decided stands in `orchestrator.scheduler.limits`; here is when it is looked and what is
written down: each change in the log, in the progress and, with the limit to begin the next call
with, in the store.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from orchestrator.backend import ServerLoad
from orchestrator.recipe.schema import ModelSpec
from orchestrator.report.progress import LimitProgress
from orchestrator.runner.servers.load import Loads
from orchestrator.scheduler.core import Core, Limits
from orchestrator.scheduler.limits import CEILING, FLOOR, START, Change, Controller, Seen
from orchestrator.scheduler.loop import Scheduler
from orchestrator.store.clock import wall_ms

META: Final = "limits"
"""Under which the store keeps the limits."""

_KEPT: Final = 100
_BY_HAND: Final = "by hand"

_log = logging.getLogger(__name__)


class KeptChange(msgspec.Struct, frozen=True):
    """A change as the store keeps it; `when_ms` is the wall clock's, since 1970."""

    when_ms: int
    before: int
    after: int
    why: str


class KeptLimit(msgspec.Struct, frozen=True):
    """State of a model's limit in the store: the limit and its last changes, of all calls."""

    limit: int
    changes: tuple[KeptChange, ...] = ()


def decoded(text: str | None) -> dict[str, KeptLimit]:
    """Decode the limits in the store, by label of the server; return none if they are damaged."""
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, KeptLimit])
    except msgspec.MsgspecError:
        return {}


def first_limits(
    specs: Mapping[str, ModelSpec],
    n_servers: Mapping[str, int],
    labels: Mapping[str, str],
    kept: Mapping[str, KeptLimit],
) -> tuple[dict[str, Controller], dict[str, Limits]]:
    """Return controllers of the models whose limit is to be found, and the limits of all.

    Args:
        specs: By model.
        n_servers: Of each model.
        labels: What the store remembers the servers of each model by.
        kept: What an earlier call wrote down; a controller begins there.
    """
    controllers, limits = {}, {}
    for name, spec in specs.items():
        n = n_servers[name]
        limit = spec.max_in_flight * n
        if spec.is_adaptive:
            known = kept.get(labels[name])
            start = START * n if known is None else known.limit
            controllers[name] = Controller(start, FLOOR * n, CEILING * n)
            limit = controllers[name].limit
        own = spec.limits
        limits[name] = Limits(limit, own.dead_after_s, own.max_attempts, own.max_failures)
    return controllers, limits


class Adaptive:
    """Keeps the limits of models where their servers do best.

    Args:
        controllers: Of the models whose limit is to be found.
        labels: What the store remembers each model by.
        kept: What an earlier call wrote down.
        n_servers: Servers of each model for which its limit was made; 1 where left out.
        core: Counters of the models.
        scheduler: Has the connections, and is told new limits.
        loads: Asks the servers for their figures.
        tokens: Prompt and completion tokens of a model so far.
        keep: Writes text into the store.
    """

    def __init__(  # noqa: PLR0913 (its neighbours, by keyword)
        self,
        controllers: Mapping[str, Controller],
        *,
        labels: Mapping[str, str],
        kept: Mapping[str, KeptLimit],
        n_servers: Mapping[str, int],
        core: Core,
        scheduler: Scheduler,
        loads: Loads,
        tokens: Mapping[str, list[int]],
        keep: Callable[[str], None],
    ) -> None:
        self._controllers = dict(controllers)
        self._labels = dict(labels)
        self._kept = dict(kept)
        self._core = core
        self._scheduler = scheduler
        self._loads = loads
        self._tokens = tokens
        self._keep = keep
        self._first = {name: state.limits.max_in_flight for name, state in core.models.items()}
        self._changes: dict[str, list[Change]] = {name: [] for name in core.models}
        self._n_changes = dict.fromkeys(core.models, 0)
        self._n_servers = {name: n_servers.get(name, 1) for name in core.models}
        self._n_there = dict(self._n_servers)
        self._by_hand: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()

    async def run(self) -> None:
        """Follow all models until cancelled."""
        async with asyncio.TaskGroup() as group:
            for model, controller in self._controllers.items():
                group.create_task(self._follow(model, controller))

    def by_hand(self, model: str, n: int) -> int:
        """Set a limit and leave it there; how many it was before."""
        self._controllers.pop(model, None)
        self._by_hand.add(model)
        before = self._scheduler.set_limit(model, n)
        if n != before:
            self._record(model, Change(self._now(), before, n, _BY_HAND))
        return before

    def servers(self, model: str, n: int) -> None:
        """Follow servers of a model that come or go: each has its share of the limit.

        Args:
            model: Which has several servers.
            n: That are there from now on, at least 1.
        """
        before = self._n_there[model]
        self._n_there[model] = n
        if n == before or model in self._by_hand:
            return
        controller = self._controllers.get(model)
        said = f"{n} of {self._n_servers[model]} servers"
        if controller is not None:
            change = controller.resize(self._now(), n, before, said)
        else:
            limit = self._core.models[model].limits.max_in_flight
            change = Change(self._now(), limit, max(round(limit * n / before), 1), said)
        if change is not None:
            self._scheduler.set_limit(model, change.after)
            self._record(model, change)

    def progress(self, model: str) -> LimitProgress:
        """Return the changes of a model's limit."""
        controller = self._controllers.get(model)
        return LimitProgress(
            is_adaptive=controller is not None,
            signal=controller.signal if controller is not None else "",
            first=self._first[model],
            n_changes=self._n_changes[model],
            last=msgspec.to_builtins(self._changes[model][-5:]),
        )

    async def _follow(self, model: str, controller: Controller) -> None:
        while True:
            await asyncio.sleep(controller.look_after_s(self._now()))
            if self._scheduler.backend(model) is None or self._core.is_down(model):
                continue
            load = await self._loads.look(model) if controller.wants_figures else None
            if self._controllers.get(model) is not controller:
                return
            change = controller.look(self._now(), self._seen(model, load))
            if change is not None:
                self._scheduler.set_limit(model, change.after)
                self._record(model, change)

    def _seen(self, model: str, load: ServerLoad | None) -> Seen:
        state = self._core.models[model]
        n_prompts = state.in_flight + (load.n_extra if load is not None else 0)

        def requests(prompts: int | None) -> int | None:
            """Our share of what the server counts, in requests: it counts their prompts."""
            return prompts and round(prompts * state.in_flight / max(n_prompts, 1))

        return Seen(
            in_flight=state.in_flight,
            queued=self._core.n_ready(model),
            n_ended=state.n_done,
            # A request that is answered in no token has cost something too.
            work=float(state.n_done + sum(self._tokens[model])),
            n_overloads=state.n_overloads,
            waiting=requests(load.waiting) if load is not None else None,
            running=requests(load.running) if load is not None else None,
        )

    def _record(self, model: str, change: Change) -> None:
        self._n_changes[model] += 1
        self._changes[model] = [*self._changes[model][1 - _KEPT :], change]
        _log.info(
            "%s: %d concurrent requests (was %d): %s",
            model,
            change.after,
            change.before,
            change.why,
            extra={"model": model, "before": change.before, "after": change.after},
        )
        label = self._labels[model]
        before = self._kept.get(label, KeptLimit(change.before))
        made = KeptChange(wall_ms(), change.before, change.after, change.why)
        # What was said by hand holds for this call only.
        found = before.limit if change.why == _BY_HAND else change.after
        self._kept[label] = KeptLimit(found, (*before.changes[1 - _KEPT :], made))
        self._keep(msgspec.json.encode(self._kept).decode())

    def _now(self) -> float:
        return self._loop.time() - self._started
