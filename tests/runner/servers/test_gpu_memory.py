import sys
from types import SimpleNamespace

import pytest

from orchestrator.placement import GIB
from orchestrator.runner.servers.machine import find_gpus, free_gpu_bytes, wait_until_given_back


class Driver:
    """Says what is free, one reading after the other, the last for ever."""

    def __init__(self, *gib):
        self.readings = [None if n is None else int(n * GIB) for n in gib]
        self.n_read = 0

    def __call__(self):
        self.n_read += 1
        return self.readings[min(self.n_read, len(self.readings)) - 1]


async def waited(*gib, most_s=1.0):
    driver = Driver(*gib)
    await wait_until_given_back(driver, 0.001, most_s)
    return driver.n_read


async def test_without_a_gpu_nobody_waits():
    assert await waited(None) == 1


async def test_it_waits_while_memory_comes_back_and_until_it_is_steady():
    assert await waited(10, 20, 40, 70, 70, 70) == 6


async def test_memory_that_was_back_already_takes_two_looks():
    assert await waited(70, 70, 70, 70) == 3


async def test_what_others_take_meanwhile_is_no_return():
    assert await waited(70, 69.99, 60, 60) == 3


async def test_memory_that_goes_up_and_up_is_not_waited_for_for_ever():
    assert await waited(*range(1, 500), most_s=0.01) == 11


async def test_gpus_that_go_away_end_the_wait():
    assert await waited(10, None) == 2


class NvmlError(Exception):
    """Of the driver."""


class Nvml:
    """NVIDIA's library for some GPUs with so much free; the call named `failing` fails."""

    NVMLError = NvmlError

    def __init__(self, *free, failing=""):
        self.free = free
        self.failing = failing
        self.called = []

    def __getattr__(self, name):
        def call(handle=None):
            self.called.append(name)
            if name == self.failing:
                raise NvmlError(name)
            return {
                "nvmlDeviceGetCount": len(self.free),
                "nvmlDeviceGetHandleByIndex": handle,
                "nvmlDeviceGetMemoryInfo": handle is not None
                and SimpleNamespace(total=80 * GIB, free=self.free[handle]),
                "nvmlDeviceGetName": f"gpu {handle}",
                "nvmlDeviceGetUUID": f"GPU-{handle}",
            }.get(name)

        return call


@pytest.mark.parametrize("free", [(), (7,), (7, 0, 5)])
def test_gpus_are_counted_with_what_each_has_free(monkeypatch, free):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(*free))
    assert [(name, gpu.index, gpu.free) for name, gpu in find_gpus()] == [
        (f"GPU-{n}", str(n), bytes_) for n, bytes_ in enumerate(free)
    ]
    assert free_gpu_bytes() == (sum(free) if free else None)


def test_a_driver_that_fails_at_any_call_has_no_gpus_and_is_left(monkeypatch):
    whole = Nvml(7, 5)
    monkeypatch.setitem(sys.modules, "pynvml", whole)
    find_gpus()
    for name in {*whole.called} - {"nvmlShutdown"}:
        failing = Nvml(7, 5, failing=name)
        monkeypatch.setitem(sys.modules, "pynvml", failing)
        assert (find_gpus(), free_gpu_bytes()) == ([], None)
        is_begun = name != "nvmlInit"
        assert failing.called.count("nvmlShutdown") == 2 * is_begun
