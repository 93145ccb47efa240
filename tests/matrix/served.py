"""A fake server on a thread of its own that keeps the bodies it was sent."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.fake.main import LOOPBACK, serving
from tests.fake.rules import Referee, load


@dataclass
class Kept:
    """A server and what it was asked.

    Attributes:
        url: Its address.
        bodies: Of the requests, in their order.
        swap: From which request on it has which rules, without a connection that breaks.
    """

    url: str
    bodies: list[str] = field(default_factory=list)
    swap: tuple[int, object] | None = None

    def of(self, text: str) -> list[str]:
        """The bodies that hold a text."""
        return [body for body in self.bodies if text in body]


@contextlib.contextmanager
def kept_server(rules: object, models: tuple[str, ...], host: str = LOOPBACK) -> Iterator[Kept]:
    """A server of some dialect for the time of a block."""
    kept, ready = Kept(""), threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with serving(rules, models=models, host=host) as (url, server):
            answer = server._ask

            def keep(route, received):
                kept.bodies.append(received.body.decode("utf-8", "replace"))
                if kept.swap is not None and len(kept.bodies) == kept.swap[0]:
                    server._referee = Referee(load(kept.swap[1]))
                return answer(route, received)

            server._ask = keep  # type: ignore[method-assign]
            kept.url = url
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield kept
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()
