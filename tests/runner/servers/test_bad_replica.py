"""A bad server of a model, in every way and at every time: what it costs, on a faked clock.

The whole way from the scheduler to the servers is real; only the servers and the time are not.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest

from orchestrator.ask import GenerateAsk, Request
from orchestrator.records import Failure, Generation, Message, Sampling
from orchestrator.runner.servers.replicas import Listener, Replicas
from orchestrator.scheduler.core import Core, Limits
from orchestrator.scheduler.loop import Scheduler
from orchestrator.scheduler.ready import Admission
from orchestrator.wire.failures import classify
from orchestrator.wire.parsing import no_logprobs
from tests.answering import Answering
from tests.crossed import crossed

pytestmark = pytest.mark.looptime

ASK = GenerateAsk("m", (Message("user", "x"),), Sampling())
HANG = Failure("hang", "")
STATUSES = (302, 400, 401, 402, 403, 404, 408, 413, 422, 424, 429, 500, 501, 502, 503, 504, 529)
KINDS = {str(status): classify(status, b"{}", {}) for status in STATUSES} | {
    "NaN": no_logprobs("NaN"),
    "wrong shape": Failure("unparseable", "no choices", permanent=True, status=200),
    "429, wait": classify(429, b"{}", {"retry-after": "4"}),
    "malformed": Failure("unparseable", "no JSON", status=200),
    "late": Failure("timeout", "no reply within 1 s"),
    "breaks": Failure("connection", "the connection broke"),
    "refuses": Failure("refused", "nobody listens"),
    "hangs": HANG,
}
# Seconds from and until which the last server is bad.
NEVER = 1e9
TIMES = {
    "first": (0.0, NEVER),
    "mid-run": (10.0, NEVER),
    "heals": (0.0, 40.0),
    "hiccup": (10.0, 12),
}
LATENCY_S = 1.0
EACH = 4
SILENT_S = 30.0


@dataclass
class Server(Answering):
    """Answers after a second, or fails at once while it is bad."""

    log: "Log"
    failure: Failure | None = None
    bad: tuple[float, float] = (NEVER, NEVER)
    at: list[float] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)

    def fault(self):
        now = asyncio.get_running_loop().time() - self.log.since
        return self.failure if self.bad[0] <= now < self.bad[1] else None

    async def generate(self, ask, seed):
        self.at.append(asyncio.get_running_loop().time() - self.log.since)
        self.log.sent(seed)
        fault = self.fault()
        if fault is HANG:
            await asyncio.sleep(600.0)
            return KINDS["late"]
        if fault is not None:
            await asyncio.sleep(0.01)
            return fault
        await asyncio.sleep(LATENCY_S)
        self.answered_at.append(asyncio.get_running_loop().time() - self.log.since)
        return Generation("x", "stop")

    async def load(self):
        return None

    async def close(self):
        pass


class Log:
    """Hears of all ends, and counts what is sent."""

    def __init__(self):
        self.since = asyncio.get_running_loop().time()
        self.outcomes = {}
        self.n_sent: Counter[int] = Counter()
        self.sent_after: Counter[int] = Counter()
        self.n_left = 0
        self.end = lambda: None

    def sent(self, which):
        self.n_sent[which] += 1
        self.sent_after[which] += isinstance(self.outcomes.get(which), Generation)

    def settled(self, request, outcome, latency_s):
        assert request.seed not in self.outcomes
        self.outcomes[request.seed] = outcome
        self.n_left -= 1
        if not self.n_left:
            self.end()

    def retried(self, request, failure, wait_s):
        pass

    def may_send(self, request):
        return Admission.SEND

    def attempted(self, request):
        pass

    @property
    def failures(self):
        return [one for one in self.outcomes.values() if isinstance(one, Failure)]


async def run(servers, log, n, **limits):
    """All requests to all servers; the seconds that it took."""
    hosts = asyncio.TaskGroup()
    made = []

    async def connect(number):
        fault = servers[number].fault()
        return fault if fault is KINDS["refuses"] else servers[number]

    def errand(call):
        made.append(hosts.create_task(call()))

    async def connect_all(model):
        if len(servers) == 1:
            return await connect(0)
        nobody = [None] * len(servers)
        several = Replicas("m", nobody, errand, connect, Listener(), silent_after_s=SILENT_S)
        failure = await several.begin(1)
        return several if failure is None else failure

    core = Core({"m": Limits(EACH * len(servers), **limits)})
    scheduler = Scheduler(core, connect_all, log)
    log.end = scheduler.stop
    log.n_left = n

    def start():
        for which in range(n):
            item, group = f"i{which // 4}", which // 4
            ask = GenerateAsk("m", (Message("user", str(which)),), Sampling(), item_key=item)
            scheduler.submit(Request(str(which).encode(), ask, which, which, group=group))

    async with hosts:
        await scheduler.run(start)
        for task in made:
            task.cancel()
    return asyncio.get_running_loop().time() - log.since


@pytest.mark.parametrize(("kind", "when", "n_servers"), crossed(KINDS, TIMES, (2, 3)))
async def test_one_bad_server_of_several_costs_no_request_and_little_time(kind, when, n_servers):
    log, n = Log(), 240 * n_servers
    good = [Server(log) for _ in range(n_servers - 1)]
    bad = Server(log, KINDS[kind], TIMES[when])
    took_s = await run([*good, bad], log, n)
    assert log.failures == []
    assert len(log.outcomes) == n
    # Nothing that was answered is asked again.
    assert not +log.sent_after
    begins, ends = TIMES[when]
    bad_s = min(ends, took_s) - begins
    while_bad = [at for at in bad.at if begins <= at < ends]
    # What it had when it went bad, those that make it suspect, and a trial now and then.
    n_trials = 6 + bad_s / 30.0
    assert len(while_bad) <= EACH * n_servers + 3 + n_trials, Counter(map(int, while_bad))
    # As long as the healthy ones need, and what it takes to notice a silent one.
    alone_s = n / (EACH * (n_servers - 1)) * LATENCY_S
    assert took_s <= alone_s + (SILENT_S + 10.0 if kind == "hangs" else 6.0)
    if ends < took_s - 35.0:
        # It is taken back, and has its share from then on.
        late = [at for at in bad.answered_at if at > ends + 32.0]
        assert len(late) >= EACH * (took_s - ends - 35.0) * 0.8


@pytest.mark.parametrize("n_servers", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_all_servers_fail_is_stored_only_if_it_is_the_requests_for_good(kind, n_servers):
    log, failure = Log(), KINDS[kind]
    servers = [Server(log, failure, (0.0, NEVER)) for _ in range(n_servers)]
    await run(servers, log, 12, dead_after_s=30.0, max_attempts=2)
    assert len(log.failures) == 12
    # Where nobody is answered, what nothing explains may be the servers'.
    is_own = failure.permanent and failure.scope == "request"
    assert {one.permanent for one in log.failures} == {is_own}
    if is_own:
        assert set(log.n_sent.values()) == {n_servers}


@pytest.mark.parametrize("there", ["from the start", "later"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not KINDS[kind].retriable])
async def test_what_a_bad_server_refuses_while_the_good_one_is_away_is_no_fact(kind, there):
    log = Log()
    away = (0.0, 20.0) if there == "later" else (5.0, 25.0)
    servers = [Server(log, KINDS["refuses"], away), Server(log, KINDS[kind], (0.0, NEVER))]
    await run(servers, log, 120)
    assert log.failures == []


async def test_what_one_request_is_refused_for_is_a_fact_once_all_have_refused_it():
    class Strict(Server):
        async def generate(self, ask, seed):
            if seed % 10:
                return await super().generate(ask, seed)
            self.log.sent(seed)
            return KINDS["400"]

    log = Log()
    servers = [Strict(log) for _ in range(3)]
    await run(servers, log, 120)
    assert len(log.failures) == 12
    assert all(one.permanent for one in log.failures)
    assert set(log.n_sent.values()) == {1, 3}
    # It is nobody's fault, so all three are in use all the time.
    assert min(len(one.answered_at) for one in servers) >= 30


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_refusal_is_kept_for_now_while_a_server_that_might_answer_is_away(is_known):
    class Short(Server):
        async def generate(self, ask, seed):
            if seed != 7:
                return await super().generate(ask, seed)
            self.log.sent(seed)
            return KINDS["400"]

    log = Log()
    servers = [Short(log), Server(log, KINDS["refuses"], (0.0, NEVER))]
    await run(servers, log, 40)
    (failure,) = log.failures
    assert (failure.cause, failure.permanent) == ("bad_request", False)
    assert "1 of 2 servers" in failure.message
    # Asked once: the one that refused it is not asked again.
    assert log.n_sent[7] == 1


# -- one server ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["429", "429, wait", "503", "refuses"])
@pytest.mark.parametrize(("begins", "lasts"), [(0.0, 60.0), (10.0, 60.0), (10.0, 500.0)])
async def test_a_server_that_refuses_all_for_a_while_fails_nothing(kind, begins, lasts):
    if kind == "refuses" and not begins:
        lasts = 25.0  # one that was never there is given up sooner
    log = Log()
    server = Server(log, KINDS[kind], (begins, begins + lasts))
    took_s = await run([server], log, 120)
    assert log.failures == []
    assert took_s <= lasts + 120 / EACH + 12.0
    n_trials = sum(begins <= at < begins + lasts for at in server.at)
    assert n_trials <= EACH + 6 + lasts / 5.0


async def test_a_server_that_was_never_there_is_given_up_within_half_a_minute_or_so():
    log = Log()
    took_s = await run([Server(log, KINDS["refuses"], (0.0, NEVER))], log, 20)
    assert {one.cause for one in log.failures} == {"dead_server"}
    assert took_s <= 36.0


class Narrow(Server):
    """Takes so many requests at a time; fails others at once."""

    most = 2
    n = 0
    most_seen = 0
    n_refused = 0

    async def generate(self, ask, seed):
        self.log.sent(seed)
        if self.n >= self.most:
            self.n_refused += 1
            await asyncio.sleep(0.01)
            return self.failure
        self.n += 1
        try:
            await asyncio.sleep(LATENCY_S)
        finally:
            self.n -= 1
        return Generation("x", "stop")


@pytest.mark.parametrize("kind", ["429", "503", "breaks", "refuses"])
@pytest.mark.parametrize("limit", [24, 64])
async def test_a_server_that_takes_two_requests_at_a_time_gets_two(kind, limit, monkeypatch):
    monkeypatch.setattr("tests.runner.servers.test_bad_replica.EACH", limit)
    log, n = Log(), 120
    server = Narrow(log, KINDS[kind])
    took_s = await run([server], log, n)
    assert log.failures == []
    # The first wave, and a few when it is tried with more.
    assert server.n_refused <= limit + 0.25 * n
    assert took_s <= 1.25 * n / 2 * LATENCY_S
