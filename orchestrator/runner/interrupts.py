"""Ctrl-C at the end of a call, when sending is over and what came of it is written."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_STDERR = 2
_SAID = b"orchestrator: interrupted; one moment, until what is being written is whole\n"


class DeferredInterrupts:
    """A handler of SIGINT that raises at once, and from `begin` on only where `look` is called.

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
    """Handle SIGINT in this block; inside another such block it is the outer one that does."""
    before = signal.getsignal(signal.SIGINT)
    if isinstance(before, DeferredInterrupts):
        yield before
        return
    late = DeferredInterrupts()
    # Who ignores it (`nohup`, a job in the background) goes on ignoring it.
    is_default = before is signal.default_int_handler
    if not is_default or threading.current_thread() is not threading.main_thread():
        yield late
        return
    signal.signal(signal.SIGINT, late)
    try:
        yield late
    finally:
        signal.signal(signal.SIGINT, before)
