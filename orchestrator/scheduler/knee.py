"""The knee of a server that says nothing about itself: throughput at the limits that were tried.

A limit is kept until its throughput is known, then another is tried: higher ones by shrinking
steps while each brings something, lower ones where no higher one did. Then the limit stays, is
measured on, and is looked for again when the throughput is another one, or, more and more rarely,
to see whether the server has grown. Pure.
"""

import math
from typing import Final

import msgspec

# Gain in throughput that doubling the limit must bring; a smaller step the share of it.
_GAIN: Final = 0.03
# A lower limit is better where it costs less than this.
_LOSS: Final = 0.015
_FIRST_STEP, _LAST_STEP = 2.0, 1.18
_PROBE_STEP: Final = 1.5
# Room above the knee, where it does no harm: a server that has grown shows it only where something
# waits for it.
_HEADROOM: Final = 1.2
_HARM: Final = 0.05
# Less than at the knee itself by more than the error of both: then the room is given up.
_ROOM_HARM: Final = 0.02
# Throughput is measured over stretches of a quarter of a latency, until its error is small or the
# difference to what it is compared with clear.
_STRETCH: Final = 0.25
_STRETCH_S: Final = 0.5
_AT_LEAST, _AT_MOST = 8, 24
_ERROR: Final = 0.02
_CLEAR: Final = 4.0
# A throughput this much off means another server, or other requests.
_CHANGED: Final = 0.15
_PROBE_S, _PROBE_AT_MOST_S = 30.0, 240.0


class _Measured(msgspec.Struct, frozen=True):
    limit: int
    rate: float


class Knee:
    """Searches the limit at which more requests at a time bring no more throughput.

    Args:
        limit: Where it begins.
        floor: Lowest limit.
        ceiling: Highest limit.
    """

    def __init__(self, limit: int, floor: int, ceiling: int) -> None:
        self._limit = limit
        self._floor = floor
        self._ceiling = ceiling
        self._base: _Measured | None = None
        self._knee: _Measured | None = None
        self._best = 0.0
        self._searching = True
        self._up = True
        self._step = _FIRST_STEP
        self._last_step = _LAST_STEP
        self._gained = False
        self._harmed = False
        self._is_probe = False
        self._probe_at = math.inf
        self._probe_s = _PROBE_S
        self._meter = _Meter()

    def look(
        self, now: float, work: float, latency_s: float, *, is_full: bool
    ) -> tuple[int, str] | None:
        """Take in one look; the limit to go on with and why, where it is another one.

        Args:
            now: Seconds.
            work: Done since the start, in any unit.
            latency_s: Of a request.
            is_full: Whether as many requests are in flight as may be, and others wait for them.
        """
        stretch_s = max(_STRETCH * latency_s, _STRETCH_S)
        known = self._base.rate if self._base is not None else None
        rate = self._meter.add(now, work, stretch_s, known, is_full=is_full)
        if rate is None:
            return None
        before = self._limit
        why = self._judge(now, _Measured(self._limit, rate))
        if self._limit == before:
            return None
        # Of fewer requests none is sent before enough have ended.
        self._meter.restart(now + latency_s if self._limit > before else now)
        return self._limit, why

    def refused(self, limit: int) -> None:
        """The limit that was wanted is out of bounds: what was searched for ends here."""
        self._limit = limit
        self._searching = False

    def _judge(self, now: float, found: _Measured) -> str:
        if not self._searching:
            return self._watch(now, found)
        base = self._base
        if base is None:
            self._base, self._best = found, found.rate
            return self._try_next(now)
        self._best = max(self._best, found.rate)
        if found.limit > base.limit:
            doublings = math.log2(found.limit / base.limit)
            is_better = found.rate >= base.rate * (1 + _GAIN * doublings)
            self._harmed |= found.rate < base.rate * (1 - _HARM)
        else:
            is_better = found.rate >= self._best * (1 - _LOSS)
        if is_better:
            self._base, self._gained = found, True
        else:
            self._step = math.sqrt(self._step)
        return self._try_next(now)

    def _try_next(self, now: float) -> str:
        base = self._base
        if base is None:
            return ""
        if self._step >= self._last_step:
            wanted = base.limit * self._step if self._up else base.limit / self._step
            tried = min(max(round(wanted), self._floor), self._ceiling)
            if tried != base.limit:
                self._limit = tried
                return f"testing a {'higher' if self._up else 'lower'} limit"
        if self._up and not self._gained and not self._is_probe:
            self._up, self._step = False, _FIRST_STEP
            return self._try_next(now)
        self._searching = False
        if self._is_probe and not self._gained:
            self._probe_s = min(2 * self._probe_s, _PROBE_AT_MOST_S)
            self._limit = base.limit
        else:
            room = 1.0 if self._harmed else _HEADROOM
            self._limit = min(math.ceil(base.limit * room), self._ceiling)
            self._knee = base
            self._base = None if self._limit != base.limit else base
        self._probe_at = now + self._probe_s
        return "the best of the limits tried"

    def _watch(self, now: float, found: _Measured) -> str:
        """Decide if the search starts again."""
        base = self._base
        if base is None or base.limit != found.limit:
            knee = self._knee
            if (
                knee is None
                or found.limit <= knee.limit
                or found.rate >= knee.rate * (1 - _ROOM_HARM)
            ):
                self._base = found
                return ""
            self._limit, self._base = knee.limit, knee
            return "the higher limit was slower"
        ratio = found.rate / base.rate if base.rate else math.inf
        if abs(ratio - 1) > _CHANGED:
            self._probe_s = _PROBE_S
            # What was found is partly of the time before: it is measured again first.
            self._search(None, up=ratio > 1, is_probe=False)
        elif now >= self._probe_at:
            # Where more did harm, fewer may do better.
            self._search(found, up=not (self._harmed and self._up), is_probe=True)
            return self._try_next(now)
        return ""

    def _search(self, base: _Measured | None, *, up: bool, is_probe: bool) -> None:
        self._base, self._best = base, base.rate if base is not None else 0.0
        self._searching, self._gained, self._harmed = True, False, False
        self._up, self._is_probe = up, is_probe
        self._step = _FIRST_STEP
        self._last_step = _LAST_STEP
        if is_probe:
            # One step, and more of them while they gain.
            self._step = self._last_step = _PROBE_STEP if up else _LAST_STEP


class _Meter:
    """Work a second while the limit is used, with its standard error over stretches of time."""

    def __init__(self) -> None:
        self._rates: list[float] = []
        self._start: tuple[float, float] | None = None
        self._from = -math.inf

    def restart(self, at: float) -> None:
        """Forget, and measure from then on."""
        self._rates.clear()
        self._start = None
        self._from = at

    def add(
        self, now: float, work: float, stretch_s: float, known: float | None, *, is_full: bool
    ) -> float | None:
        """The rate, once it is known well enough to be compared; it is then measured anew."""
        if not is_full or now < self._from:
            self._start = None
            return None
        if self._start is None:
            self._start = (now, work)
            return None
        since, before = self._start
        if now - since < stretch_s:
            return None
        self._rates.append((work - before) / (now - since))
        self._start = (now, work)
        n = len(self._rates)
        if n < _AT_LEAST:
            return None
        mean = sum(self._rates) / n
        error = math.sqrt(sum((one - mean) ** 2 for one in self._rates) / (n - 1) / n)
        is_clear = known is not None and abs(mean - known) > _CLEAR * error + _CHANGED * known
        if n < _AT_MOST and error > _ERROR * mean and not is_clear:
            return None
        self._rates.clear()
        return mean
