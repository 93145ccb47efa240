"""A real vLLM with the bundled reward model: raw rewards, and who renders the conversation."""

from dataclasses import replace

import aiohttp
import numpy as np
import pytest

from orchestrator.ask import GenerateAsk, RewardAsk
from orchestrator.backend import Provenance
from orchestrator.datasets.demo import generate
from orchestrator.records import Failure, Message, Sampling
from tests.conformance.measure import known
from tests.conformance.servers import KINDS, MODEL, running
from tests.conftest import BUNDLED

pytestmark = [pytest.mark.timeout(600), *KINDS["vllm"].marks]

WEIGHTS = BUNDLED / "reward"
ITEMS = generate(12, seed=5)
CHATS = [
    (Message("user", item.prompt), Message("assistant", answer))
    for item, other in zip(ITEMS, ITEMS[1:] + ITEMS[:1], strict=True)
    for answer in (item.reference, other.reference)
]
TURNS = (*CHATS[0], *CHATS[1])


@pytest.fixture(scope="module")
def rater(tmp_path_factory):
    kind = replace(KINDS["vllm"], weights="bundled:reward")
    with running(kind, tmp_path_factory.mktemp("reward") / "server.log") as found:
        yield found


@pytest.fixture(scope="module")
def truth():
    """The reward of a conversation by `transformers`, and its text and ids by the template."""
    import torch  # noqa: PLC0415 (heavy, and not everywhere)
    import transformers  # noqa: PLC0415

    tokenizer = transformers.AutoTokenizer.from_pretrained(WEIGHTS)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        WEIGHTS, dtype=torch.float32
    ).eval()

    def of(chat):
        turns = [{"role": role, "content": content} for role, content in chat]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        ids = tokenizer.encode(text, add_special_tokens=False)
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0].tolist(), text, ids

    return of


async def test_rewards_are_the_raw_outputs_of_a_forward_pass(rater, truth):
    async with rater.connected() as backend:
        found = [known(await backend.reward(RewardAsk("m", chat))) for chat in [*CHATS, TURNS]]
    expected = [truth(chat) for chat in [*CHATS, TURNS]]
    assert not any(one.by_place for one in found)
    np.testing.assert_allclose(
        [one.values[0] for one in found], [values for values, _, _ in expected], atol=1e-4
    )
    assert [one.n_prompt_tokens for one in found] == [len(ids) for _, _, ids in expected]
    # It was trained to tell them apart.
    values = np.array([one.values.item() for one in found[:-1]]).reshape(-1, 2)
    assert (values[:, 0] > values[:, 1]).mean() > 0.7


async def test_the_server_renders_as_the_template_does_and_activates_by_default(rater, truth):
    """Hold the reason to send `use_activation`: without it a reward is a probability."""
    (raw,), text, _ = truth(TURNS)
    headers = {"Authorization": f"Bearer {rater.server.api_key}"}
    turns = [{"role": role, "content": content} for role, content in TURNS]
    async with aiohttp.ClientSession(rater.server.base_url, headers=headers) as session:

        async def pooled(**fields):
            async with session.post("/pooling", json={"model": MODEL, **fields}) as reply:
                return (await reply.json())["data"][0]["data"]

        by_text = await pooled(input=text, add_special_tokens=False, use_activation=False)
        by_turns = await pooled(messages=turns, use_activation=False)
        activated = await pooled(messages=turns)
    assert by_text == by_turns == pytest.approx([raw], abs=1e-4)
    assert activated == pytest.approx([1 / (1 + np.exp(-raw))], abs=1e-4)


async def test_a_server_that_draws_nothing_is_known_and_says_so(rater):
    async with rater.connected() as backend:
        stated = await backend.provenance()
        drawn = await backend.generate(GenerateAsk("m", CHATS[0][:1], Sampling()), 1)
    assert isinstance(stated, Provenance)
    assert stated.version.startswith("0.")
    assert isinstance(drawn, Failure)
    assert not drawn.retriable
