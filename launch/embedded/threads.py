"""Sharing processor threads among the engines of a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch


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
