"""Launched servers that hang or end, their restarts, and the load that servers publish.

That no request ends says little, since one may take minutes; but who is asked what it is answers
beside its work. Servers that crash need no such look: their connections break.
"""

import asyncio
import contextlib
import math
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from orchestrator.backend import Backend, ServerLoad, answered
from orchestrator.errors import LaunchError
from orchestrator.records import Failure

# Numbers and addresses differ from time to time where the reason is the same.
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


class Restarts(msgspec.Struct, frozen=True):
    """Limits on restarts of a server that ended.

    Attributes:
        at_most: Crashes in a row of a server that has answered. More than the attempts of a
            request, so that one request which ends its server each time runs out of attempts before
            its model runs out of servers.
        first_wait_s: Before the first restart; doubled each time.
        max_wait_s: Bound of the wait.
        steady_s: A server that ran so long has shown that it can; its earlier crashes are
            forgotten.
    """

    at_most: int = 6
    first_wait_s: float = 0.5
    max_wait_s: float = 30.0
    steady_s: float = 600.0

    def wait_s(self, n_crashes: int) -> float | None:
        """Seconds before the next start, after so many crashes in a row; None: give up."""
        if n_crashes > self.at_most:
            return None
        return min(self.max_wait_s, self.first_wait_s * 2.0 ** (n_crashes - 1))


class End(msgspec.Struct, frozen=True):
    """The end of a server, or its failure to become ready.

    Attributes:
        said: In words.
        cause: By which two ends are told to be alike.
    """

    said: str
    cause: str


OUT_OF_REACH: Final = "is out of reach on its machine"
"""Of a server on another machine that accepts no connections any more."""
SILENT: Final = "answered nothing any more, not even what it is, and was ended"
TOLD_TO_END: Final = "was told to end by its machine (preempted, cancelled, or at its time limit)"


def end_of(name: str, how: str | int | None, error: str = "") -> End:
    """Return the end of a server that had been ready.

    Args:
        name: Of the server.
        how: In words, or as `subprocess` counts (negative: a signal); None where not known.
        error: The first that it wrote.
    """
    match how:
        case None:
            how = "ended"
        case 0:
            # vLLM calls it an orderly end when its engine died.
            how = "exited by itself (exit code 0)"
        case int():
            how = f"was killed by signal {-how}" if how < 0 else f"exited with code {how}"
        case str():
            pass
    said = f"the server {name!r} {how}" + (f" after its error: {error}" if error else "")
    return End(said, _NUMBER.sub("#", error) or how)


def start_failed(error: LaunchError) -> End:
    """Return the end of a server that never became ready."""
    said = str(error).partition("\n")[0]
    return End(said, _NUMBER.sub("#", said))


# Between two looks; how long an answer may take; how many must fail to come, one after the other.
_EVERY_S: Final = 5.0
_ANSWER_S: Final = 10.0
_MISSES: Final = 3


async def look_after(
    end: Callable[[], Awaitable[None]],
    is_quiet: Callable[[], bool],
    answers: Callable[[], Awaitable[bool]],
) -> None:
    """End a server each time that it hangs, until cancelled.

    `end` ends it: whoever asks for it next starts it again. `is_quiet` tells whether it has
    requests and has ended none for long; `answers` asks it what it is.
    """
    n_missed = 0
    while True:
        if not n_missed:
            await asyncio.sleep(_EVERY_S)
        is_well = not is_quiet()
        if not is_well:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    is_well = await answers()
        n_missed = 0 if is_well else n_missed + 1
        if n_missed >= _MISSES:
            n_missed = 0
            await end()


# How often servers are asked, seconds: /metrics of a busy one costs it milliseconds.
# A server that is too busy to say how busy it is must not hold up the looking.
_FIGURES_S: Final = 5.0


class Loads:
    """Asks each connected server for its load: when `look` is called, else every few seconds."""

    def __init__(self, models: Iterable[str], backend: Callable[[str], Backend | None]) -> None:
        self._models = tuple(models)
        self._backend = backend
        self._last: dict[str, ServerLoad] = {}
        self._first: dict[str, ServerLoad] = {}
        self._asked_s = dict.fromkeys(self._models, -math.inf)
        self._clock = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            for model in self._models:
                # Who finds limits looks more often, and a server is asked once for both.
                if self._clock() - self._asked_s[model] >= _EVERY_S:
                    await self.look(model)
            await asyncio.sleep(_EVERY_S)

    async def look(self, model: str) -> ServerLoad | None:
        """Ask now, and keep what was said; None without a server that says it in time."""
        self._asked_s[model] = self._clock()
        backend = self._backend(model)
        load: ServerLoad | Failure | None = None
        if backend is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIGURES_S):
                    load = await answered(backend.load())
        if load is None or isinstance(load, Failure):
            self._last.pop(model, None)
            return None
        self._last[model] = load
        first = self._first.get(model)
        # A server that was started anew counts from zero.
        if first is None or (load.prefix_queries or 0) < (first.prefix_queries or 0):
            self._first[model] = load
        return load

    def waiting(self, model: str) -> int | None:
        """Requests that stand in the server's own queue; None where it does not say."""
        load = self._last.get(model)
        return load.waiting if load is not None else None

    def cache_hits(self, model: str) -> float | None:
        """Share of this call's prompt tokens that its prefix cache had; None if unknown."""
        last, first = self._last.get(model), self._first.get(model)
        if last is None or first is None:
            return None
        now = (last.prefix_queries, last.prefix_hits)
        then = (first.prefix_queries, first.prefix_hits)
        if None in now or None in then:
            return None
        queries, hits = ((b or 0) - (a or 0) for a, b in zip(then, now, strict=True))
        return hits / queries if queries > 0 and 0 <= hits <= queries else None
