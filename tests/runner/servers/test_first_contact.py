"""The first contact with a server: what is a fact of it, what of the moment, and what is kept."""

from typing import Any

import msgspec
import pytest
from aiohttp import web

from backends import openai
from orchestrator.ask import Ask
from orchestrator.backend import Endpoint, Provenance
from orchestrator.errors import UsageError
from orchestrator.probing.abilities import Need
from orchestrator.probing.record import BAD, NO, Finding, ProbeRecord
from orchestrator.recipe.schema import Limits, ModelEntry, ModelSpec
from orchestrator.records import Message, labels
from orchestrator.runner.models import asking
from orchestrator.runner.models.asking import Target
from orchestrator.runner.models.records import Probes, probe_record
from orchestrator.store import Store
from tests import apps
from tests.crossed import crossed

TEXT = [" The", " sea", " has", " sand"]
LETTERS = Ask().choose("m", (Message("user", "A or B?"),), labels("A", "B"))
NEEDS = {"m": [("judging", Need("generate")), ("judging", Need("choose", examples=(LETTERS,)))]}
LABEL = "m"


def spec_of(name: str, url: str) -> ModelSpec:
    absent: dict[str, Any] = dict.fromkeys(("server", "weights", "backend_config", "price"))
    return ModelSpec(
        name=name,
        base_url=url,
        backend="openai",
        model=name,
        entry=ModelEntry(),
        limits=Limits(),
        **absent,
    )


