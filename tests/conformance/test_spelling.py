"""Every server that names tokens by ids says what they spell, so that runs can be read later."""

import numpy as np
import pytest

from orchestrator.ask import GenerateAsk, ScoreAsk
from orchestrator.backend import Backend
from orchestrator.records import Failure, Generation, IntArray, Message, Sampling, Scored
from tests.conformance.servers import Running

pytestmark = pytest.mark.timeout(600)

PROMPT = (Message("user", "Sort: d a c b"),)
BY_ID = (
    "dialect_sglang", "dialect_vllm_v1", "dialect_llama_server", "embedded", "vllm", "llamacpp",
)  # fmt: skip
NASTY = 'Ünïcode: 日本 👩‍🔬 7|7  7|7\r\n\t"5" مرحبا e\u0301'
UNKNOWN = "\N{REPLACEMENT CHARACTER}".encode()


async def spelled(backend: Backend, ids: IntArray) -> list[bytes]:
    found = await backend.spell(np.unique(ids).tolist())
    assert not isinstance(found, Failure), found
    return [found[one] for one in ids.tolist()]


@pytest.mark.kinds(*BY_ID)
async def test_drawn_tokens_spell_the_answer(backend: Backend):
    ask = GenerateAsk("m", PROMPT, Sampling(max_tokens=12), top_logprobs=3)
    made = await backend.generate(ask, 1)
    assert isinstance(made, Generation), made
    assert made.token_ids is not None
    assert made.top is not None
    assert b"".join(await spelled(backend, made.token_ids)).decode().strip() == made.text.strip()
    alternatives = await spelled(backend, made.top.token_ids.ravel())
    assert all(alternatives)


# The fake llama-server gives the whole distribution for each byte, which takes half a minute.
@pytest.mark.kinds(*(name for name in BY_ID if name != "dialect_llama_server"))
async def test_scored_tokens_spell_any_text(backend: Backend, server: Running):
    made = await backend.score(ScoreAsk("m", PROMPT, (), NASTY))
    assert isinstance(made, Scored), made
    pieces = await spelled(backend, made.token_ids)
    if UNKNOWN in pieces:
        # This server shows bytes that are no character as this one.
        left = NASTY
        for whole in b"".join(pieces).decode().split(UNKNOWN.decode()):
            assert whole in left
            left = left[left.index(whole) + len(whole) :]
    else:
        assert b"".join(pieces).decode() == NASTY
    assert server.kind.name != "llamacpp" or UNKNOWN not in pieces


@pytest.mark.kinds("dialect_tgi")
async def test_tokens_of_a_server_without_such_a_route_are_known_from_replies(backend: Backend):
    ask = GenerateAsk("m", PROMPT, Sampling(max_tokens=12), top_logprobs=3)
    made = await backend.generate(ask, 1)
    assert isinstance(made, Generation), made
    assert made.token_ids is not None
    assert made.offsets is not None
    found = await backend.spell(made.token_ids.tolist())
    assert not isinstance(found, Failure)
    assert b"".join(found[one] for one in made.token_ids.tolist()).decode() == made.text


@pytest.mark.kinds("fake")
async def test_a_server_that_can_t_says_so(backend: Backend):
    found = await backend.spell([1])
    assert isinstance(found, Failure)
    assert found.permanent
