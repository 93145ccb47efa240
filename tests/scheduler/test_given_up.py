"""A model whose servers can't be used: its requests fail for now, by what made it so."""

from typing import Any

from orchestrator.records import Failure
from orchestrator.scheduler.core import Retried
from tests.core.fakes import BAD
from tests.scheduler.test_core import core, request


def test_a_connection_that_hangs_is_a_sign_about_the_model_not_an_attempt():
    c = core(dead_after_s=30.0)
    c.submit(request(), 0.0)
    slow = Failure("timeout", "no reply")
    (end,) = c.not_connected(c.take("m", 0.0), slow, 0.0)
    assert isinstance(end, Retried)
    assert c.models["m"].down_since is not None
    (end,) = c.not_connected(c.take("m", 40.0), slow, 40.0)
    assert end.outcome.cause == "dead_server"


def test_a_server_that_is_too_slow_for_all_is_told_by_that():
    c = core(max_attempts=1)
    ends: list[Any] = []
    for position in range(30):
        c.submit(request(position=position), 0.0)
    while (taken := c.take("m", 60.0 * len(ends))) is not None:
        ends += c.done(taken, Failure("timeout", "no reply"), 60.0 * len(ends))
    assert c.models["m"].dead is not None
    assert {end.outcome.cause for end in ends} == {"timeout"}


def test_a_server_that_is_wrong_for_the_model_ends_it_without_an_outcome_to_keep():
    c = core()
    for position in range(2):
        c.submit(request(position=position), 0.0)
    ends = c.not_connected(c.take("m", 0.0), BAD, 0.0)
    assert [end.outcome.cause for end in ends] == [BAD.cause] * 2
    assert not any(end.outcome.permanent for end in ends)


def test_what_was_in_flight_when_a_model_was_given_up_fails_for_now_only():
    c = core()
    c.submit(request(), 0.0)
    taken = c.take("m", 0.0)
    assert c.kill("m", BAD) == []
    (end,) = c.done(taken, BAD, 1.0)
    assert (end.outcome.cause, end.outcome.permanent) == (BAD.cause, False)
