"""Models, engines, threads and the listening socket put together."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TypeVar

import torch
import uvicorn

from launch.embedded.app import Service
from launch.embedded.served import Settings, load


class Threads:
    """Gives each busy engine an equal share of the threads, at least one.

    A number of threads belongs to the thread that set it, so each engine sets its own.

    Args:
        total: Threads for all engines together.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._busy: Sequence[Callable[[], bool]] = ()
        self._set = threading.local()

    def watch(self, busy: Sequence[Callable[[], bool]]) -> None:
        """Say how to see which engines have work."""
        self._busy = busy

    def share(self) -> None:
        """Set the calling thread's share."""
        n_busy = max(1, sum(check() for check in self._busy))
        share = max(1, self._total // n_busy)
        if getattr(self._set, "share", None) != share:
            self._set.share = share
            torch.set_num_threads(share)


T = TypeVar("T")
_KEEP_ALIVE_S = 120
_DRAIN_S = 5
_SWITCH_S = 0.001


@dataclass(frozen=True, slots=True)
class Listener:
    """Address to listen on, and the key required there (empty for none; never shown).

    `socket` is bound there already; None to bind one.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    key: str = field(default="", repr=False)
    socket: socket.socket | None = None


class Announcing(uvicorn.Server):
    """Says on stderr when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: D102
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            host = self.config.host
            shown = f"[{host}]" if ":" in host else host
            sys.stderr.write(f"ready http://{shown}:{port}\n")
            sys.stderr.flush()


def _in_thread(function: Callable[[], T], n_threads: int) -> T:
    """Call a function on a thread that ends with it and computes with `n_threads`.

    The threading library of `torch` keeps helpers for every thread that computed something, and
    with more of them than cores all wait asleep, which takes half of a decoding step's time.
    """
    found: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        torch.set_num_threads(n_threads)
        try:
            found.append(function())
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            errors.append(error)

    # Does not keep the process when a signal ends it meanwhile.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


def serve(
    models: Mapping[str, str], settings: Settings, n_threads: int, listener: Listener
) -> None:
    """Load models (name to place) and serve them until a signal comes.

    Raises:
        LaunchError: If a model can't be served.
        SystemExit: When the server has ended.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # One core is left for the event loop and for the program that asks.
    total = n_threads or max(1, (cores or 2) - 1)
    threads = Threads(total)
    served = _in_thread(
        lambda: [load(name, place, settings, threads.share) for name, place in models.items()],
        total,
    )
    threads.watch([partial(attrgetter("busy"), one.engine) for one in served])
    # The loop's and the engines' bursts of Python are short; the default of 5 ms makes each wait.
    sys.setswitchinterval(_SWITCH_S)
    config = uvicorn.Config(
        Service(served, listener.key).app(),
        host=listener.host,
        port=listener.port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        # Reads no more than 64 KB of a request's head; the other parser has no bound.
        http="h11",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    for one in served:
        one.engine.start()
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            sockets = None if listener.socket is None else [listener.socket]
            runner.run(Announcing(config).serve(sockets))
    finally:
        for one in served:
            one.engine.close()
