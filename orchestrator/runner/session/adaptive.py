"""Limits that follow what servers can take: looks at servers and tells the scheduler.

What is decided stands in `orchestrator.scheduler.limits`; here is when it is looked and what is
written down: each change in the log, in the progress and, with the limit to begin the next call
with, in the store.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Self

import msgspec

from orchestrator.backend import ServerLoad
from orchestrator.runner.models.identity import server_label
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.runner.servers.health import Loads
from orchestrator.scheduler.core import Core, Limits
from orchestrator.scheduler.limits import CEILING, FLOOR, START, Change, Controller, Seen
from orchestrator.scheduler.loop import Scheduler
from orchestrator.store import Store

META: Final = "limits"
"""Under which the store keeps the limits."""

_BY_HAND: Final = "by hand"

_log = logging.getLogger(__name__)


def decoded(text: str | None) -> dict[str, int]:
    """Decode the limits in the store, by label of the server; return none if they are damaged."""
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, int])
    except msgspec.MsgspecError:
        return {}


class Adaptive:
    """Keeps the limits of models where their servers do best.

    Args:
        store: Where they are kept for the next call.
        first: Limits of all models to begin with.
        controllers: Of the models whose limit is to be found while the run goes on.
        labels: What the store remembers the servers of each model by.
        kept: Limits that earlier calls wrote down, by label.
        n_servers: Servers of each model for which its limit was made; 1 where left out.
    """

    def __init__(
        self,
        store: Store,
        *,
        first: Mapping[str, Limits] = {},
        controllers: Mapping[str, Controller] = {},
        labels: Mapping[str, str] = {},
        kept: Mapping[str, int] = {},
        n_servers: Mapping[str, int] = {},
    ) -> None:
        self._store = store
        self.first = dict(first)
        self._controllers = dict(controllers)
        self._labels = labels
        self._kept = dict(kept)
        self._n_servers = n_servers
        self._by_hand: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()

    @classmethod
    def of_run(cls, prepared: Prepared, fleet: Fleet, store: Store) -> Self:
        """Return the limits of a run; where one is to be found, from what was found before."""
        identities = prepared.plan.identities
        labels = {name: server_label(name, identities[name]) for name in prepared.identities}
        n_servers = {name: fleet.n_servers(name) for name in labels}
        kept = decoded(store.meta.get(META))
        controllers, limits = {}, {}
        for name, n in n_servers.items():
            spec = prepared.models[name]
            limit = spec.max_in_flight * n
            if spec.is_adaptive:
                known = kept.get(labels[name])
                start = START * n if known is None else known
                controllers[name] = Controller(start, FLOOR * n, CEILING * n)
                limit = controllers[name].limit
            own = spec.limits
            limits[name] = Limits(limit, own.dead_after_s, own.max_attempts)
        return cls(
            store, first=limits, controllers=controllers, labels=labels, kept=kept,
            n_servers=n_servers,
        )  # fmt: skip

    def steer(
        self, core: Core, scheduler: Scheduler, loads: Loads, tokens: Mapping[str, list[int]]
    ) -> None:
        """Steer what sends the requests of the run from now on."""
        self._core, self._scheduler, self._loads, self._tokens = core, scheduler, loads, tokens
        self._n_there = {name: self._n_servers.get(name, 1) for name in core.models}

    async def run(self) -> None:
        """Follow all models until cancelled."""
        async with asyncio.TaskGroup() as group:
            for model, controller in self._controllers.items():
                group.create_task(self._follow(model, controller))

    def set_limit(self, model: str, n: int) -> int:
        """Set a limit and leave it there; how many it was before."""
        self._controllers.pop(model, None)
        self._by_hand.add(model)
        before = self._scheduler.set_limit(model, n)
        if n != before:
            self._record(model, Change(self._now(), before, n, _BY_HAND))
        return before

    def servers(self, model: str, n: int) -> None:
        """Follow servers of a model that come or go: each has its share of the limit."""
        before = self._n_there[model]
        self._n_there[model] = n
        if n == before or model in self._by_hand:
            return
        controller = self._controllers.get(model)
        said = f"{n} of {self._n_servers.get(model, 1)} servers"
        if controller is not None:
            change = controller.resize(self._now(), n, before, said)
        else:
            limit = self._core.models[model].limits.max_in_flight
            change = Change(self._now(), limit, max(round(limit * n / before), 1), said)
        if change is not None:
            self._scheduler.set_limit(model, change.after)
            self._record(model, change)

    async def _follow(self, model: str, controller: Controller) -> None:
        while True:
            await asyncio.sleep(controller.wait_s(self._now()))
            is_down = self._core.models[model].down_since is not None
            if is_down or self._scheduler.backend(model) is None:
                continue
            # Who follows the throughput has no use for the server's own figures.
            is_asked = controller.signal != "throughput"
            load = await self._loads.look(model) if is_asked else None
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
        _log.info(
            "%s: %d concurrent requests (was %d): %s",
            model,
            change.after,
            change.before,
            change.why,
            extra={"model": model, "before": change.before, "after": change.after},
        )
        label = self._labels[model]
        if change.why == _BY_HAND:
            # That holds for this call only.
            self._kept.setdefault(label, change.before)
        else:
            self._kept[label] = change.after
        self._store.set_meta(META, msgspec.json.encode(self._kept).decode())

    def _now(self) -> float:
        return self._loop.time() - self._started
