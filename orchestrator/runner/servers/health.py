"""Launched servers that hang: they run and have requests, and do not even say what they are.

That no request ends says little, since one may take minutes; but who is asked what it is answers
beside its work. Servers that crash need no such look: their connections break.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

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

    Args:
        end: Ends it; whoever asks for it next starts it again.
        is_quiet: Whether it has requests and has ended none for long.
        answers: Asks it what it is.
    """
    n_missed = 0
    while True:
        if not n_missed:
            await asyncio.sleep(_EVERY_S)
        is_well = not is_quiet() or await _in_time(answers)
        n_missed = 0 if is_well else n_missed + 1
        if n_missed >= _MISSES:
            n_missed = 0
            await end()


async def _in_time(answers: Callable[[], Awaitable[bool]]) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await answers()
    except TimeoutError:
        return False
