"""Servers are looked at first, held to what answered before, and compared after a break."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Final

import msgspec

from orchestrator.backend import LOCAL, Backend, Provenance
from orchestrator.errors import ServerChangedError, UsageError
from orchestrator.recipe.schema import ModelSpec
from orchestrator.records import Failure
from orchestrator.runner.models.identity import (
    LAUNCHED,
    address,
    answered_words,
    provenance_words,
    server_label,
)
from orchestrator.runner.planning.reuse import Copies
from orchestrator.store import Store, StoredServer

# All servers that run already are looked at before the first request is sent to any of them.
#
# A judge that can't do what its method asks is met only when the first answers are there, and these
# have been paid for by then. What is found here stops the run before.


Connect = Callable[[str], Awaitable[Backend | Failure]]


def is_reached(spec: ModelSpec) -> bool:
    """True for a model whose server somebody else has started."""
    return spec.base_url is not None and spec.base_url != LOCAL


class FirstLook:
    """Connects to servers once, and hands each connection to who asks for it first.

    `connect` raises where a run can't be answered.
    """

    def __init__(self, models: Collection[str], connect: Connect) -> None:
        self._left = tuple(models)
        self._to_meet = set(models)
        self._met = asyncio.Event()
        if not self._to_meet:
            self._met.set()
        self._connect = connect
        self._lock = asyncio.Lock()
        self._found: dict[str, Backend] = {}

    async def connection(self, model: str) -> Backend | None:
        """The connection of a model, after all were looked at; None where it is to be made.

        A server that does not answer now is looked at when it is asked.

        Raises:
            OrchestratorError: Of `connect`, the first.
        """
        async with self._lock:
            if self._left:
                try:
                    async with asyncio.TaskGroup() as group:
                        # After a look that failed others come here before the run has stopped.
                        for name in self._left:
                            if name not in self._found:
                                group.create_task(self._keep(name))
                except BaseExceptionGroup as errors:
                    raise errors.exceptions[0] from None
                self._left = ()
        return self._found.pop(model, None)

    async def _keep(self, model: str) -> None:
        try:
            found = await self._connect(model)
        finally:
            self._meet(model)
        if not isinstance(found, Failure):
            self._found[model] = found
        elif not found.retriable:
            # Nothing in this call will change it, and nothing was paid for yet.
            raise UsageError(f"model {model!r}: {found.message}")

    async def others(self, model: str) -> None:
        """Wait until there was a first contact with the servers of all other models, too."""
        self._meet(model)
        await self._met.wait()

    def _meet(self, model: str) -> None:
        self._to_meet.discard(model)
        if not self._to_meet:
            self._met.set()

    async def close(self) -> None:
        """Close what nobody asked for."""
        while self._found:
            _, backend = self._found.popitem()
            await backend.close()


_log = logging.getLogger(__name__)


class Held:
    """Knows which servers answered.

    A server is held to what answered for the same identity, unless `accept_change`; so are those of
    `copies`.

    Attributes:
        server_ids: Number in the store of the server that a model is connected to.
    """

    def __init__(
        self,
        store: Store,
        identities: Mapping[str, bytes],
        copies: Copies | None,
        *,
        accept_change: bool,
    ) -> None:
        self._store = store
        self._identities = dict(identities)
        self._copies = copies
        self._accept_change = accept_change
        self.server_ids: dict[str, int] = {}

    def label(self, spec: ModelSpec) -> str:
        """Return what the store remembers the servers of a model by."""
        return server_label(spec.name, self._identities[spec.name])

    def check(self, spec: ModelSpec, provenance: Provenance) -> str:
        """Hold a server to what answered before; return its label.

        Raises:
            ServerChangedError: If another server answered this run before.
        """
        if spec.server is not None:
            provenance = msgspec.structs.replace(provenance, base_url=LAUNCHED)
        elif spec.base_urls:
            provenance = msgspec.structs.replace(provenance, base_url=address(spec))
        label = self.label(spec)
        earlier = self._changed(label, provenance)
        if earlier is not None:
            now = provenance_words(provenance)
            if not self._accept_change:
                raise ServerChangedError(
                    f"model {spec.name!r}: {answered_words(earlier)}, now it would be by "
                    f"{now}. Their numbers may differ. Continue with --accept-server-change, "
                    "or start a new run with "
                    f"--fresh{' and without that run' if earlier.run else ''}"
                )
            before = provenance_words(earlier.provenance)
            said = f"{spec.name}: served by {now}, previously by {before}"
            _log.warning("%s", said, extra={"model": spec.name})
        if self._copies is not None:
            self._copies.meet(spec.name, provenance)
        self.server_ids[spec.name] = self._store.server_id(label, provenance)
        return label

    def _changed(self, label: str, provenance: Provenance) -> StoredServer | None:
        earlier = self._store.server_of_model(label)
        if earlier is None or earlier.provenance == provenance:
            return None
        # Of several whose answers were copied none was the last.
        if earlier.run and provenance in self._store.known_servers(label):
            return None
        return earlier


# Servers whose connections broke are compared with what they were before they are sent more.
#
# Where nobody answers for a while, the next trial connects anew, which compares too. A server that
# is back at once, or stands behind a proxy, would be taken for the one before.


Errand = Callable[[], Coroutine[Any, Any, None]]
Server = tuple[str, int]
"""A model and the number of one of its servers."""

# How long a server that was compared is then left alone, seconds.
_LOOKED_S: Final = 5.0


class Doubts:
    """Compares each server at most once at a time and every few seconds."""

    def __init__(self, errand: Callable[[Errand], None]) -> None:
        self._errand = errand
        self._doubted: set[Server] = set()
        self._looking: set[Server] = set()

    def doubt(
        self, server: Server, hold: Callable[[bool], None], compare: Callable[[], Awaitable[None]]
    ) -> None:
        """Note that a connection to a server broke.

        `hold` keeps requests from the server until that is known, or no longer. If `compare`
        raises, since another server answers, it stays held.
        """
        self._doubted.add(server)
        if server not in self._looking:
            self._looking.add(server)
            hold(True)  # noqa: FBT003
            self._errand(lambda: self._look(server, hold, compare))

    async def _look(
        self, server: Server, hold: Callable[[bool], None], compare: Callable[[], Awaitable[None]]
    ) -> None:
        while server in self._doubted:
            self._doubted.discard(server)
            hold(True)  # noqa: FBT003
            await compare()
            hold(False)  # noqa: FBT003
            await asyncio.sleep(_LOOKED_S)
        self._looking.discard(server)