class Script:
    """A chat endpoint that answers its first requests as it is told, and then well."""

    def __init__(self) -> None:
        self.faults: list[Any] = []
        self.lasting = ""
        self.n_asked = 0

    async def chat(self, request):
        body = await request.json()
        self.n_asked += 1
        fault = self.faults.pop(0) if self.faults else None
        if self.lasting and body.get("logprobs"):
            fault = (500, self.lasting)
        if fault == "cut":
            request.transport.close()
            raise ConnectionResetError
        if fault == "garbled":
            return web.Response(body=b'{"choices": [{"mess')
        if fault is not None:
            status, message = fault
            return web.json_response({"error": {"message": message}}, status=status)
        tokens = ["A"] if body["messages"][-1]["content"] == "A or B?" else TEXT
        tokens = tokens[: body.get("max_tokens", 8)]
        top = min(body.get("top_logprobs") or 0, 20)
        content = [
            {
                "token": token,
                "logprob": -0.5,
                "bytes": list(token.encode()),
                "top_logprobs": [
                    {"token": one, "logprob": -0.5 - n, "bytes": list(one.encode())}
                    for n, one in enumerate([token, "B", *map(str, range(20))])
                ][:top],
            }
            for token in tokens
        ]
        choice = {
            "index": 0,
            "finish_reason": "length",
            "message": {"role": "assistant", "content": "".join(tokens)},
            "logprobs": {"content": content},
        }
        return web.json_response(
            {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": len(tokens)}}
        )


class Meeting:
    """Meets a server as a call of the command does; each call has probes of its own."""

    def __init__(self, script: Script, store: Store, url: str) -> None:
        self.script = script
        self.store = store
        self.url = url

    @property
    def kept(self) -> ProbeRecord | None:
        return probe_record(self.store, LABEL)

    async def __call__(self, probes: Probes | None = None) -> Probes:
        probes = probes or Probes(self.store, NEEDS)
        endpoint = Endpoint(base_url=self.url, model="m")
        backend = openai.Kind(openai.Config()).connect(endpoint)
        found = Target(
            kind="openai",
            endpoint=endpoint,
            backend=backend,
            provenance=Provenance(backend="openai", base_url=self.url, model="m"),
        )
        try:
            await probes.check(spec_of("m", self.url), LABEL, found)
        finally:
            await backend.close()
        return probes


@pytest.fixture
async def meet(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "_WAITS_S", (0.0, 0.0, 0.0))
    script = Script()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", script.chat)
    async with apps.running(app) as url:
        with Store.open(tmp_path / "store.sqlite") as store:
            yield Meeting(script, store, url)


def values(record: ProbeRecord | None) -> dict[str, str]:
    return {} if record is None else {one.name: one.value for one in record.findings}


@pytest.mark.parametrize(
    ("fault", "n"),
    crossed(
        [(503, "busy"), (429, "slow down"), (500, "oops"), (408, ""), "cut", "garbled"],
        [1, 3, 4, 40],
    ),
)
async def test_a_hiccup_at_the_first_contact_is_no_fact_of_the_server(meet, fault, n):
    meet.script.faults = [fault] * n
    await meet()
    kept = meet.kept
    assert kept is None or not [one for one in kept.findings if one.state == BAD]
    meet.script.faults = []
    probes = await meet()
    assert values(probes.records["m"])["chat"] == "yes"
    assert values(meet.kept)["generate"] == "yes"


async def test_an_error_that_lasts_takes_no_more_requests_than_answers(meet, tmp_path):
    meet.script.lasting = "log-probabilities crash this server"
    await meet()
    n_failed, meet.script.n_asked = meet.script.n_asked, 0
    meet.script.lasting = ""
    with Store.open(tmp_path / "another.sqlite") as store:
        await Meeting(meet.script, store, meet.url)()
    assert 0 < n_failed <= meet.script.n_asked


@pytest.mark.parametrize(
    "odd", [[(400, "cannot do that")], [(401, "no key")], [(308, ""), (503, "")]]
)
async def test_one_odd_refusal_is_no_fact(meet, odd):
    meet.script.faults = odd
    probes = await meet()
    assert probes.records["m"].find("generate").value == "yes"


@pytest.mark.parametrize(
    "refusal",
    [
        (400, "no chats here"),
        (403, "You are not allowed to request logprobs from this model."),
        (404, "no such model"),
        (422, "body.seed: Extra inputs are not permitted"),
        (401, "wrong key"),
        (402, "Insufficient Balance"),
        (308, ""),
    ],
)
async def test_a_refusal_takes_few_requests_and_is_asked_again_by_the_next_call(meet, refusal):
    meet.script.faults = [refusal] * 1000
    with pytest.raises(UsageError, match=refusal[1].split(" (")[0] or "308"):
        await meet()
    assert meet.script.n_asked <= 10
    assert meet.kept is None
    meet.script.faults = []
    await meet()
    assert values(meet.kept)["chat"] == "yes"


async def test_what_was_refused_before_and_no_longer_is_makes_no_other_server(meet):
    probes = await meet()
    whole = probes.records["m"]
    refused = [Finding(one.name, NO, BAD) if one.name == "chat" else one for one in whole.findings]
    old = msgspec.structs.replace(whole, findings=tuple(refused))
    meet.store.set_meta(f"probe {LABEL}", msgspec.json.encode(old).decode())
    probes = await meet()
    assert values(probes.records["m"])["chat"] == "yes"


@pytest.mark.parametrize(
    "refusal", [(401, "key"), (402, "no money"), (403, "forbidden"), (503, "")]
)
async def test_a_server_that_has_answered_in_this_call_is_not_refused_for_its_account(
    meet, refusal
):
    probes = await meet()
    meet.script.faults = [refusal] * 1000
    await meet(probes)
    assert "m" in probes.postponed


async def test_what_no_method_asks_of_a_server_is_no_warning(meet, caplog):
    await meet()
    assert values(meet.kept)["score"] == "no"
    assert "can't score" not in caplog.text
    scoring = {"m": [*NEEDS["m"], ("scoring", Need("score"))]}
    with pytest.raises(UsageError, match="scoring: score by 'm'"):
        await meet(Probes(meet.store, scoring))


async def test_what_a_server_showed_for_a_request_is_not_asked_again(meet):
    await meet()
    asked = []
    for needs in (NEEDS, {"m": [("judging", Need("generate"))]}):
        before = meet.script.n_asked
        await meet(Probes(meet.store, needs))
        asked.append(meet.script.n_asked - before)
    assert asked[0] == asked[1]
