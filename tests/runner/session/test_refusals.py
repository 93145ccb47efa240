"""The reply contract of a run: documented refusals x how many items x when, under virtual time.

One oracle for all: whose state a refusal is decides how many requests it costs, what its units say,
and what the next call asks again; other items, and other models, never notice.
"""

import asyncio
import json
import math
from typing import NamedTuple

import pytest

from orchestrator.records import DONE, FAILED, Failure
from orchestrator.report.progress import faults_of
from orchestrator.scheduler.core import Limits
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.failures import classify
from tests.answering import Answering
from tests.core.fakes import REFUSED, generation
from tests.crossed import crossed
from tests.runner.session.test_session import MemoryStore, make

pytestmark = pytest.mark.looptime

N_ITEMS = 60
IN_FLIGHT = 8
# What it may cost to find out that nobody is answered: what was in flight, the four in a row that
# begin the doubt, and four trials.
MOST_SENT = IN_FLIGHT + 8


class Said(NamedTuple):
    """A refusal as a provider documents it, whose state it is, and its cause."""

    status: int
    message: str
    whose: str
    cause: str


SAID = [
    Said(400, "the messages are odd", "unexplained", "bad_request"),
    Said(400, "maximum context length is 8 tokens", "request", "too_long"),
    Said(403, "your input was flagged for violence", "request", "moderation"),
    Said(413, "", "request", "too_long"),
    Said(422, "field required", "unexplained", "bad_request"),
    Said(429, "slow down", "moment", "rate_limited"),
    Said(500, "oops", "moment", "server_error"),
    Said(503, "overloaded", "moment", "server_error"),
    Said(401, "Invalid API key", "account", "unauthorised"),
    Said(402, "Insufficient Balance", "account", "no_credit"),
    Said(403, "Key limit exceeded (total limit)", "account", "no_credit"),
    Said(429, "You exceeded your current quota (insufficient_quota)", "account", "no_credit"),
    Said(307, "", "account", "redirected"),
    Said(308, "", "account", "redirected"),
    Said(206, "", "unclear", "unparseable"),
    Said(403, "forbidden", "unclear", "unauthorised"),
    Said(403, "not allowed to request logprobs", "unclear", "no_logprobs"),
    Said(200, "no log-probabilities", "unclear", "no_logprobs"),
    Said(404, "Not Found", "unclear", "not_found"),
    Said(422, "body.seed: Extra inputs are not permitted", "unclear", "unsupported"),
    Said(451, "for legal reasons", "unclear", "bad_request"),
    Said(501, "", "unclear", "unsupported"),
]
ITEMS = {
    "one": lambda index: index == 31,
    "many": lambda index: index % 5 == 1,
    "all": lambda index: True,
}
# An ordinary answer without what was asked for beside it.
BARE = {"choices": [{"message": {"content": "an answer"}, "finish_reason": "stop"}]}
MOMENT_S = 8.0
WHEN = ("first contact", "mid-run", "reconnect")


class Record(MemoryStore):
    """Keeps the cause of each unit that failed."""

    def __init__(self):
        super().__init__()
        self.causes = {}

    def put_unit(self, unit_hash, plan_id, position, status, frame, rows, *, cause=""):
        super().put_unit(unit_hash, plan_id, position, status, frame, rows)
        self.causes[position] = cause


class Provider(Answering):
    """Refuses some items from some time on, until it is mended; or is away for a while before."""

    def __init__(self, said, refused, when):
        body = json.dumps(BARE if said.status == 200 else {"error": {"message": said.message}})
        self.failure = (
            replies.generation(body.encode(), Reading())
            if said.status == 200
            else classify(said.status, body.encode(), {})
        )
        self.refused = refused
        self.when = when
        self.lasts_s = MOMENT_S if said.whose == "moment" else math.inf
        self.began = math.inf
        self.asked = []
        self.n_calls = 0
        self.n_answered = 0

    async def generate(self, ask, seed):
        index = int(ask.messages[0].content.removeprefix("question "))
        n, self.n_calls = self.n_calls, self.n_calls + 1
        await asyncio.sleep(0.1 + 0.01 * (index % 3))
        if self.when == "reconnect" and n in range(20, 30):
            return REFUSED
        self.asked.append(index)
        if self.refused(index) and (self.when == "first contact" or n >= 16):
            now = asyncio.get_running_loop().time()
            self.began = min(self.began, now)
            if now < self.began + self.lasts_s:
                return self.failure
        self.n_answered += 1
        return generation(f"{ask.model} {index}")

    async def close(self):
        pass


