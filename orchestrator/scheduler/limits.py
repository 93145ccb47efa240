"""Adaptive limits on requests in flight, found while a server works. Pure: `now` comes in.

A controller is told at each look what the server was seen to do and says whether the limit is to
change. It follows one signal at a time: the server's own queue where it publishes one, else the
throughput at the limits that were tried (`orchestrator.scheduler.limits`). Whatever the signal, a
server that says it is overloaded is believed at once. Why: `docs/design/0010-adaptive-limits.md`.
"""

import math
from typing import Final

import msgspec

# The knee of a server that says nothing about itself: throughput at the limits that were tried.
#
# A limit is kept until its throughput is known, then another is tried: higher ones by shrinking
# steps while each brings something, lower ones where no higher one did. Then the limit stays, is
# measured on, and is looked for again when the throughput is another one, or, more and more rarely,
# to see whether the server has grown. Pure.


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
        self._meter.begin(now + latency_s if self._limit > before else now)
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

    def begin(self, at: float) -> None:
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


START: Final = 64
"""First limit of a search, for each server."""
FLOOR: Final = 2
"""One request that is computed and one that waits for its turn: less leaves a server idle."""
CEILING: Final = 512
"""Of each server; open files are often bound to 1,024 a process."""

# Share of what is computed that should wait: below the first the server may run dry between two
# looks, above the second what waits only grows old. The gap between them is the hysteresis.
_TOO_FEW, _TOO_MANY, _WANTED = 0.1, 1.0, 0.5
# What waits a shorter time than this is not too much, however many there are: requests of one token
# are computed in a few steps of a fifth of a second, and have to get to the server and back.
_NO_WAIT_S = 1.0
# Below 1 + _TOO_MANY, so that a step from too few can't end at too many.
_MOST_UP, _MOST_DOWN = 1.75, 0.5
_LOOKS_UP, _LOOKS_DOWN = 2, 4
# A queue is waited for so long after a change before it is believed, seconds.
_SETTLES_S, _SETTLES_AT_MOST_S = 1.0, 5.0
_LOOK_S, _CALM_LOOK_S, _CALM_AFTER_S = 0.5, 2.0, 10.0
# After turning round the next change waits; each turn doubles it, so that changes are bounded.
_TURN_S, _TURN_AT_MOST_S = 2.0, 120.0
_OVERLOADED = 0.7
_CAPPED_S, _CAPPED_AT_MOST_S = 60.0, 960.0
# So many looks without a figure mean that the server publishes none.
_LOOKS_FOR_FIGURES = 3


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Observations at one look. Counts are since the start.

    Attributes:
        in_flight: Requests that the server has.
        queued: Requests that could be sent if there were room.
        n_ended: Requests that were answered.
        work: What they cost the server, in tokens, at least 1 each.
        n_overloads: Attempts that ended because the server has too much to do.
        waiting: Requests that wait inside the server; None where it says nothing.
        running: Requests that it computes; None where it says nothing.
    """

    in_flight: int
    queued: int
    n_ended: int
    work: float
    n_overloads: int = 0
    waiting: int | None = None
    running: int | None = None


class Change(msgspec.Struct, frozen=True):
    """A limit that was changed.

    Attributes:
        at: When, as the caller counts time; seconds.
        before: Requests at a time.
        after: Requests at a time.
        why: In a few words.
    """

    at: float
    before: int
    after: int
    why: str


class Controller:
    """Finds the limit of one model and follows it.

    Attributes:
        limit: Requests at a time, now.
        signal: "queue", "throughput", or "" before it is known which there is.
    """

    def __init__(self, start: int = START, floor: int = FLOOR, ceiling: int = CEILING) -> None:
        self.limit = max(floor, min(start, ceiling))
        self.signal = ""
        self._floor = floor
        self._ceiling = ceiling
        self._knee = Knee(self.limit, floor, ceiling)
        self._pace = _Pace()
        self._n_without = 0
        self._queue: list[tuple[int, int, int]] = []
        self._settled_at = -math.inf
        self._changed_at = -math.inf
        self._direction = 0
        self._turn_s = _TURN_S
        self._n_overloads = 0
        self._cap = float(ceiling)
        self._capped_until = -math.inf
        self._capped_s = _CAPPED_S

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next look: many while nothing changes."""
        calm = self.signal == "queue" and now - self._changed_at > _CALM_AFTER_S
        return _CALM_LOOK_S if calm else _LOOK_S

    def look(self, now: float, seen: Seen) -> Change | None:
        """Take in what was seen; the change of the limit, if it is to change."""
        self._pace.add(now, seen)
        if seen.n_overloads > self._n_overloads:
            self._n_overloads = seen.n_overloads
            if now < self._settled_at:
                return None  # of requests that were sent before the last cut
            if now > self._capped_until + self._capped_s:
                self._capped_s = _CAPPED_S
            self._cap = max(self._floor, 0.9 * self.limit)
            self._capped_until = now + self._capped_s
            self._capped_s = min(2 * self._capped_s, _CAPPED_AT_MOST_S)
            change = self._change(now, int(self.limit * _OVERLOADED), "the server is overloaded")
            self._direction = -1
            self._knee = Knee(self.limit, self._floor, self._ceiling)
            return change
        if not self.signal and seen.in_flight:
            if seen.waiting is not None:
                self.signal = "queue"
            else:
                self._n_without += 1
                if self._n_without >= _LOOKS_FOR_FIGURES:
                    self.signal = "throughput"
        if self.signal == "queue":
            return self._by_queue(now, seen)
        if self.signal == "throughput":
            is_full = bool(seen.queued) and seen.in_flight == self.limit
            found = self._knee.look(now, seen.work, self._pace.latency_s, is_full=is_full)
            if found is None:
                return None
            limit, why = found
            change = self._change(now, limit, why)
            if change is None or self.limit != limit:
                self._knee.refused(self.limit)
            return change
        return None

    def resize(self, now: float, n_servers: int, n_before: int, why: str) -> Change | None:
        """Follow servers that come or go: the limit and its bounds are those of each, times `n`."""
        ratio = n_servers / n_before
        self._floor = max(round(self._floor * ratio), 1)
        self._ceiling = max(round(self._ceiling * ratio), 1)
        self._cap *= ratio
        change = self._change(now, round(self.limit * ratio), why)
        # What was tried before was tried with as many servers as there were.
        self._knee = Knee(self.limit, self._floor, self._ceiling)
        return change

    # -- the server's queue ------------------------------------------------------------------------

    def _by_queue(self, now: float, seen: Seen) -> Change | None:
        if now < self._settled_at or seen.in_flight > self.limit or seen.waiting is None:
            # What was sent under the limit before is still there, or the server said nothing.
            return None
        busy = max(seen.running or 0, seen.in_flight - seen.waiting, 1)
        self._queue.append((seen.waiting, busy, seen.in_flight))
        del self._queue[:-_LOOKS_DOWN]
        waiting, computed, asked = (sum(of) / len(of) for of in zip(*self._queue, strict=True))
        # By Little's law, of what the server counts: it may be more than we have sent, others'
        # requests and their parts.
        in_time = (waiting + computed) * _NO_WAIT_S / max(self._pace.at_least_s(now), _NO_WAIT_S)
        if waiting > max(_TOO_MANY * computed, self._floor, in_time):
            if len(self._queue) < _LOOKS_DOWN:
                return None
            kept = computed + _WANTED * max(computed, in_time)
            fits = asked * kept / (waiting + computed)
            wanted = max(fits, self.limit * _MOST_DOWN)
            return self._turn_to(
                now, math.ceil(wanted), f"{waiting:.0f} requests wait in the server"
            )
        is_full = seen.queued and seen.in_flight >= self.limit
        if not is_full or len(self._queue) < _LOOKS_UP or waiting >= _TOO_FEW * computed:
            return None
        return self._turn_to(
            now, math.ceil(self.limit * _MOST_UP), "no requests wait in the server"
        )

    def _turn_to(self, now: float, wanted: int, why: str) -> Change | None:
        direction = 1 if wanted > self.limit else -1
        if direction == -self._direction:
            if now < self._changed_at + self._turn_s:
                return None
            self._turn_s = min(2 * self._turn_s, _TURN_AT_MOST_S)
        self._direction = direction
        return self._change(now, wanted, why)

    # -- both --------------------------------------------------------------------------------------

    def _change(self, now: float, wanted: int, why: str) -> Change | None:
        cap = self._cap if now < self._capped_until else self._ceiling
        after = max(self._floor, min(wanted, int(cap), self._ceiling))
        if after == self.limit:
            return None
        change = Change(now, self.limit, after, why)
        self.limit = after
        self._changed_at = now
        settles = min(max(self._pace.latency_s, _SETTLES_S), _SETTLES_AT_MOST_S)
        self._settled_at = now + settles
        self._queue.clear()
        return change


class _Pace:
    """Mean latency of the last while, by Little's law: requests in flight over answers a second."""

    def __init__(self) -> None:
        self.latency_s = 0.0
        self._since: float | None = None
        self._n_ended = 0
        self._in_flight = 0.0
        self._n = 0

    def at_least_s(self, now: float) -> float:
        """The latency; before it is known, how long nothing has come."""
        return self.latency_s or (0.0 if self._since is None else now - self._since)

    def add(self, now: float, seen: Seen) -> None:
        if self._since is None:
            self._since, self._n_ended = now, seen.n_ended
            return
        self._in_flight += seen.in_flight
        self._n += 1
        ended, elapsed = seen.n_ended - self._n_ended, now - self._since
        mean = self._in_flight / self._n
        if ended < max(mean, 4) or elapsed <= 0:
            # Too few to tell; but it takes at least as long as nothing has come.
            self.latency_s = max(self.latency_s, elapsed * mean / max(ended, 1) if ended else 0.0)
            return
        self.latency_s = mean * elapsed / ended
        self._since, self._n_ended = now, seen.n_ended
        self._in_flight, self._n = 0.0, 0
