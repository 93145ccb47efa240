"""Servers of a run: launched or found when the first request needs them, ended with the run."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from orchestrator.ask import digest
from orchestrator.backend import Backend, Endpoint, Provenance, answered, verified
from orchestrator.errors import OrchestratorError, ServerChangedError, UsageError
from orchestrator.recipe.schema import ModelSpec
from orchestrator.records import Failure
from orchestrator.runner.event_loop import Errand, at_once
from orchestrator.runner.logs import RepeatedEvents
from orchestrator.runner.models.asking import Target
from orchestrator.runner.models.identity import addresses, provenance_words
from orchestrator.runner.models.records import Probes
from orchestrator.runner.planning.reuse import Copies
from orchestrator.runner.servers.connections import (
    Doubts,
    Held,
    create_backend,
    endpoint_of,
    is_reached,
)
from orchestrator.runner.servers.health import look_after
from orchestrator.runner.servers.launched import CarrierOf, Launched, PlacedServer, launched_servers
from orchestrator.runner.servers.placement import Loss
from orchestrator.runner.servers.registry import ServerRegistry
from orchestrator.runner.servers.replicas import Listener, Replicas
from orchestrator.store import Store

_log = logging.getLogger(__name__)

# More than any limit that is found while a run goes on.
_CONNECTIONS = 4096
# A server that was compared so short a time before the end of a run is not compared once more.
_AT_END_S = 30.0
# Of a server whose connection broke, in seconds: between two looks until it answers, and how long
# it is looked for.
_LOOK_S = 0.25
_LOOKS_S = 2.0

COMPARED_EVERY_S = 300.0

Hold = Callable[[str, bool], None]


def _each(servers: Iterable[tuple[Launched, ...]]) -> Collection[Launched]:
    """Every server once, however many models it serves."""
    return {id(server): server for copies in servers for server in copies}.values()


class Fleet:
    """Gives a back-end for each model.

    A server is held to what answered for the same identity, unless `accept_change`. Launched
    servers are those of `launched_servers`, and without a `shelf` they are not found again; without
    probes the word of servers is taken. Where `waits_for_all`, every server of a model is connected
    before it is asked.

    Attributes:
        states: Of the connection to each model, in a word.
        compared_every_s: Seconds between comparisons of servers whose connections hold.
        listener: Told of what happens to servers, from `tell` on.
        launched: Every server that is launched, once.
        server_ids: Number in the store of the server that each model is connected to.
    """

    def __init__(  # noqa: PLR0913 (what a fleet is made of, most of them by keyword)
        self,
        models: Sequence[ModelSpec],
        identities: Mapping[str, bytes],
        log_of: Callable[[str], Path],
        store: Store,
        *,
        accept_change: bool = False,
        allow_code: bool = False,
        placed: Sequence[PlacedServer] = (),
        carrier_of: CarrierOf | None = None,
        probes: Probes | None = None,
        shelf: ServerRegistry | None = None,
        copies: Copies | None = None,
        waits_for_all: bool = False,
    ) -> None:
        self._specs = {spec.name: spec for spec in models}
        self._often = RepeatedEvents()
        self._store = store
        self._accept_change = accept_change
        self._allow_code = allow_code
        self._probes = probes
        self.copies = copies
        self._asks = probes is not None and probes.enabled
        # Models whose servers run already: not looked at, not met yet, and found by the first look.
        self._to_look = {spec.name for spec in models if self._asks and is_reached(spec)}
        self._to_meet = set(self._to_look)
        self._met = asyncio.Event()
        self._found: dict[str, Backend] = {}
        self._looking = asyncio.Lock()
        if probes is not None:
            probes.others = self._others
        self._servers = launched_servers(
            models, log_of, placed=placed, carrier_of=carrier_of, allow_code=allow_code
        )
        self._errands: asyncio.Queue[Errand] = asyncio.Queue()
        self._doubts = Doubts(self._errands.put_nowait)
        self._replicas: dict[str, Replicas] = {}
        self._waits_for_all = waits_for_all
        self.listener = Listener()
        self.launched = _each(self._servers.values())
        for server in self.launched:
            if shelf is not None:
                server.keeping = server.known_by(shelf, identities, 1 + self._number(server))
        self.states: dict[str, str] = dict.fromkeys(self._specs, "idle")
        self._held = Held(store, identities, copies, accept_change=accept_change, asks=self._asks)
        self.server_ids: Mapping[str, int] = self._held.server_ids
        self._compared_at: dict[tuple[str, int], float] = {}
        self.compared_every_s = COMPARED_EVERY_S

    def tell(self, listener: Listener) -> None:
        """Tell a run what happens to its servers from now on."""
        self.listener = listener
        for server in self.launched:
            server.listener = listener

    def n_servers(self, model: str) -> int:
        """Servers that a model has, replicas included."""
        spec = self._specs[model]
        return len(self._servers[model]) if spec.server is not None else len(spec.base_urls) or 1

    async def connect(self, model: str) -> Backend | Failure:
        """The back-end of a model; its servers are launched or asked what they are.

        Raises:
            LaunchError: If a server that we launch does not become ready the first time.
            ServerChangedError: If another server answered this run before.
            UsageError: If the server can't do what a method asks of it.
        """
        async with self._looking:
            # Those that run already before the first request to any of them: a judge that can't do
            # what its method asks is met only when the first answers are there, and these have been
            # paid for by then. A server that does not answer is looked at when asked. After a look
            # that failed others come here before the run has stopped.
            left = sorted(self._to_look - self._found.keys())
            await at_once(*(self._connect(name, is_first=True) for name in left))
            self._to_look = set()
        known = self._found.pop(model, None)
        return await self._connect(model) if known is None else known

    async def _others(self, model: str) -> None:
        """Wait until there was a first contact with the servers of all other models, too."""
        self._meet(model)
        await self._met.wait()

    def _meet(self, model: str) -> None:
        self._to_meet.discard(model)
        if not self._to_meet:
            self._met.set()

    async def _connect(self, model: str, *, is_first: bool = False) -> Backend | Failure:
        self.states[model] = "starting"
        spec = self._specs[model]
        n_servers = self.n_servers(model)
        try:
            found = await (self._one(spec, 0) if n_servers == 1 else self._several(spec, n_servers))
        finally:
            self._meet(model)
        if isinstance(found, Failure):
            if n := self._often.count(model):
                what, told = "reached" if found.retriable else "used", {"model": model, "n": n}
                _log.warning("%s cannot be %s: %s", model, what, found.message, extra=told)
            if is_first and not found.retriable:
                # Nothing in this call will change it, and nothing was paid for yet.
                raise UsageError(f"model {model!r}: {found.message}")
        else:
            self.states[model] = "ready"
            if is_first:
                self._found[model] = found
        return found

    async def _several(self, spec: ModelSpec, n_servers: int) -> Backend | Failure:
        """Return all servers as one, as soon as some are there; the others are welcomed later."""
        found = Replicas(
            spec.name,
            [None] * n_servers,
            self._errands.put_nowait,
            lambda number: self._one(spec, number),
            self.listener,
            spec.limits.silent_after_s,
        )
        self._replicas[spec.name] = found
        failure = await found.begin(None if self._waits_for_all else spec.entry.min_servers)
        return found if failure is None else failure

    async def _one(self, spec: ModelSpec, number: int) -> Backend | Failure:
        """The back-end of one server of a model."""
        way = await self._way(spec, number)
        if isinstance(way, Failure):
            return way
        kind, endpoint = way
        backend = create_backend(spec, kind, endpoint, allow_code=self._allow_code)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(backend.close)
            provenance = verified(await answered(backend.provenance()), Provenance)
            if isinstance(provenance, Failure):
                if not self._held.gives_up(spec, kind, provenance):
                    return provenance
                return await self._one(spec, number)
            label = self._held.check(spec, provenance)
            if self._probes is not None:
                found = Target(kind=kind, endpoint=endpoint, backend=backend, provenance=provenance)
                await self._probes.check(spec, label, found)
            stack.pop_all()
        self._compared_at[spec.name, number] = asyncio.get_running_loop().time()
        backend.renamed = partial(self._renamed, spec.name, number)
        backend.asked_again = lambda: self.listener.asked_again()
        said = provenance_words(provenance)
        _log.info("%s is connected to %s", spec.name, said, extra={"model": spec.name})
        return backend

    def _number(self, server: Launched) -> int:
        """Return the place of a launched server among those of its models."""
        return self._servers[server.models[0].name].index(server)

    def _is_quiet(self, server: Launched) -> bool:
        """Return whether a launched server has requests, and has ended none for long."""
        quiet, number = [], self._number(server)
        for model in server.models:
            if (several := self._replicas.get(model.name)) is not None:
                quiet_s = several.quiet_s(number)
            else:
                quiet_s = self.listener.quiet_s(model.name)
            if quiet_s:
                quiet.append(quiet_s > self._specs[model.name].limits.silent_after_s)
        return bool(quiet) and all(quiet)

    async def _answers(self, server: Launched) -> bool:
        """Return whether a launched server answers anything; one that has ended does not hang."""
        if server.server is None or server.server.exit_code() is not None:
            return True
        spec = self._specs[server.models[0].name]
        way = await self._way(spec, self._number(server))
        if isinstance(way, Failure):
            return True
        backend = create_backend(spec, *way, allow_code=self._allow_code)
        try:
            found = verified(await answered(backend.provenance()), Provenance)
        finally:
            await backend.close()
        return not isinstance(found, Failure) or bool(found.status)

    def doubt(self, model: str, hold: Hold) -> None:
        """Note that a connection to a model broke: is what answers there still the same server?

        `hold` keeps requests from a model that has one server, until that is known.
        """
        broken = self._specs[model]
        if broken.server is not None:
            return  # what we launch is started again as it was
        urls = addresses(broken)
        if (several := self._replicas.get(model)) is not None:
            urls = tuple(urls[number] for number in several.broken)
            several.broken.clear()
        for name, spec in self._specs.items():
            several = self._replicas.get(name)
            # Models that are not asked just now have no connection that breaks.
            for number, url in enumerate(addresses(spec)):
                if url in urls:
                    # One bad server never holds its model.
                    held = partial(hold, name) if several is None else partial(several.hold, number)
                    compare = partial(self._compare, spec, number, is_broken=True)
                    self._doubts.doubt((name, number), held, compare)

    def _renamed(self, model: str, number: int) -> None:
        several = self._replicas.get(model)
        if several is not None:
            several.broken.add(number)
        self.listener.doubted(model)

    async def _compare(self, spec: ModelSpec, number: int, *, is_broken: bool) -> None:
        """Hold a server to what it was.

        Where not `is_broken`, a server that gives no answer may only be busy, and requests tell
        whether it is reached; else it is gone.
        """
        several = self._replicas.get(spec.name)
        try:
            end = asyncio.get_running_loop().time() + _LOOKS_S
            found = await self._one(spec, number)
            while isinstance(found, Failure) and found.retriable:
                if asyncio.get_running_loop().time() >= end:
                    break
                await asyncio.sleep(_LOOK_S)
                found = await self._one(spec, number)
            if isinstance(found, Failure) and found.permanent and not self._accept_change:
                raise ServerChangedError(
                    f"model {spec.name!r}: its server was replaced during the run: "
                    f"{found.message}. Fix the server, then run the same command again"
                )
        except OrchestratorError:
            if several is not None:
                await several.refuse(number)
            raise
        if not isinstance(found, Failure):
            await found.close()
        elif several is not None and is_broken:
            await several.lose(number, found)

    async def _compare_now_and_then(self) -> None:
        """Compare servers that somebody else has started although no connection to them broke.

        Behind a proxy a server is replaced without that. Nothing is held meanwhile.
        """
        while self._asks:
            await asyncio.sleep(self.compared_every_s)
            for spec in self._specs.values():
                if not is_reached(spec) or self.states[spec.name] != "ready":
                    continue
                for number in range(self.n_servers(spec.name)):
                    compare = partial(self._compare, spec, number, is_broken=False)
                    self._doubts.doubt((spec.name, number), lambda _: None, compare)

    async def compare_at_end(self) -> None:
        """Compare servers that somebody else has started once more, after the last answer.

        So no answer of a longer run is given after the last comparison.

        Raises:
            ServerChangedError: If another one answers.
        """
        now = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for (name, number), at in self._compared_at.items():
                spec = self._specs[name]
                if self._asks and is_reached(spec) and now - at >= _AT_END_S:
                    group.create_task(self._compare(spec, number, is_broken=False))

    async def mend(self, fail: Callable[[OrchestratorError], None]) -> None:
        """Bring back and look at servers, as far as is asked for, until cancelled.

        `fail` is given what makes it impossible to go on.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._compare_now_and_then())
            self.look_after(group)
            while True:
                errand = await self._errands.get()
                group.create_task(_to_end(errand, fail))

    def look_after(self, group: asyncio.TaskGroup) -> None:
        """End launched servers that hang, in tasks of a group."""
        for server in self.launched:
            is_quiet, answers = partial(self._is_quiet, server), partial(self._answers, server)
            group.create_task(look_after(server.end, is_quiet, answers))

    def move(self, loss: Loss) -> None:
        """Have servers start at their new places when a node of a cluster is lost."""
        for name, copies in {copies[0].name: copies for copies in self._servers.values()}.items():
            why = loss.without_room.get(name, "")
            for server in copies:
                if why:
                    server.no_room = (
                        f"node {loss.node} is out of reach, and no other has room: {why}"
                    )
                elif server.launch.carrier is not None:
                    server.launch.carrier.lost = (*server.launch.carrier.lost, loss.node)
                if name in loss.waiting:
                    server.may_start.clear()
            for server, share in zip(copies, loss.moved.get(name, ()), strict=False):
                if share.node != server.node:
                    server.move(share, loss.node)

    def admit(self, models: Collection[str]) -> None:
        """Let the servers of these models start, which waited for others to end."""
        for server in _each(self._servers.get(name, ()) for name in models):
            server.may_start.set()

    async def rest(self, models: Collection[str]) -> None:
        """End the servers of these models until they are asked again."""
        await at_once(*(one.rest() for one in _each(self._servers[name] for name in models)))
        self.states.update(dict.fromkeys(models, "idle"))

    async def stop(self) -> None:
        """Close what was not used; end every server that was launched, unless it is to be kept."""
        while self._found:
            await self._found.popitem()[1].close()
        await at_once(*(server.stop() for server in self.launched))

    async def _way(self, spec: ModelSpec, number: int) -> tuple[str, Endpoint] | Failure:
        """Return the kind and the place of a server of a model; start the server if need be."""
        kind = spec.backend
        if spec.server is None:
            urls = spec.base_urls or (spec.base_url or "",)
            endpoint = endpoint_of(spec, urls[number])
        else:
            launched = self._servers[spec.name][number]
            server = await launched.running()
            if isinstance(server, Failure):
                return server
            kind = launched.launch.backend
            endpoint = Endpoint(base_url=server.base_url, model=spec.name, api_key=server.api_key)
        self._store.vocabulary.keep_out(endpoint.secret)
        endpoint = msgspec.structs.replace(
            endpoint,
            extra_body=spec.entry.extra_body,
            batch=spec.entry.batch,
            # A folder for each model: two may be the same at the endpoint.
            kept_in=str(self._store.path.with_name("batches") / digest(spec.name).hex()[:12]),
            timeout_s=spec.limits.timeout_s,
            # The scheduler bounds what is in flight; who raises its limit needs no new pool.
            max_in_flight=max(spec.max_in_flight, _CONNECTIONS),
            plain=spec.plain,
            thinking_end=spec.thinking_end,
        )
        if spec.finds_backend:
            found = await self._held.kind(spec, endpoint)
            if isinstance(found, Failure):
                return found
            kind = found
        return kind, endpoint


async def _to_end(errand: Errand, fail: Callable[[OrchestratorError], None]) -> None:
    try:
        await errand()
    except OrchestratorError as error:
        fail(error)
