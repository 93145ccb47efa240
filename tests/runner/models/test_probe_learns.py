"""What one question of a probe taught about an endpoint holds for the rest of the probe."""

import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from backends import openai
from orchestrator.backend import Endpoint, Provenance
from orchestrator.runner.models.asking import Target
from orchestrator.runner.models.probe import probe_model
from tests import apps
from tests.backends.test_forms import reply

NO_CHAT = {"error": {"message": "no such route"}}


@asynccontextmanager
async def asked_by_a_probe(refused: tuple[str, ...] = (), place: str = "/v1", **config: Any):
    """The bodies and paths that an endpoint gets of one probe, and its record."""
    sent: list[tuple[str, dict[str, Any]]] = []

    async def answer(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        sent.append((request.path, body))
        if request.path != f"{place}/chat/completions":
            return web.json_response(NO_CHAT, status=404)
        for name in refused:
            if name in body:
                said = f"body.{name}: Extra inputs are not permitted"
                if name == "max_tokens":
                    said = f"Unsupported parameter: '{name}'. Use 'max_completion_tokens' instead."
                return web.json_response({"error": {"message": said}}, status=422)
        body = {**body, "top_logprobs": min(body.get("top_logprobs", 0), 20)}
        return web.json_response(reply(body))

    async with apps.answering(answer, "POST") as address:
        url = f"{address}{place.removesuffix('/v1')}"
        endpoint = Endpoint(base_url=url, model="m")
        backend = openai.Kind(openai.Config(**config)).connect(endpoint)
        said = Provenance(backend="openai", base_url=url, model="m")
        target = Target(kind="openai", endpoint=endpoint, backend=backend, provenance=said)
        try:
            yield sent, await probe_model(target)
        finally:
            await backend.close()


@pytest.mark.parametrize("place", ["/v1", "/api/v3"])
@pytest.mark.parametrize(
    "refused",
    [
        ("seed",),
        ("return_token_ids",),
        ("max_tokens",),
        ("seed", "return_token_ids", "return_tokens_as_token_ids", "max_tokens"),
    ],
)
async def test_a_refusal_is_met_a_few_times_in_a_probe_and_not_by_each_question(refused, place):
    async with asked_by_a_probe() as (plain, _):
        n_plain = len(plain)
    async with asked_by_a_probe(refused, place) as (sent, record):
        route = f"{place}/chat/completions"
        lost = [body for path, body in sent if path != route or {*refused} & body.keys()]
        assert len(lost) <= 3 * (len(refused) + 1)
        assert len(sent) <= n_plain + len(lost)
        assert record.find("chat").value == "yes"


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ({"omit": ("seed",)}, ("seed",)),
        ({"omit": ("temperature",)}, ("temperature",)),
        ({"logprobs": False}, ("logprobs", "top_logprobs")),
        ({"reasoning": True}, ("max_tokens", "temperature", "top_p", "logprobs")),
    ],
    ids=str,
)
async def test_a_probe_sends_no_field_that_the_settings_of_the_back_end_leave_out(config, fields):
    async with asked_by_a_probe(**config) as (sent, record):
        assert not any(body.keys() & {*fields} for _, body in sent)
        assert record.find("temperature").value in {"unknown", "raw"}
        if "temperature" in fields:
            assert record.find("temperature").value == "unknown"


async def test_an_odd_refusal_of_one_question_takes_nothing_from_the_others():
    async with asked_by_a_probe(("logprob_token_ids",)) as (sent, _):
        assert "return_token_ids" in sent[-1][1]
