"""The boundary around back-ends: a fault in a decoder costs one request."""

import pytest

from orchestrator.backend import RAISE_FAULTS, answered
from orchestrator.errors import UsageError
from orchestrator.records import Failure


async def raising(error: Exception) -> str:
    raise error


async def test_an_answer_is_itself() -> None:
    async def found() -> str:
        return "yes"

    assert await answered(found()) == "yes"


@pytest.mark.parametrize("error", [OverflowError("said"), AttributeError("said"), MemoryError()])
async def test_a_fault_is_a_transient_failure_that_says_where_and_nothing_of_a_reply(
    error, monkeypatch, caplog
) -> None:
    monkeypatch.delenv(RAISE_FAULTS)
    failure = await answered(raising(error))
    assert isinstance(failure, Failure)
    assert (failure.cause, failure.permanent) == ("unparseable", False)
    assert f"{type(error).__name__} in test_answered.py:" in failure.message
    assert "said" not in failure.message
    assert "please report" in caplog.text


async def test_faults_are_raised_where_tests_run() -> None:
    with pytest.raises(OverflowError):
        await answered(raising(OverflowError()))


async def test_errors_on_purpose_are_raised_everywhere(monkeypatch) -> None:
    monkeypatch.delenv(RAISE_FAULTS)
    with pytest.raises(UsageError):
        await answered(raising(UsageError("no")))
