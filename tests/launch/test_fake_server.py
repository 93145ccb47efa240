"""The small fake server of users: pure, ranked by quality, and closed without its key."""

import json
import re

import pytest

from launch._fake_server import FakeServer

CHAT = "/v1/chat/completions"
QUALITY = {"weak": 0.1, "strong": 0.9, "judge": 1.0}
SERVER = FakeServer(tuple(QUALITY), QUALITY)


def ask(path, model, content="hi", **fields):
    body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
    return SERVER.reply(path, json.dumps(body).encode())


def said(model, content="hi", **fields):
    status, reply = ask(CHAT, model, content, **fields)
    assert status == 200
    return reply["choices"][0]["message"]["content"]


def test_a_text_depends_on_model_content_and_seed_alone():
    assert said("weak", seed=1) == said("weak", seed=1)
    assert len({said("weak", seed=1), said("weak", seed=2), said("strong", seed=1)}) == 3
    assert said("weak", seed=1, temperature=0) == said("weak", seed=2, temperature=0)


def test_scores_and_listed_alternatives_are_the_numbers_of_the_generation():
    asked = {"logprobs": True, "top_logprobs": 3, "return_token_ids": True, "max_tokens": 6}
    choice = ask(CHAT, "weak", **asked)[1]["choices"][0]
    drawn = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    scored = ask("/v1/score", "weak", token_ids=choice["token_ids"], top_logprobs=3)[1]
    assert scored["logprobs"] == drawn
    listed = [
        [one["logprob"] for one in entry["top_logprobs"]] for entry in choice["logprobs"]["content"]
    ]
    assert scored["top_logprobs"] == listed
    assert all(row == sorted(row, reverse=True) for row in listed)


@pytest.mark.parametrize(
    ("first", "second", "chosen"), [("strong", "weak", 0), ("weak", "strong", 1)]
)
def test_a_judge_prefers_the_better_answer(first, second, chosen):
    shown = f"Answer A: {said(first)}\n\nAnswer B: {said(second)}"
    logprobs = ask("/v1/choose", "judge", shown, labels=[["A"], ["B"]])[1]["logprobs"]
    assert logprobs.index(max(logprobs)) == chosen
    assert (
        ask(CHAT, "judge", shown, max_tokens=1, logprobs=True, top_logprobs=3)[1]["choices"][0][
            "message"
        ]["content"]
        == "AB"[chosen]
    )


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (CHAT, b"{", 400),
        (CHAT, b'{"model": "weak"}', 400),
        (CHAT, b'{"model": "other", "messages": []}', 404),
        ("/v1/nothing", b"", 404),
        ("/health", b"", 200),
    ],
)
def test_what_it_cannot_answer_is_an_error(path, body, expected):
    assert SERVER.reply(path, body)[0] == expected


def test_only_health_is_answered_without_the_key():
    closed = FakeServer((), {}, "sk-1")
    assert closed.reply("/v1/models", b"")[0] == 401
    assert closed.reply("/v1/models", b"", "Bearer sk-1")[0] == 200
    assert closed.reply("/health", b"")[0] == 200


@pytest.mark.parametrize("first_is_better", [True, False])
@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        ("[[>]]", r"\[\[([<=>]+)\]\]"),
        ("Judge: Compare two answers.", r"\[\[([<=>]+)\]\]"),
        ("Rate both answers.", r"(\d+) (\d+)"),
        ("rate each response", r"(\d+) (\d+)"),
    ],
)
def test_a_judge_that_gives_reasons_ends_in_the_verdict_that_was_asked_for(
    asked, verdict, first_is_better
):
    shown = [said(model) for model in (("weak", "strong"), ("strong", "weak"))[first_is_better]]
    reply = said("judge", f"{asked}\n\nAnswer A: {shown[0]}\n\nAnswer B: {shown[1]}")
    found = re.search(rf" {verdict}\Z", reply)
    assert found is not None
    first, second = (
        (found[1].count(">"), found[1].count("<"))
        if found.lastindex == 1
        else (int(one) for one in found.groups())
    )
    assert (first > second) is first_is_better


def test_a_judge_that_ranks_names_each_answer_once():
    shown = "".join(f"[Start of Assistant {one}'s answer]" for one in "ABC")
    reply = said("judge", f"Rank all assistants from best to worst.{shown}", max_tokens=200)
    assert sorted(reply.splitlines()[-1].split(" > ")) == ["A", "B", "C"]
