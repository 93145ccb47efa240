"""Event loops of calls, and the signals that stop a run outside of the time in which it sends.

A loop is in this thread, in a thread beside a running loop, or awaited. SIGINT and SIGTERM stop a
run. `DRAINS` ask it to stop before something else ends it: a terminal that goes away (SIGHUP), and
the signal that a batch system sends before a time limit or a preemption (SIGUSR1 with Slurm's
`--signal=USR1`, SIGUSR2 with submitit). Python's caller may use these for something else, so one
that has a handler already, or is ignored, is left alone.
"""

import asyncio
import contextlib
import contextvars
import gc
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, Final, Protocol, TypeVar

import uvloop

from orchestrator.errors import OrchestratorError

# How often the waiting thread wakes up to handle signals, seconds.
_LOOK_S: Final = 0.2

T = TypeVar("T")

CANCELLED: Final = (
    "code that this call runs, such as a method's, cancelled tasks of its event loop; what was "
    "answered is saved: resume with the same command"
)
"""Error of a call that neither ended nor was interrupted."""


class Stop:
    """A request from another thread to stop a run.

    Attributes:
        count: How often it was made; from the second on requests in flight are abandoned too.
    """

    def __init__(self) -> None:
        self.count = 0

    def request(self) -> None:
        """Ask for the stop; a handler of signals may call this."""
        self.count += 1


Work = Coroutine[Any, Any, T]
Errand = Callable[[], Coroutine[Any, Any, None]]

_STOP: Final[contextvars.ContextVar[Stop]] = contextvars.ContextVar("stop")
"""Of the call in this thread, where another thread may request one (`in_thread`)."""


class ToEnd(Protocol):
    """A function that runs a coroutine, and returns its result when it has ended."""

    def __call__(self, work: Work[T], /) -> T:
        """Return the result."""


@contextlib.contextmanager
def event_loop() -> Iterator[tuple[ToEnd, Stop]]:
    """Yield what runs a coroutine to its end, and the stop that another thread may request.

    In a notebook an event loop already runs in this thread, and no second one can. Then the work
    runs in a thread of its own, which gets no signals: SIGINT here requests the stop.
    """
    stop = _STOP.get(None) or Stop()
    is_alone = False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_alone = True
    if is_alone:
        try:
            with _rare_collection(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                yield runner.run, stop
        except (asyncio.CancelledError, RuntimeError) as error:
            # Who waits for a call asks it to stop and cancels nothing in this loop.
            if isinstance(error, RuntimeError) and not str(error).startswith("Event loop stopped"):
                raise
            raise OrchestratorError(CANCELLED) from error
        return

    with ThreadPoolExecutor(1, "orchestrator") as pool, _requesting(stop):

        def beside(work: Work[T]) -> T:
            def call() -> T:
                with event_loop() as (to_end, _):
                    return to_end(work)

            # Two runs at once are told apart by the context.
            future = pool.submit(contextvars.copy_context().run, call)
            while not future.done():
                # Not for ever: a signal may reach another thread, and then wakes nobody here.
                wait([future], _LOOK_S)
            return future.result()

        yield beside, stop


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of a blocking call in a thread of its own.

    Cancelling requests the stop, waits until the call has ended, and then raises.

    Raises:
        asyncio.CancelledError: If it was cancelled.
    """
    stop, context = Stop(), contextvars.copy_context()
    context.run(_STOP.set, stop)
    with ThreadPoolExecutor(1, "orchestrator") as pool:
        future = pool.submit(context.run, work)
        try:
            waiting = asyncio.wrap_future(future)
            while not waiting.done():
                # A notebook cancels from a handler of signals, which does not wake up its loop.
                await asyncio.wait([waiting], timeout=_LOOK_S)
            return waiting.result()
        except asyncio.CancelledError:
            await _ended(future, stop)
            raise
        except BaseException:
            # The loop itself was interrupted, and this coroutine is closed: the pool waits here.
            stop.request()
            raise


async def _ended(future: "Future[Any]", stop: Stop) -> None:
    """Wait for a call that is asked to stop, however often this is cancelled."""
    waiting = asyncio.wrap_future(future)
    while not waiting.done():
        stop.request()
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            continue
    # What it raised is beside the point now; unread, asyncio would complain.
    waiting.exception()


async def at_once(*work: Work[T]) -> list[T]:
    """Return the results of coroutines that go on at the same time, in their order.

    The first error of any ends the others, and is raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the run, out of its groups of tasks: ours before others."""
    leaves: list[BaseException] = []

    def walk(error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                walk(inner)
        else:
            leaves.append(error)

    walk(group)
    return next((leaf for leaf in leaves if isinstance(leaf, OrchestratorError)), leaves[0])


@contextlib.contextmanager
def _requesting(stop: Stop) -> Iterator[None]:
    """Let SIGINT request the stop in this block, instead of raising anywhere in it."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    # Whoever ignores it keeps ignoring it.
    if not is_main or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: stop.request())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_lock = threading.Lock()
# The thresholds before the first run that goes on, once for each.
_before: list[tuple[int, int, int]] = []


@contextlib.contextmanager
def _rare_collection() -> Iterator[None]:
    """Keep the thresholds of the cyclic collector up while any run goes on.

    What is made for a request is gone after it without the cyclic collector, whose default is to
    look for cycles every 700 objects.
    """
    with _lock:
        _before.append(_before[0] if _before else gc.get_threshold())
        gc.set_threshold(20_000, 20, 20)
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                gc.set_threshold(*before)


# Signals, outside of the time in which a run sends.

DRAINS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_STDERR = 2
_SAID = b"orchestrator: interrupted; one moment, until what is being written is whole\n"


class DeferredInterrupts:
    """A handler of signals that raises at once, and from `begin` on only where `look` is called.

    From `begin` on those of `DRAINS` do nothing: the call is about to end.

    An exception between any two instructions may come up inside polars, which words it as a panic
    of its own, or inside a clean-up, which prints and forgets it.
    """

    def __init__(self) -> None:
        self._begun = False
        self._n_signals = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if not self._begun:
            signal.default_int_handler(number, frame)
        if number in DRAINS:
            return
        self._n_signals += 1
        if self._n_signals == 1:
            # Not by `sys.stderr`, in the middle of whose `write` this may be.
            with contextlib.suppress(OSError):
                os.write(_STDERR, _SAID)

    def begin(self) -> None:
        """Keep signals for `look` from now on."""
        self._begun = True

    def look(self) -> None:
        """A place where nothing is half done.

        Raises:
            KeyboardInterrupt: If a signal came since `begin`.
        """
        if self._n_signals:
            raise KeyboardInterrupt


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[DeferredInterrupts]:
    """Handle SIGINT and `DRAINS` in this block; within another such block the outer one does.

    Signals that are ignored (by `nohup`, or in a job in the background) stay ignored.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *DRAINS)}
    outer = next((one for one in before.values() if isinstance(one, DeferredInterrupts)), None)
    if outer is not None:
        yield outer
        return
    late = DeferredInterrupts()
    if threading.current_thread() is not threading.main_thread():
        yield late
        return
    defaults = (signal.default_int_handler, signal.SIG_DFL)
    taken = {number: handler for number, handler in before.items() if handler in defaults}
    for number in taken:
        signal.signal(number, late)
    try:
        yield late
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
