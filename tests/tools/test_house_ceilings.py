"""No measure of the house rises, and its ceiling follows each that falls."""

import gc

import pytest

from tools.house_measures import CEILINGS, ROOT, above, run_measures, tracked, wheel_measures


@pytest.fixture(scope="module")
def wheel():
    gc.disable()  # A million syntax nodes in memory, none of them in a circle.
    try:
        yield wheel_measures(tracked(ROOT))
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def run():
    return run_measures(ROOT)


def test_the_wheel_stays_below_its_ceilings(wheel):
    assert above(wheel) == []


def test_the_way_of_a_run_stays_below_its_ceilings(run):
    assert above(run) == []


def test_each_ceiling_is_of_a_measure(wheel, run):
    assert CEILINGS.keys() <= wheel.keys() | run.keys()
