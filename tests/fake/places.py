"""Limit on the requests that the fake server computes at a time; others wait for their turn."""

import heapq


class Places:
    """Turns by arithmetic: each request gets the place that is free first, and keeps that turn.

    Args:
        steps: From which request on (counted from 0) there are how many places; none for no bound.
    """

    def __init__(self, steps: tuple[tuple[int, int], ...]) -> None:
        self._steps = sorted(steps)
        self._n_seen = 0
        self._free_at: list[float] = []
        self._begins: dict[str, list[float]] = {}

    def delay(self, model: str, now: float, seconds: float) -> float:
        """Seconds until a request is answered that takes so many once it has a place."""
        places = 0
        for first, n in self._steps:
            places = n if self._n_seen >= first else places
        self._n_seen += 1
        if not places:
            return seconds
        while len(self._free_at) < places:
            heapq.heappush(self._free_at, now)
        if len(self._free_at) > places:
            # Those that are busy longest stay: what was promised is kept.
            self._free_at = heapq.nlargest(places, self._free_at)
            heapq.heapify(self._free_at)
        begins = max(now, heapq.heappop(self._free_at))
        heapq.heappush(self._free_at, begins + seconds)
        if begins > now:
            heapq.heappush(self._begins.setdefault(model, []), begins)
        return begins + seconds - now

    def waiting(self, model: str, now: float) -> int:
        """Requests for a model that have no place yet."""
        begins = self._begins.get(model, [])
        while begins and begins[0] <= now:
            heapq.heappop(begins)
        return len(begins)
