"""Faults of a method: the unit fails with its cause, and the others go on."""

import msgspec
import pytest

from orchestrator.driver import Driver
from orchestrator.records import FAULTY
from orchestrator.units import Plan
from tests.core.fakes import BAD, contract, plan
from tests.core.test_driver import make, one


@pytest.mark.parametrize("returned", [None, [None], "i0"])
def test_a_method_that_returns_no_rows_is_at_fault(returned):
    async def forgetful(unit, ask, config):
        return returned

    driver = make(forgetful)
    driver.open(0)
    (end,) = driver.finished
    assert end.status == FAULTY
    assert "not a row or a list of rows" in end.fault.said


@pytest.mark.parametrize(
    ("identify", "words"),
    [
        (lambda self, unit: {"itm": unit.item.key}, "did you mean 'item'?"),
        (lambda self, unit: {"item": unit.no_such_part}, "no_such_part"),
        (lambda self, unit: None, "identify() returned NoneType"),
    ],
)
def test_wrong_columns_of_a_failed_unit_are_the_method_s_fault(identify, words):
    p = plan(one)
    wrong = msgspec.structs.replace(p.parts[0], rows=contract(identify=identify))
    driver = Driver(Plan([wrong], p.items, p.identities, 0), lambda key: None, {})
    driver.open(0)
    driver.deliver(driver.outbox.popleft(), BAD)
    (end,) = driver.finished
    assert end.status == FAULTY
    assert end.fault is not None
    assert words in end.fault.said
    assert words in end.rows[0]["message"]
    assert end.rows[0]["cause"] == "method"


def test_a_misspelt_column_is_the_method_s_fault():
    async def misspelt(unit, ask, config):
        return [{"valeu": "x", "status": "ok"}]

    driver = make(misspelt)
    driver.open(1)
    (end,) = driver.finished
    assert end.status == FAULTY
    (failed,) = end.rows
    assert failed["cause"] == "method"
    assert "method 'fake': a row has 'valeu'" in failed["message"]
    assert "did you mean 'value'?" in failed["message"]
    assert "item 'i1', models m" in failed["message"]
