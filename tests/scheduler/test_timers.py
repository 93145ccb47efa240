"""Requests whose next attempt is due already, on every event loop that a run may have."""

import asyncio
import time

import pytest
import uvloop

from orchestrator.ask import GenerateAsk, Request
from orchestrator.records import Failure, Generation, Message, Sampling
from orchestrator.scheduler.core import Core, Limits
from orchestrator.scheduler.loop import Scheduler
from orchestrator.scheduler.ready import Admission
from tests.answering import Answering

N = 60
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Twice(Answering):
    """A server that fails at the first two attempts of each request."""

    def __init__(self):
        self.attempts: dict[int, int] = {}

    async def generate(self, ask, seed):
        self.attempts[seed] = self.attempts.get(seed, 0) + 1
        await asyncio.sleep(0)
        return Failure("timeout", "late") if self.attempts[seed] < 3 else Generation("x", "stop")

    async def close(self):
        pass


class Busy:
    """Hears of all ends, and holds up the loop, as a slow machine does."""

    def __init__(self):
        self.outcomes = {}
        self.end = lambda: None

    def settled(self, request, outcome, latency_s):
        self.outcomes[request.seed] = outcome
        if len(self.outcomes) == N:
            self.end()

    def retried(self, request, failure, wait_s):
        time.sleep(0.003)

    def may_send(self, request):
        return Admission.SEND

    def attempted(self, request):
        pass

    def left(self, request):
        pass


@pytest.mark.parametrize("wait_s", [0.0, 1e-4, 2e-3])
@pytest.mark.parametrize("loop", LOOPS)
def test_each_request_is_sent_again_when_it_is_due(loop, wait_s, monkeypatch):
    monkeypatch.setattr("orchestrator.scheduler.core.retry_wait_s", lambda *_: wait_s)
    server, ends = Twice(), Busy()

    async def connect(model):
        return server

    async def run():
        scheduler = Scheduler(Core({"m": Limits(8)}), connect, ends)
        ends.end = scheduler.stop

        def start():
            for which in range(N):
                ask = GenerateAsk("m", (Message("user", "x"),), Sampling())
                scheduler.submit(Request(str(which).encode(), ask, which, which))

        await asyncio.wait_for(scheduler.run(start), 60)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())
    assert {type(one) for one in ends.outcomes.values()} == {Generation}
    assert set(server.attempts.values()) == {3}
