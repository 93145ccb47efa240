"""The routes over a real server on 127.0.0.1."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from launch.embedded.jobs import Answer
from launch.embedded.served import Served
from tests.launch.embedded.client import USER, Client, forced, taken, together


def wait_until(check: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_chat_logprobs_equal_a_direct_pass(client: Client, served: Served) -> None:
    reply = client.chat(
        model=served.name,
        max_tokens=12,
        seed=3,
        logprobs=True,
        top_logprobs=4,
        return_token_ids=True,
    )
    (choice,) = reply["choices"]
    ids, prompt = choice["token_ids"], reply["prompt_token_ids"]
    rows = forced(served, prompt + ids)
    content = choice["logprobs"]["content"]
    assert [entry["id"] for entry in content] == ids
    got = [entry["logprob"] for entry in content]
    assert got == pytest.approx(taken(rows, len(prompt), ids), abs=1e-4)
    for place, entry in enumerate(content):
        best = rows[len(prompt) - 1 + place].topk(4)
        listed = {one["id"]: one["logprob"] for one in entry["top_logprobs"]}
        assert set(listed) == {ids[place], *best.indices.tolist()}
        assert next(iter(listed)) == ids[place]
        assert [listed[i] for i in best.indices.tolist()] == pytest.approx(
            best.values.tolist(), abs=1e-4
        )
    assert reply["usage"]["completion_tokens"] == len(ids) == 12


def test_the_prompt_begins_as_the_template_says(client: Client) -> None:
    with_bos = client.post("/tokenize", messages=USER)["tokens"]
    without = client.post("/tokenize", messages=USER, model="plain")["tokens"]
    assert with_bos[0] == 1
    assert without == with_bos[1:]
    reply = client.chat(USER[0]["content"], max_tokens=1, return_token_ids=True)
    assert reply["prompt_token_ids"] == with_bos


def test_given_ids_are_read_exactly(client: Client, bos: Served) -> None:
    reply = client.chat(
        max_tokens=2,
        temperature=0,
        logprobs=True,
        logprob_token_ids=[9, 300, 9],
        return_token_ids=True,
    )
    ids, prompt = reply["choices"][0]["token_ids"], reply["prompt_token_ids"]
    rows = forced(bos, prompt + ids)
    for place, entry in enumerate(reply["choices"][0]["logprobs"]["content"]):
        listed = {one["id"]: one["logprob"] for one in entry["top_logprobs"]}
        assert list(listed) == list(dict.fromkeys([ids[place], 9, 300]))
        row = rows[len(prompt) - 1 + place]
        assert listed[9] == pytest.approx(float(row[9]), abs=1e-4)
        assert listed[300] == pytest.approx(float(row[300]), abs=1e-4)


def test_the_same_seed_gives_the_same_text_in_any_company(client: Client) -> None:
    def ask(seed: int, n_tokens: int = 20) -> Any:
        return client.chat(max_tokens=n_tokens, seed=seed, return_token_ids=True)["choices"][0][
            "token_ids"
        ]

    alone = [ask(seed) for seed in range(4)]
    calls = [lambda s=s: ask(s) for s in range(4)] + [lambda n=n: ask(99, n) for n in range(1, 30)]
    assert together(calls)[:4] == alone
    assert len({tuple(ids) for ids in alone}) == 4


def test_without_a_seed_texts_differ(client: Client) -> None:
    assert len({str(client.chat(max_tokens=20)["choices"][0]["message"]) for _ in range(3)}) == 3


def whole_text(client: Client) -> str:
    return str(client.chat(max_tokens=30, temperature=0)["choices"][0]["message"]["content"])


def test_a_stop_string_across_tokens_ends_the_text(client: Client) -> None:
    text = whole_text(client)
    place = next(i for i in range(4, len(text) - 3) if "\ufffd" not in text[i : i + 3])
    stop = text[place : place + 3]
    reply = client.chat(
        max_tokens=30, temperature=0, stop=["never", stop], logprobs=True, return_token_ids=True
    )
    (choice,) = reply["choices"]
    assert choice["message"]["content"] == text[: text.find(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) < 30


def test_a_stop_token_is_in_the_ids_but_not_in_the_text(client: Client, bos: Served) -> None:
    ids = client.chat(max_tokens=9, temperature=0, return_token_ids=True)["choices"][0]["token_ids"]
    at = next(i for i in range(1, 9) if ids[i] not in ids[:i])
    reply = client.chat(
        max_tokens=9, temperature=0, stop_token_ids=[ids[at]], logprobs=True, return_token_ids=True
    )
    (choice,) = reply["choices"]
    assert choice["token_ids"] == ids[: at + 1]
    assert len(choice["logprobs"]["content"]) == at + 1
    assert choice["message"]["content"] == bos.tokens.decode(ids[:at])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ids[at])


WITH_AND_WITHOUT: tuple[dict[str, Any], ...] = ({}, {"ignore_eos": True})


def test_the_end_of_the_turn_ends_the_answer_unless_ignored(client: Client, bos: Served) -> None:
    # At this temperature every token is about as likely, so the end comes soon in some.
    wanted: dict[str, Any] = {"temperature": 50.0, "max_tokens": 100, "return_token_ids": True}
    pairs = [
        tuple(client.chat(**wanted, **more, seed=seed)["choices"][0] for more in WITH_AND_WITHOUT)
        for seed in range(8)
    ]
    ended, ignored = next(pair for pair in pairs if pair[0]["finish_reason"] == "stop")
    assert ended["stop_reason"] is None
    assert ended["token_ids"][-1] == bos.tokens.end_of_turn
    assert ignored["token_ids"][: len(ended["token_ids"])] == ended["token_ids"]
    assert len(ignored["token_ids"]) == 100


def test_max_tokens_is_clamped_to_the_room_left(client: Client) -> None:
    reply = client.chat("word " * 150, max_tokens=510, temperature=0, ignore_eos=True)
    assert reply["usage"]["total_tokens"] == 512
    assert reply["choices"][0]["finish_reason"] == "length"


def test_going_on_with_the_last_message(client: Client) -> None:
    messages = [*USER, {"role": "assistant", "content": "hello wor"}]
    ids = client.post(
        "/tokenize", messages=messages, add_generation_prompt=False, continue_final_message=True
    )["tokens"]
    assert client.post("/detokenize", tokens=ids)["prompt"].endswith("assistant\nhello wor")
    reply = client.post(
        "/v1/chat/completions",
        messages=messages,
        continue_final_message=True,
        max_tokens=1,
        return_token_ids=True,
    )
    assert reply["prompt_token_ids"] == ids


def test_score_and_choose_agree_over_the_wire(client: Client) -> None:
    labels = [["[[>>]]"], ["[[>]]", " [[>]]"], ["[[=]]"]]
    prefix = {"text": "so"}
    chosen = client.post("/v1/choose", messages=USER, labels=labels, prefix=prefix)
    for group, values in zip(chosen["paths"], chosen["spellings"], strict=True):
        for path, value in zip(group, values, strict=True):
            scored = client.post("/v1/score", messages=USER, token_ids=path, prefix=prefix)
            assert sum(scored["logprobs"]) == pytest.approx(value, abs=1e-4)
            assert scored["usage"]["prompt_tokens"] == chosen["usage"]["prompt_tokens"]


def test_a_score_lists_what_a_chat_lists(client: Client) -> None:
    drawn = client.chat("hello", logprobs=True, top_logprobs=3, max_tokens=6, seed=1)
    entries = drawn["choices"][0]["logprobs"]["content"]
    messages = [{"role": "user", "content": "hello"}]
    ids = [entry["id"] for entry in entries]
    scored = client.post("/v1/score", messages=messages, token_ids=ids, top_logprobs=3)
    for entry, tokens, values in zip(
        entries, scored["top_token_ids"], scored["top_logprobs"], strict=True
    ):
        best = sorted(entry["top_logprobs"], key=lambda listed: -listed["logprob"])[:3]
        assert tokens == [listed["id"] for listed in best]
        assert values == pytest.approx([listed["logprob"] for listed in best], abs=1e-4)


def test_tokenize_and_detokenize_are_inverse(client: Client) -> None:
    text = "e\u0301 🙂\r\n<|im_end|> 日本"
    found = client.post("/tokenize", prompt=text, return_token_strs=True)
    assert client.post("/detokenize", tokens=found["tokens"])["prompt"] == text
    assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), 512)
    assert len(found["token_strs"]) == found["count"]


def test_unicode_survives_the_way_there_and_back(client: Client) -> None:
    text = "caf\u00e9 日本語 🙂 \u202e \u0000"
    reply = client.chat(text, max_tokens=1, template="none", return_token_ids=True)
    ids = reply["prompt_token_ids"]
    assert client.post("/detokenize", tokens=ids)["prompt"].endswith(text)


def test_a_closed_connection_drops_the_request(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Answer.add

    def slow_add(*arguments: Any) -> bool:
        time.sleep(0.01)
        return add(*arguments)

    # So that it is not whole before its connection is closed.
    monkeypatch.setattr(Answer, "add", slow_add)
    before = client.metric("generation_tokens_total")
    fields = {
        "model": "bos",
        "messages": USER,
        "max_tokens": 450,
        "ignore_eos": True,
    }
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.key}\r\n"
    )
    with socket.create_connection((client.host, client.port)) as connection:
        connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: client.metric("generation_tokens_total") > before)
    wait_until(lambda: client.metric("num_requests_running") == 0)
    assert client.metric("generation_tokens_total") - before < 450


def test_two_models_answer_at_the_same_time(client: Client) -> None:
    def ask(model: str, seed: int) -> Any:
        return client.chat(model=model, max_tokens=15, seed=seed)["choices"][0]["message"][
            "content"
        ]

    alone = [ask(model, seed) for model in ("bos", "plain") for seed in range(5)]
    calls = [lambda m=m, s=s: ask(m, s) for m in ("bos", "plain") for s in range(5)]
    assert together(calls) == alone
    assert alone[:5] != alone[5:]


def test_load_figures_return_to_zero(client: Client) -> None:
    together([lambda: client.chat(max_tokens=5)] * 20)
    assert client.metric("num_requests_running") == client.metric("num_requests_waiting") == 0
    assert client.metric("requests_total") >= 20
