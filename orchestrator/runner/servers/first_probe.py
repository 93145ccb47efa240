"""All servers that run already are looked at before the first request is sent to any of them.

A judge that can't do what its method asks is met only when the first answers are there, and these
have been paid for by then. What is found here stops the run before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from orchestrator.backend import LOCAL, Backend
from orchestrator.errors import UsageError
from orchestrator.recipe.schema import ModelSpec
from orchestrator.records import Failure

Connect = Callable[[str], Awaitable[Backend | Failure]]


def is_reached(spec: ModelSpec) -> bool:
    """True for a model whose server somebody else has started."""
    return spec.base_url is not None and spec.base_url != LOCAL


class FirstLook:
    """Connects to servers once, and hands each connection to who asks for it first.

    Args:
        models: Whose servers run already.
        connect: Connects, and raises where a run can't be answered.
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
