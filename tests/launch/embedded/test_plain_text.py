"""`template: none`: a base model's prompt is the message itself, on every route."""

from __future__ import annotations

from typing import Any

import pytest

from launch.embedded.served import Served
from tests.launch.embedded.client import Client, forced, taken

TEXT = "hello world, which is better?"
MESSAGE = [{"role": "user", "content": TEXT}]


def test_the_prompt_is_the_text_with_what_the_tokenizer_puts_around_it(
    client: Client, served: Served
) -> None:
    raw = served.tokens.encode(TEXT, special=True)
    found = client.post("/tokenize", model=served.name, messages=MESSAGE, template="none")
    assert found["tokens"] == raw
    assert (
        found["tokens"] != client.post("/tokenize", model=served.name, messages=MESSAGE)["tokens"]
    )


def test_a_draw_goes_on_from_the_raw_text(client: Client, served: Served) -> None:
    drawn = client.chat(
        TEXT, model=served.name, max_tokens=6, temperature=0, return_token_ids=True, template="none"
    )
    ids, prompt = drawn["choices"][0]["token_ids"], served.tokens.encode(TEXT, special=True)
    assert drawn["prompt_token_ids"] == prompt
    rows = forced(served, prompt + ids)
    assert ids == rows[len(prompt) - 1 : -1].argmax(-1).tolist()[: len(ids)]


def test_scores_are_those_of_a_direct_pass_over_the_raw_text(
    client: Client, served: Served
) -> None:
    ids = served.tokens.encode(" better")
    reply = client.post(
        "/v1/score", model=served.name, messages=MESSAGE, token_ids=ids, template="none"
    )
    prompt = served.tokens.encode(TEXT, special=True)
    rows = forced(served, prompt + ids)
    assert reply["logprobs"] == pytest.approx(taken(rows, len(prompt), ids), abs=1e-4)


def test_labels_are_chosen_after_the_raw_text(client: Client, served: Served) -> None:
    wanted: dict[str, Any] = {"model": served.name, "messages": MESSAGE, "labels": [["a"], ["b"]]}
    plain = client.post("/v1/choose", **wanted, template="none")
    assert plain["logprobs"] != client.post("/v1/choose", **wanted)["logprobs"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"template": "mine"}, "template must be 'none'"),
        ({"template": "none", "messages": MESSAGE * 2}, "takes one message"),
    ],
)
def test_what_makes_no_sense_is_refused(client: Client, fields: dict[str, Any], said: str) -> None:
    reply = client.post("/v1/chat/completions", 400, **{"messages": MESSAGE, **fields})
    assert said in reply["error"]["message"]
