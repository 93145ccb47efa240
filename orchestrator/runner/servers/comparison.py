"""Servers whose connections broke are compared with what they were before they are sent more.

Where nobody answers for a while, the next trial connects anew, which compares too. A server that is
back at once, or stands behind a proxy, would be taken for the one before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

Errand = Callable[[], Coroutine[Any, Any, None]]
Server = tuple[str, int]
"""A model and the number of one of its servers."""

# How long a server that was compared is then left alone, seconds.
_LOOKED_S: Final = 5.0


class Doubts:
    """Compares each server at most once at a time and every few seconds.

    Args:
        errand: Runs a coroutine function somewhere; may cancel it.
    """

    def __init__(self, errand: Callable[[Errand], None]) -> None:
        self._errand = errand
        self._doubted: set[Server] = set()
        self._looking: set[Server] = set()

    def doubt(
        self, server: Server, hold: Callable[[bool], None], compare: Callable[[], Awaitable[None]]
    ) -> None:
        """Note that a connection to a server broke.

        Args:
            server: Which.
            hold: Keeps requests from the server until that is known, or no longer.
            compare: Raises if another server answers; then it stays held.
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
