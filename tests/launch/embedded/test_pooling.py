"""`/pooling`: a reward model's outputs equal those of `transformers`."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from launch.embedded import routes
from launch.embedded.engine import Settings
from launch.embedded.model import Rating
from launch.embedded.protocol import ApiError, PoolingRequest
from launch.embedded.served import load
from orchestrator.errors import LaunchError
from tests.launch.embedded.client import Client, begun, run
from tests.launch.embedded.tiny import save_tokenizer

CHATS = [
    [("user", "hello world, which is better?"), ("assistant", "the quick brown fox")],
    [("user", "What is 3 + 5?"), ("assistant", "8"), ("user", "Again?"), ("assistant", "")],
    [("user", "hello world, which is better?"), ("assistant", "two answers")],
]


SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}


def build(folder, n_outputs):
    torch.manual_seed(n_outputs)
    config = transformers.LlamaConfig(**{**SIZES, "num_labels": n_outputs})
    model = transformers.LlamaForSequenceClassification(config)
    with torch.no_grad():
        model.score.weight.normal_(0, 1.0)
    model.save_pretrained(folder)
    save_tokenizer(folder, with_bos=False)
    return model.eval()


@pytest.fixture(scope="module", params=[1, 3])
def reward_model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rating") / "model"
    truth = build(folder, request.param)
    served = load("rating", str(folder), Settings(), lambda: torch.set_num_threads(1))
    served.engine.start()
    yield served, truth, transformers.AutoTokenizer.from_pretrained(folder)
    served.engine.close()


def messages(chat):
    return [{"role": role, "content": content} for role, content in chat]


def outputs(served, **fields):
    pooling = begun(routes.pool, PoolingRequest(**fields), served)
    run(served.engine, pooling.job)
    (row,) = pooling.reply()["data"]
    return row["data"]


def test_it_is_a_reward_model(reward_model):
    served, _, _ = reward_model
    assert served.rates
    assert isinstance(served.runner.model, Rating)


def test_raw_outputs_are_those_of_transformers(reward_model):
    served, truth, tokenizer = reward_model
    for chat in [*CHATS, *CHATS]:  # the second time with a prefix from the cache
        ids = tokenizer.apply_chat_template(messages(chat), return_dict=False)
        with torch.inference_mode():
            expected = truth(input_ids=torch.tensor([ids])).logits[0].numpy()
        found = outputs(served, messages=messages(chat), use_activation=False)
        np.testing.assert_allclose(found, expected, atol=1e-4)
        # A text that was rendered elsewhere by the same template is the same conversation.
        text = tokenizer.apply_chat_template(messages(chat), tokenize=False)
        same = outputs(served, input=text, add_special_tokens=False, use_activation=False)
        np.testing.assert_allclose(same, expected, atol=1e-4)


def test_outputs_are_raw_and_other_ones_refused(reward_model):
    served, _, _ = reward_model
    for fields in ({}, {"use_activation": True}):
        with pytest.raises(ApiError, match="use_activation: false"):
            outputs(served, messages=messages(CHATS[0]), **fields)


def test_a_request_has_messages_or_a_text(reward_model):
    served, _, _ = reward_model
    for fields in ({}, {"messages": messages(CHATS[0]), "input": "x"}):
        with pytest.raises(ApiError, match="either messages or input"):
            begun(routes.pool, PoolingRequest(**fields), served)
    with pytest.raises(ApiError, match="maximum context length"):
        begun(routes.pool, PoolingRequest(input="x " * 600, use_activation=False), served)


def test_a_model_that_draws_texts_does_not_rate(client):
    chat = messages(CHATS[0])
    refused = client.post("/pooling", 501, messages=chat, use_activation=False)
    assert "draws texts" in refused["error"]["message"]


def test_the_route_needs_the_key(url):
    status, body = Client(url, "wrong").raw("POST", "/pooling", b'{"model": "bos"}')
    assert status == 401, body


def test_a_classifier_of_another_form_is_refused(tmp_path):
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=320,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, with_bos=False)
    with pytest.raises(LaunchError, match="not a decoder with a linear head"):
        load("bert", str(tmp_path), Settings())
