"""Signals that stop a run, outside of the time in which it sends.

SIGINT and SIGTERM stop it. `DRAINS` ask it to stop before something else ends it: a terminal that
goes away (SIGHUP), and the signal that a batch system sends before a time limit or a preemption
(SIGUSR1 with Slurm's `--signal=USR1`, SIGUSR2 with submitit). Python's caller may use these for
something else, so one that has a handler already, or is ignored, is left alone.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

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
