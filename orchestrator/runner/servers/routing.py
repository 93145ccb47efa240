"""Routing of requests among several servers of one model. No I/O.

Requests of one item share their prompts' beginning, so they go to the server that had the first of
them, as long as that has no more than 1.25 times the mean load; then another takes its share of the
item too. What is new goes to the least loaded.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from orchestrator.backend import Backend
from orchestrator.records import Failure

# What a server may have of the mean load before an item that it knows goes to another one too.
_MOST_LOAD: Final = 1.25
# Items whose servers are remembered; far more than are under way.
_ITEMS: Final = 4096


class Copy(msgspec.Struct, eq=False):
    """One of the servers.

    Attributes:
        number: From 0.
        backend: None while it can't be reached.
        in_flight: Requests that it has.
        is_held: It gets nothing new: who answers there is being found out.
        is_refused: Another server answers there, so its answers are nobody's.
        failure: Why it could not be reached the first time.
    """

    number: int
    backend: Backend | None
    in_flight: int = 0
    is_held: bool = False
    is_refused: bool = False
    failure: Failure | None = None


class Routes:
    """Remembers which servers had requests of an item."""

    def __init__(self) -> None:
        self._known: dict[int, list[Copy]] = {}

    def choose(self, copies: Sequence[Copy], group: int | None) -> Copy | None:
        """Return the server for a request; None if there is none that may be sent one.

        Args:
            copies: All servers.
            group: Of the request; None for one that belongs to none.
        """
        there = [copy for copy in copies if copy.backend is not None and not copy.is_held]
        if group is None or not there:
            return min(there, key=_load, default=None)
        known = self._known.pop(group, [])
        # What is used is put at the end, so that the first is the one to be forgotten.
        self._known[group] = known
        if len(self._known) > _ITEMS:
            del self._known[next(iter(self._known))]
        mean = (sum(map(_load, there)) + 1) / len(there)
        warm = min((copy for copy in known if copy in there), key=_load, default=None)
        if warm is not None and warm.in_flight + 1 <= max(_MOST_LOAD * mean, 1):
            return warm
        least = min(there, key=_load)
        if least not in known:
            known.append(least)
        return least


def _load(copy: Copy) -> int:
    return copy.in_flight
