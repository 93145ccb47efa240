"""Waiting until the GPU memory of a server that ended has come back.

A driver gives memory back a moment after the process is gone; a server that starts in that moment
finds too little of it and ends ("Free memory on device is less than desired").
"""

import asyncio
from collections.abc import Callable
from typing import Final

from orchestrator.placement import GIB
from orchestrator.runner.servers.machine import find_gpus

_LOOK_S: Final = 0.25
_MOST_S: Final = 15.0
# Other processes take and give some of their own meanwhile.
_STEADY: Final = GIB // 16
_TIMES: Final = 2


def free_gpu_bytes() -> int | None:
    """Free memory of all GPUs together; None where there is none."""
    gpus = find_gpus()
    return sum(gpu.free for _, gpu in gpus) if gpus else None


async def wait_until_given_back(
    free: Callable[[], int | None] = free_gpu_bytes,
    look_s: float = _LOOK_S,
    most_s: float = _MOST_S,
) -> None:
    """Until free memory no longer rises, or `most_s` have passed; at once without a GPU.

    Args:
        free: Bytes that are free now; may take a while, and is called in a thread.
        look_s: Between two looks.
        most_s: To wait at most.
    """
    before = await asyncio.to_thread(free)
    if before is None:
        return
    n_steady = 0
    for _ in range(int(most_s / look_s)):
        await asyncio.sleep(look_s)
        now = await asyncio.to_thread(free)
        if now is None:
            return
        n_steady = n_steady + 1 if now - before < _STEADY else 0
        if n_steady == _TIMES:
            return
        before = now
