"""The first contact with a server: what is a fact of it, what of the moment, and what is kept."""

import contextlib

import aiohttp
import pytest
from aiohttp import web

from backends import openai
from orchestrator.ask import Ask
from orchestrator.backend import Endpoint, Provenance
from orchestrator.errors import UsageError
from orchestrator.probing.record import BAD, NO
from orchestrator.probing.verdicts import Need
from orchestrator.recipe.schema import Limits, ModelSpec
from orchestrator.records import Message, labels
from orchestrator.runner.probing import probe
from orchestrator.runner.probing.records import Connected, Probes, probe_record
from orchestrator.store import Store

TEXT = [" The", " sea", " has", " sand"]
LETTERS = Ask().choose("m", (Message("user", "A or B?"),), labels("A", "B"))
NEEDS = {"m": [("judging", Need("generate")), ("judging", Need("choose", examples=(LETTERS,)))]}
LABEL = "m"


def spec_of(name, url):
    absent = dict.fromkeys(
        ("server", "weights", "backend_config", "api_key_env", "system", "price")
    )
    return ModelSpec(
        name=name, base_url=url, backend="openai", model=name, limits=Limits(), **absent
    )


class Script:
    """A chat endpoint that answers its first requests as it is told, and then well."""

    def __init__(self) -> None:
        self.faults: list[object] = []
        self.n_asked = 0

    async def chat(self, request):
        body = await request.json()
        self.n_asked += 1
        fault = self.faults.pop(0) if self.faults else None
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


@pytest.fixture
async def meet(tmp_path, monkeypatch):
    """Meets a server as a call of the command does; each call has probes of its own."""
    monkeypatch.setattr(probe, "_WAITS_S", (0.0, 0.0, 0.0))
    script = Script()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", script.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    with Store.open(tmp_path / "store.sqlite") as store:

        async def meet_once(probes=None):
            probes = probes or Probes(store, NEEDS)
            endpoint = Endpoint(base_url=url, model="m")
            spec = spec_of("m", url)
            backend = openai.OpenaiKind(openai.Config()).connect(endpoint)
            try:
                await probes.check(
                    Connected(
                        spec=spec,
                        kind="openai",
                        endpoint=endpoint,
                        backend=backend,
                        provenance=Provenance(backend="openai", base_url=url, model="m"),
                        label=LABEL,
                    )
                )
            finally:
                await backend.close()
            return probes

        meet_once.script, meet_once.store = script, store
        yield meet_once
    with contextlib.suppress(aiohttp.ClientError):
        await runner.cleanup()


@pytest.mark.parametrize("n", [1, 3, 4, 40])
@pytest.mark.parametrize(
    "fault", [(503, "busy"), (429, "slow down"), (500, "oops"), (408, ""), "cut", "garbled"]
)
async def test_a_hiccup_at_the_first_contact_is_no_fact_of_the_server(meet, fault, n):
    meet.script.faults = [fault] * n
    await meet()
    kept = probe_record(meet.store, LABEL)
    assert kept is None or not [one for one in kept.findings if one.state == BAD]
    meet.script.faults = []
    probes = await meet()
    assert probes.records["m"].find("chat").value == "yes"
    assert probe_record(meet.store, LABEL).find("generate").value == "yes"


async def test_one_odd_refusal_is_no_fact(meet):
    meet.script.faults = [(400, "cannot do that")]
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
    assert probe_record(meet.store, LABEL) is None
    meet.script.faults = []
    await meet()
    assert not [
        one
        for one in probe_record(meet.store, LABEL).findings
        if one.name == "chat" and one.value == NO
    ]


async def test_what_was_refused_before_and_no_longer_is_makes_no_other_server(meet):
    await meet()
    whole = probe_record(meet.store, LABEL)
    refused = [
        probe.Finding(one.name, NO, BAD) if one.name == "chat" else one for one in whole.findings
    ]
    meet.store.set_meta(
        f"probe {LABEL}",
        probe.msgspec.json.encode(
            probe.msgspec.structs.replace(whole, findings=tuple(refused))
        ).decode(),
    )
    probes = await meet()
    assert probes.records["m"].find("chat").value == "yes"


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
