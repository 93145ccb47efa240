"""A real chat model from a GGUF file: its tokenizer, its weights, and every server's numbers."""

import asyncio
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoTokenizer

from launch import _weights
from launch.embedded.engine import Settings
from launch.embedded.served import load
from orchestrator.ask import ScoreAsk
from orchestrator.records import FEATURES, Message
from orchestrator.weights import PUBLISHED
from tests.conformance.measure import QUANTITIES, errors, known
from tests.conformance.reference import reference
from tests.conformance.servers import REAL_KINDS, SMOLLM2, running
from tests.launch.embedded.test_features import direct

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.smollm2, pytest.mark.timeout(600)]
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHAT = (Message("user", "What is the capital of France?"),)
_MISSING = frozenset((4, 6, 19, 20, 22, 29, 192, 193, *range(241, 256))) - {243, 244}
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def real_server(request, tmp_path_factory):
    log = tmp_path_factory.mktemp("servers") / "server.log"
    with running(REAL_KINDS[request.param], log) as found:
        yield found


KINDS = pytest.mark.parametrize(
    "real_server",
    [pytest.param(name, marks=kind.marks) for name, kind in REAL_KINDS.items()],
    indirect=True,
    scope="module",
)


def test_the_file_is_the_one_that_was_tried() -> None:
    found = _weights.identity(SMOLLM2)
    assert found["weights"] == PUBLISHED[0].file_sha256
    assert found["dequantised"] == "float32, conversion 1"


def test_weights_are_those_that_ggml_reads(folder: Path) -> None:
    found = load_file(folder / "model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 30)
    ours = {names.get_name(name, (".weight",)): array for name, array in found.items()}
    tensors = gguf.GGUFReader(_weights.resolve(SMOLLM2)).tensors
    assert len(tensors) == len(ours) == 272
    assert sum(array.size for array in ours.values()) == PUBLISHED[0].n_parameters
    for tensor in tensors:
        known = gguf.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            # Neighbouring rows of a head are the two halves in `transformers`.
            heads = known.reshape(-1, 32, 2, known.shape[1])
            known = np.concatenate((heads[:, :, 0], heads[:, :, 1]), axis=1)
            known = known.reshape(-1, known.shape[-1])
        assert np.array_equal(ours[tensor.name], known), tensor.name


@pytest.fixture(scope="module")
def tokenizers(folder: Path):
    other = AutoTokenizer.from_pretrained(_weights.resolve(SMOLLM2).parent, gguf_file=FILE)
    # It leaves out the first cut of the published tokenizer.json, which llama.cpp makes too.
    digits = Digits(individual_digits=True)
    level = ByteLevel(add_prefix_space=False)
    other.backend_tokenizer.pre_tokenizer = Sequence([digits, level])
    return AutoTokenizer.from_pretrained(folder), other


@settings(max_examples=300)
@given(text=st.text(max_size=60) | st.text("ab1 2\n'séΩ日", max_size=80))
def test_tokens_are_those_of_transformers(tokenizers, text: str) -> None:
    ours, others = tokenizers
    ids = ours(text)["input_ids"]
    assert ids == others(text)["input_ids"]
    assert ours.decode(ids) == others.decode(ids)
    # Its vocabulary lacks some bytes, such as those of unassigned planes, which are left out.
    if not _MISSING.intersection(text.encode()):
        assert ours.decode(ids) == text


def test_chat_prompts_are_those_of_transformers(tokenizers) -> None:
    chats = [
        [{"role": "user", "content": "Hi"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "12 + 30?"}],
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "  <|im_end|> "},
        ],
    ]
    for chat in chats:
        found, wanted = (
            one.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
            for one in tokenizers
        )
        assert found == wanted
        assert found[:2] == [1, 9690]  # <|im_start|>system


def test_it_answers_in_english_and_ends_its_turn(folder: Path) -> None:
    truth = reference(folder)
    ids = truth.prompt(CHAT)
    drawn = truth._model.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False)
    said = truth.tokenizer.decode(drawn[0, len(ids) :])
    assert said == f"{ANSWER}<|im_end|>"


def test_features_are_those_of_a_direct_pass(folder: Path) -> None:
    served = load("smol", str(folder), Settings(max_len=1024))
    truth = reference(folder)
    prompt, ids = truth.prompt(CHAT), truth.encode(ANSWER)
    expected = direct(served, [*prompt, *ids], len(prompt))

    async def measure(run):
        async with run.connected() as backend:
            wanted = ScoreAsk("m", CHAT, tuple(ids), ANSWER, features=tuple(sorted(FEATURES)))
            return known(await backend.score(wanted))

    kind = REAL_KINDS["embedded"]
    with running(kind, folder.parent / "features.log") as run:
        found = asyncio.run(measure(run)).features
    assert set(found) == set(FEATURES)
    for name, values in found.items():
        # A mean of products of numbers around 20 is in the hundreds.
        rtol = 1e-5 if name.endswith("logit") else 0
        np.testing.assert_allclose(values, expected[name], rtol=rtol, atol=1e-4, err_msg=name)


@KINDS
def test_numbers_are_those_of_a_forward_pass(real_server, folder: Path) -> None:
    found = errors(real_server, reference(folder))
    assert found.keys() == set(QUANTITIES)
    assert max(found.values()) <= real_server.kind.tolerance, found