def call(store, servers):
    """One call of the command, and the requests of the model under test that it sent."""
    limits = Limits(max_in_flight=IN_FLIGHT, dead_after_s=30.0)
    plan, parts, session = make(servers, n_items=N_ITEMS, store=store, limits=limits)
    for position, (status, _) in store.units.items():
        parts.done[position] = status in {DONE, FAILED}
    return plan, session


def causes(store, plan, model):
    """The cause of each unit of a model that failed, and "" of each that did not, by its item."""
    units = {position: plan.work(position).unit for position in store.causes}
    return {
        unit.item.key: store.causes[position]
        for position, unit in units.items()
        if unit.models == (model,)
    }


@pytest.mark.parametrize(
    ("said", "items", "when"),
    crossed(SAID, ITEMS, WHEN),
    ids=lambda one: f"{one.status} {one.cause}" if isinstance(one, Said) else one,
)
async def test_a_refusal_costs_only_whose_state_it_is(said, items, when):
    store = Record()
    provider, other = Provider(said, ITEMS[items], when), Provider(said, lambda _: False, "")
    plan, session = call(store, {"a": provider, "b": other})
    await session.run()

    met = {f"i{index}" for index in provider.asked if ITEMS[items](index)}
    failed = {key: cause for key, cause in causes(store, plan, "a").items() if cause}
    assert set(causes(store, plan, "b").values()) == {""}
    assert len(other.asked) == N_ITEMS
    assert not any(
        isinstance(found, Failure) and not found.permanent for found in store.outcomes.values()
    )
    assert set(failed.values()) <= {said.cause}
    n_sent, n_good = len(provider.asked), provider.n_answered
    n_kept = sum(isinstance(found, Failure) for found in store.outcomes.values())
    is_doubtful = said.whose in {"unclear", "unexplained"}
    gives_up = said.whose == "account" or (is_doubtful and items == "all")
    # What nothing explains is the request's once others are answered.
    is_kept = said.whose == "request" or (said.whose == "unexplained" and not gives_up)
    if gives_up:
        assert failed
        assert n_sent <= n_good + MOST_SENT
    elif said.whose == "moment":
        assert set(failed) <= (met if said.status == 500 else set())
        # Trials are one at a time; a server's own error is tried as often as any request is.
        assert n_sent <= n_good + 3 * len(met) + IN_FLIGHT + MOMENT_S / 0.1
    else:
        assert set(failed) <= met
        assert n_sent == N_ITEMS
    assert n_kept == (len(failed) if is_kept else 0)
    told = next(one for one in session.progress({}).models if one.name == "a")
    assert (told.done, told.failed) == (n_good, N_ITEMS - n_good)

    mended = Provider(said, lambda _: False, "")
    plan, session = call(store, {"a": mended, "b": Provider(said, lambda _: False, "")})
    await session.run()
    assert len(mended.asked) == (0 if is_kept else N_ITEMS - n_good)
    left = {key for key, cause in causes(store, plan, "a").items() if cause}
    assert left == (set(failed) if is_kept else set())


async def test_a_model_that_was_given_up_says_why_in_the_end():
    said = next(one for one in SAID if one.cause == "no_credit")
    refused = {name: Provider(said, lambda _: True, "first contact") for name in ("a", "b")}
    _, session = call(Record(), {**refused, "c": Provider(said, lambda _: False, "")})
    await session.run()
    (fault,) = faults_of(session.progress({}))
    assert fault.startswith("a, b cannot be used: HTTP 402: Insufficient Balance")
