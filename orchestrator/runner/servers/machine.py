"""Resources of this machine: GPUs and their memory, by NVML; open files for this process."""

import asyncio
import logging
import os
import resource
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from orchestrator.disk.files import few_files
from orchestrator.placement import GIB, Gpu, Inventory
from orchestrator.recipe.schema import Resources

_log = logging.getLogger(__name__)

# One for each request in flight, and some hundreds beside them.
_OPEN_FILES = 65_536
# Fewer do not even hold what a usual run has in flight.
_FEW_FILES = 256


def raise_file_limit() -> None:
    """Let this process open as many files as it may: each request in flight takes one.

    The usual limit of 1,024 is there for programs that call `select`, which this one does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        # macOS allows fewer than it says.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < _FEW_FILES:
        _log.warning("%s; a run takes some dozens, and one for each request in flight", few_files())


def inventory(resources: Resources) -> Inventory:
    """The GPUs of this machine, or those that the recipe says."""
    if resources.gpus is not None:
        sizes = [int(size * GIB) for size in resources.gpus]
        made = tuple(Gpu(str(n), "as the recipe says", size, size) for n, size in enumerate(sizes))
        return Inventory(made, resources.max_servers)
    gpus = visible(find_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    return Inventory(gpus, resources.max_servers)


def visible(gpus: Iterable[tuple[str, Gpu]], names: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA would show.

    `names` is `CUDA_VISIBLE_DEVICES`: numbers or identifiers, of which all after an unknown one
    count for nothing; None for all.
    """
    found = list(gpus)
    if names is None:
        return tuple(gpu for _, gpu in found)
    shown: list[Gpu] = []
    for name in map(str.strip, names.split(",")):
        match = [
            gpu for uuid, gpu in found if gpu.index == name or (name and uuid.startswith(name))
        ]
        if len(match) != 1:
            break
        # Under the name that the user gave, so that a server can be told by it.
        shown.append(Gpu(name, match[0].name, match[0].total, match[0].free))
    return tuple(shown)


def find_gpus() -> list[tuple[str, Gpu]]:
    """All GPUs with their unique identifiers; empty without a driver or without `nvidia-ml-py`."""
    try:
        import pynvml  # noqa: PLC0415 (an extra)
    except ImportError:
        if shutil.which("nvidia-smi"):
            _log.warning(
                "cannot detect GPUs because nvidia-ml-py is not installed; install the extra [gpu]"
            )
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log.debug("no GPU: %s", error)
        return []
    found = []
    try:
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            name, identifier = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
            gpu = Gpu(str(number), str(name), int(memory.total), int(memory.free))
            found.append((str(identifier), gpu))
    except pynvml.NVMLError as error:
        _log.warning("cannot query the GPUs: %s", error)
        return []
    else:
        return found
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


# Waiting until the GPU memory of a server that ended has come back.
#
# A driver gives memory back a moment after the process is gone; a server that starts in that moment
# finds too little of it and ends ("Free memory on device is less than desired").


# Other processes take and give some of their own meanwhile.
_STEADY: Final = GIB // 16
_TIMES: Final = 2


def free_gpu_bytes() -> int | None:
    """Free memory of all GPUs together; None where there is none."""
    gpus = find_gpus()
    return sum(gpu.free for _, gpu in gpus) if gpus else None


async def wait_until_given_back(
    free: Callable[[], int | None] = free_gpu_bytes, look_s: float = 0.25, most_s: float = 15.0
) -> None:
    """Until free memory no longer rises, or `most_s` have passed; at once without a GPU.

    `free` may take a while, and is called in a thread; every `look_s` seconds.
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
