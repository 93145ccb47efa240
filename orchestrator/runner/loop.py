"""Running a call's event loop: in this thread where it has none, else in one of its own."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import uvloop

# How often the waiting thread looks for Ctrl-C, seconds.
_LOOK_S = 0.2

T = TypeVar("T")
Work = Callable[[threading.Event], Coroutine[Any, Any, T]]


def run_to_end(work: Work[T]) -> T:
    """The result of a coroutine; returns when it has ended.

    In a notebook an event loop already runs in this thread, and no second one can. Then the work
    has a thread of its own, which gets no signals: Ctrl-C here sets the event it was given.

    Args:
        work: Makes the coroutine.
    """
    stop = threading.Event()
    if not _has_loop():
        return _run(work, stop)
    with ThreadPoolExecutor(1, "orchestrator") as pool:
        future = pool.submit(_run, work, stop)
        while not future.done():
            try:
                # Not for ever: a signal may reach another thread, and then wakes nobody here.
                wait([future], _LOOK_S)
            except KeyboardInterrupt:
                stop.set()
        return future.result()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(work: Work[T], stop: threading.Event) -> T:
    thresholds = gc.get_threshold()
    # What is made for a request is gone after it without the cyclic collector, whose default is to
    # look for cycles every 700 objects. It still looks, but not several times a request.
    gc.set_threshold(20_000, 20, 20)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work(stop))
    finally:
        gc.set_threshold(*thresholds)
