"""Requests that could be sent: who goes next, whether it may go now, and when one is tried again.

Requests of one item share their prompts' beginning, which servers keep for a while. So the item of
the last request goes on as long as it has others; then come items with units that have had an
answer, then new ones, each in the order of their units. One that has waited long goes before both.
"""

import enum
import heapq
from collections import deque
from typing import Final

import msgspec
from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_random_exponential

from orchestrator.ask import Request
from orchestrator.records import Failure


class Admission(enum.Enum):
    """Permission to send a request.

    Attributes:
        SEND: It may.
        WAIT: Not before another request has ended: until then nothing is sent.
        STOP: It may not, nor may others: sending ends.
    """

    SEND = enum.auto()
    WAIT = enum.auto()
    STOP = enum.auto()


# Upper bound of the first random wait before a request is sent again, which doubles each time, and
# of any that the server did not ask for; and the longest that it may ask for. Seconds.
_FIRST_WAIT_S, _MAX_WAIT_S, _MOST_ASKED_S = 0.5, 30.0, 600.0


def retry_wait_s(failure: Failure, attempts: int, max_attempts: int) -> float | None:
    """Return the seconds to wait after so many attempts; None means: give up.

    What the server asked for (`Retry-After`) is honoured, up to ten minutes.
    """
    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = attempts
    if not failure.retriable or stop_after_attempt(max_attempts)(state):
        return None
    wait_s = float(wait_random_exponential(_FIRST_WAIT_S, _MAX_WAIT_S)(state))
    return max(wait_s, min(failure.retry_after_s or 0.0, _MOST_ASKED_S))


AGE_S: Final = 30.0
"""After so long an item goes before all others but the one that is being sent."""

_Key = tuple[bool, int]


class _Group(msgspec.Struct, eq=False):
    """The requests of one item; `number` tells it from one that stood here before."""

    number: int
    key: _Key
    waiting: list[tuple[int, int, Request]]


class Ready:
    """A queue of requests, by item."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        # May name groups that are gone or have another key by now; they are passed over.
        self._order: list[tuple[_Key, int, int]] = []
        self._ages: deque[tuple[float, int, int]] = deque()
        self._current = -1
        self._length = 0
        self._n = 0

    def __len__(self) -> int:
        return self._length

    def push(self, request: Request, now: float) -> None:
        """Add a request; `now` is where its waiting begins, in seconds."""
        self._n += 1
        self._length += 1
        number, entry = self._n, (request.position, self._n, request)
        key = (not request.begun, request.position)
        group = self._groups.get(request.group)
        if group is None:
            self._groups[request.group] = _Group(number, key, [entry])
            self._ages.append((now, number, request.group))
            heapq.heappush(self._order, (key, number, request.group))
            return
        heapq.heappush(group.waiting, entry)
        if key < group.key:
            group.key = key
            heapq.heappush(self._order, (key, group.number, request.group))

    def pop(self, now: float) -> Request:
        """The next request.

        Raises:
            IndexError: If there is none.
        """
        group = self._groups.get(self._current)
        if group is None:
            self._current = self._next(now)
            group = self._groups[self._current]
        request = heapq.heappop(group.waiting)[2]
        if not group.waiting:
            del self._groups[self._current]
        self._length -= 1
        return request

    def clear(self) -> list[Request]:
        """Take all out, in the order of their units."""
        entries = sorted(entry for group in self._groups.values() for entry in group.waiting)
        self._groups.clear()
        self._order.clear()
        self._ages.clear()
        self._length = 0
        return [request for _, _, request in entries]

    def _next(self, now: float) -> int:
        while self._ages and not self._is_there(*self._ages[0][1:]):
            self._ages.popleft()
        if self._ages and now - self._ages[0][0] > AGE_S:
            return self._ages.popleft()[2]
        while True:
            _, number, which = heapq.heappop(self._order)
            if self._is_there(number, which):
                return which

    def _is_there(self, number: int, which: int) -> bool:
        group = self._groups.get(which)
        return group is not None and group.number == number
