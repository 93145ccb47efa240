"""A model whose template takes no system role is asked the same by the user's, on every route."""

import pytest

from backends import embedded, fake, llamacpp, openai, sglang, tgi, vllm
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.records import Failure, Message, Sampling, labels
from orchestrator.wire.failures import classify
from tests.backends.dialects import connecting

CHAT = (Message("system", "Be brief."), Message("user", "A: bade kege\nB: xoxo kofu"))
MERGED = (Message("user", "Be brief.\n\nA: bade kege\nB: xoxo kofu"),)
SERVERS = {
    "openai": (openai, "openai"),
    "vllm_v1": (vllm, "vllm_v1"),
    "vllm_v2": (vllm, "vllm_v2"),
    "sglang": (sglang, "sglang"),
    "tgi": (tgi, "tgi"),
    "llamacpp": (llamacpp, "llama_server"),
    "embedded": (embedded, "native"),
    "fake": (fake, "native"),
}


async def outcomes(open_one, messages, **settings):
    """What a back-end makes of each kind of ask, in words."""
    backend, _ = await open_one(**settings)
    made = [
        await backend.generate(GenerateAsk("x", messages, Sampling(max_tokens=6)), 7),
        await backend.score(ScoreAsk("x", messages, (), "xoxo kofu")),
        await backend.choose(ChooseAsk("x", messages, labels("A", "B"))),
    ]
    return [str(one) for one in made if not isinstance(one, Failure)]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_system_prompt_is_put_before_the_users_message(server):
    module, dialect = SERVERS[server]
    served = ["/model"] if server == "tgi" else ["m"]
    async with connecting(module, dialect, served) as open_one:
        sent = await outcomes(open_one, CHAT, system_role=False)
        assert sent == await outcomes(open_one, MERGED)
        as_system = await outcomes(open_one, CHAT)
    assert len(sent) == (2 if server == "openai" else 3)
    assert all(one != other for one, other in zip(sent, as_system, strict=True))


def test_who_is_refused_the_role_is_told_of_the_setting():
    assert "system_role: false}`" in classify(400, b'"System role not supported"', {}).message
