"""A key is sent in one header and appears nowhere else."""

import logging

import pytest

from backends import embedded, fake, openai
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Failure, Message, Sampling, labels
from tests.backends.kinds import kind_in
from tests.fake.main import serving

KEY = "sk-do-not-tell-4711"
MESSAGES = (Message("user", "hi"),)
BACKENDS = [
    (fake, fake.Kind.Config()),
    (embedded, embedded.Kind.Config()),
    (openai, openai.Config(transport="aiohttp")),
    (openai, openai.Config(transport="openai")),
]


@pytest.mark.parametrize(("module", "config"), BACKENDS)
@pytest.mark.parametrize("status", [200, 401, 500])
async def test_a_server_that_echoes_the_key_gets_no_further(module, config, status, caplog):
    caplog.set_level(logging.DEBUG)
    rules = [{"fault": "echo_key", "status": status}]
    async with serving(rules, key=KEY) as (url, _):
        backend = kind_in(module)(config).connect(Endpoint(base_url=url, model="m", api_key=KEY))
        drawn = await backend.generate(GenerateAsk("m", MESSAGES, Sampling()), 1)
        scored = await backend.score(ScoreAsk("m", MESSAGES, (1,)))
        chosen = await backend.choose(ChooseAsk("m", MESSAGES, labels("A", "B")))
        shown = repr((backend, drawn, scored, chosen, vars(backend).keys()))
        await backend.close()
    assert isinstance(drawn, Failure)
    assert isinstance(chosen, Failure)
    assert KEY not in shown
    assert KEY not in caplog.text
    assert "[key]" in drawn.message
