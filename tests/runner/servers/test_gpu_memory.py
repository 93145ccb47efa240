from orchestrator.placement import GIB
from orchestrator.runner.servers.machine import wait_until_given_back


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
