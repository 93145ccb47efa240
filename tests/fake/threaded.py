"""A fake server in a thread of its own, for tests whose client blocks."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any


@contextmanager
def threaded(serving: Callable[[], AbstractAsyncContextManager[Any]]) -> Iterator[Any]:
    """Enter what serves in an event loop of another thread, and leave it there."""
    ready = threading.Event()
    found: list[Any] = []

    async def serve() -> None:
        async with serving() as served:
            done = asyncio.Event()
            found.extend((served, asyncio.get_running_loop(), done))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    served, loop, done = found
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
