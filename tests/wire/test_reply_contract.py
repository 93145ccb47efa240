"""What stands beside a text decides what is made of a reply, alike in every dialect.

Each case of fields, finish reason and dialect is answered (with its text and the numbers of its own
tokens), no answer with a cause, or a failure with a cause.
"""

import itertools
import json
from typing import Any

import numpy as np
import pytest

from backends.llamacpp import completions as llamacpp_completions
from backends.sglang import wire as sglang
from backends.tgi import wire as tgi
from orchestrator.ask import GenerateAsk
from orchestrator.records import UNCLEAR, Failure, Generation, Message, Sampling, labels
from orchestrator.wire import parsing, replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.failures import as_value, known
from orchestrator.wire.labels import choice_from_top

ASK = GenerateAsk("m", (Message("user", "Hi"),), Sampling())
END = "<|end|>"
N_PROMPT = 3

STOPPED = (
    "stop", "eos", "eos_token", "end", "end_turn", "stop_sequence", "STOP", "completed",
    "FinishReason.STOP", "FINISH_REASON_STOP", "endTurn", "eosFound", "<eos>", "<|im_end|>",
    "</s>", "<|endoftext|>", "<|return|>",
)  # fmt: skip
CUT = (
    "length",
    "max_tokens",
    "MAX_TOKENS",
    "model_length",
    "max_output_tokens",
    "maxTokens",
    "FINISH_REASON_MAX_TOKENS",
    "incomplete",
    "maximum_tokens",
    "context",
    "max_tokens_reached",
    "context_window_exceeded",
)
WITHHELD = (
    "content_filter", "safety", "SAFETY", "RECITATION", "refusal", "guardrail_intervened",
    "contentFilter", "ContentFiltered", "FinishReason.SAFETY", "IMAGE_SAFETY", "policy_violation",
    "content_filter: RECITATION", "content_filter: OTHER", "content_moderation",
)  # fmt: skip
CALLED = ("tool_calls", "function_call", "tool_use", "toolUse", "MALFORMED_FUNCTION_CALL")
BROKEN = ("abort", "error", "cancelled", "insufficient_system_resource", "USER_CANCEL", "load",
          "timed_out", "engine_overloaded", "time_limit", "MALFORMED_RESPONSE")  # fmt: skip
OTHERS = ("something_new", "CLOUDY")
REASONS = (*STOPPED, *CUT, *WITHHELD, *CALLED, *BROKEN, *OTHERS, None, "")

BESIDE = {
    "nothing": {},
    "reasoning": {"reasoning": "hm"},
    "reasoning_content": {"reasoning_content": "hm"},
    "reasoning_text": {"reasoning_text": "hm"},
    "reasoning_details": {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    "reasoning by thinking": {"thinking": "hm"},
    "reasoning in blocks": {"thinking_blocks": [{"type": "thinking", "thinking": "hm"}]},
    "reasoning in parts": {"reasoning": [{"type": "text", "text": "hm"}]},
    "empty fields": {"reasoning": "", "tool_calls": [], "refusal": None, "function_call": None},
    "tool_calls": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
    "function_call": {"function_call": {"name": "f"}},
    "refusal": {"refusal": "I can't."},
}
TEXTS = ("It is four", "", None)


def tokens_of(text, reason):
    words = [] if not text else [f"{' ' if at else ''}{w}" for at, w in enumerate(text.split())]
    return words + ([END] if reason in STOPPED else [])


def entries_of(tokens):
    return [{"token": one, "logprob": -0.5, "bytes": list(one.encode())} for one in tokens]


def chat_body(text, reason, beside=None):
    thought = "hm" if "hm" in json.dumps(beside or {}) else ""
    tokens = ([thought, "</think>"] if thought else []) + tokens_of(text, reason)
    message = {"role": "assistant", "content": text, **(beside or {})}
    choice = {"message": message, "finish_reason": reason}
    choice["logprobs"] = {"content": entries_of(tokens)}
    usage = {"prompt_tokens": N_PROMPT, "completion_tokens": len(tokens)}
    return {"choices": [choice], "usage": usage}


def chat(text, reason, beside=None):
    return replies.generation(json.dumps(chat_body(text, reason, beside)).encode(), Reading())


def legacy(text, reason):
    tokens = tokens_of(text, reason)
    lists = {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens)}
    choice = {"text": text, "finish_reason": reason, "logprobs": lists}
    return replies.completion(json.dumps({"choices": [choice]}).encode(), Reading())


def of_sglang(text, reason):
    tokens = tokens_of(text, reason)
    meta = {
        "finish_reason": None if reason is None else {"type": reason},
        "prompt_tokens": N_PROMPT,
        "output_token_logprobs": [[-0.5, at, one] for at, one in enumerate(tokens)],
    }
    body = {"text": text, "output_ids": [*range(len(tokens))], "meta_info": meta}
    return sglang.generation(json.dumps(body).encode(), Reading(), N_PROMPT)


def of_tgi(text, reason):
    tokens = tokens_of(text, reason)
    listed = [{"id": at, "text": one, "logprob": -0.5} for at, one in enumerate(tokens)]
    body = {"generated_text": text, "details": {"finish_reason": reason, "tokens": listed}}
    return tgi.generation(json.dumps(body).encode(), Reading(), ASK, N_PROMPT)


@as_value
def of_llamacpp(text, reason):
    tokens = tokens_of(text, reason)
    listed = [{**one, "id": at} for at, one in enumerate(entries_of(tokens))]
    body = {
        "content": text, "tokens": [*range(len(tokens))], "stop_type": reason or "",
        "tokens_evaluated": N_PROMPT, "completion_probabilities": listed,
    }  # fmt: skip
    made = known(llamacpp_completions.draft(json.dumps(body).encode(), N_PROMPT, ""))
    return llamacpp_completions.generation(made, Reading())


OTHER_DIALECTS = {
    "completions": legacy, "sglang": of_sglang, "tgi": of_tgi, "llamacpp": of_llamacpp,
}  # fmt: skip


def check(made, text, reason, beside=""):
    """The oracle: the text with its own numbers, or the reason why there is none."""
    assert isinstance(made, Generation | Failure)
    ended_as = (made.cause, made.permanent) if isinstance(made, Failure) else ("answered", True)
    is_answer = text is not None and (text or reason in STOPPED)
    if beside.startswith("reasoning"):
        is_answer = bool(text)
    if reason in BROKEN:
        assert ended_as == ("server_error", False)
    elif reason in (None, ""):
        assert isinstance(made, Failure)
        assert made.permanent or made.cause == "unparseable"
    elif reason in WITHHELD + CALLED or beside in {"tool_calls", "function_call", "refusal"}:
        assert ended_as == ("no_answer", True)
    elif not is_answer:
        assert isinstance(made, Failure)
        assert made.cause in {"no_answer", "unparseable"}
        if made.cause == "no_answer":
            assert ("within max_tokens" in made.message) is (reason in CUT)
    else:
        assert isinstance(made, Generation), made
        assert made.text == text
        ended = "stop" if reason in STOPPED else "length" if reason in CUT else reason
        assert made.finish_reason == ended
        np.testing.assert_array_equal(made.logprobs, np.full(len(text.split()), -0.5, np.float32))


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("reason", REASONS)
def test_a_chat_reply(beside, reason):
    for text in TEXTS:
        check(chat(text, reason, BESIDE[beside]), text, reason, beside)


@pytest.mark.parametrize("dialect", OTHER_DIALECTS)
@pytest.mark.parametrize("reason", REASONS)
def test_a_reply_of_another_dialect(dialect, reason):
    for text in TEXTS:
        check(OTHER_DIALECTS[dialect](text, reason), text, reason)


@pytest.mark.parametrize(
    ("code", "cause", "permanent"),
    [(403, "moderation", True), (429, "rate_limited", False), (502, "server_error", False)],
)
def test_an_error_inside_the_answer_is_its_own(code, cause, permanent):
    error = {"code": code, "message": "flagged: violence"}
    choice = {"message": {"content": ""}, "finish_reason": "error", "error": error}
    body = json.dumps({"choices": [choice]}).encode()
    for made in (replies.generation(body, Reading()), choice_from_top(body, labels("A", "B"))):
        assert isinstance(made, Failure)
        assert (made.cause, made.permanent) == (cause, permanent)
        assert "flagged: violence" in made.message


@pytest.mark.parametrize(
    "beside",
    [
        {
            "output_sensitive": True,
            "base_resp": {"status_code": 1027, "status_msg": "new_sensitive"},
        },
        {"content_filter_results": {"hate": {"filtered": True, "severity": "high"}}},
    ],
)
def test_an_empty_text_beside_a_filters_word_is_none(beside):
    for text in ("", "It is four"):
        body = json.dumps({**chat_body(text, "stop"), **beside}).encode()
        made = replies.generation(body, Reading())
        if text:
            assert isinstance(made, Generation)
        else:
            assert isinstance(made, Failure)
            assert (made.cause, made.permanent) == ("moderation", True)


@pytest.mark.parametrize("name", ["prompt_filter_results", "prompt_annotations"])
@pytest.mark.parametrize("filtered", [True, False])
def test_a_filtered_prompt_without_choices_is_moderation(name, filtered):
    hate = {"hate": {"filtered": filtered, "severity": "high"}}
    azure = {"choices": [], name: [{"prompt_index": 0, "content_filter_results": hate}]}
    gemini = {"promptFeedback": {"blockReason": "SAFETY"}} if filtered else {}
    # Repeated in a text, it says nothing of this prompt.
    echo = {"choices": [], "id": json.dumps({"filtered": True})}
    for said in (azure, gemini, echo):
        body = json.dumps(said).encode()
        wanted = "moderation" if filtered and said is not echo else "unparseable"
        for made in (replies.generation(body, Reading()), choice_from_top(body, labels("A", "B"))):
            assert isinstance(made, Failure)
            assert (made.cause, made.permanent) == (wanted, wanted == "moderation")


def judged(content="A", reason="length", listed=None, **message):
    top = listed or [("A", -0.2), ("B", -2.0)]
    entry = {"token": top[0][0], "logprob": top[0][1]}
    entry["top_logprobs"] = [{"token": one, "logprob": p} for one, p in top]
    message = {"content": content, **message}
    choice = {"message": message, "finish_reason": reason, "logprobs": {"content": [entry]}}
    return choice_from_top(json.dumps({"choices": [choice]}).encode(), labels("A", "B"))


@pytest.mark.parametrize("reason", [*WITHHELD, *CALLED])
def test_a_verdict_that_was_withheld_is_none(reason):
    assert judged(reason=reason).cause == "no_answer"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_the_first_token_of_reasoning_is_no_verdict(field):
    outcome = judged(None, listed=[("Hm", -0.2), ("A", -2.0)], **{field: "Hm"})
    assert (outcome.cause, outcome.permanent) == ("unsupported", True)
    assert "reasoning" in outcome.message


PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "text", "text": "It is "},
    {"type": "text", "text": "four"},
]


def test_an_answer_in_parts_is_its_texts_without_its_thinking():
    body = {"choices": [{"message": {"content": PARTS}, "finish_reason": "stop"}]}
    made = replies.generation(json.dumps(body).encode(), Reading(logprobs=False))
    assert isinstance(made, Generation), made
    assert (made.text, made.thinking) == ("It is four", "hm")


@pytest.mark.parametrize(("n_tokens", "is_answer"), [(0, True), (1, True), (500, False)])
def test_tokens_that_are_counted_and_not_seen_are_no_empty_answer(n_tokens, is_answer):
    usage = {"prompt_tokens": 10, "completion_tokens": n_tokens}
    choice = {"message": {"content": ""}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    made = replies.generation(body, Reading(logprobs=False))
    assert ("answer" if isinstance(made, Generation) else made.cause) == (
        "answer" if is_answer else "no_answer"
    )


@pytest.mark.parametrize("parts", [PARTS[:1], [], [{"type": "refusal", "refusal": "No."}]])
def test_parts_without_a_text_are_no_answer(parts):
    body = {"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}
    made = replies.generation(json.dumps(body).encode(), Reading(logprobs=False))
    assert isinstance(made, Failure)
    assert made.cause == "no_answer"


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10.0, "completion_tokens": 3.0},
        {"prompt_tokens": "10", "completion_tokens": "3"},
        {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13},
        {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": []},
        {
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "completion_tokens_details": {"reasoning_tokens": "x"},
        },
    ],
)  # fmt: skip
def test_counts_are_read_however_they_are_written(usage):
    choice = {"message": {"content": "four"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    made = replies.generation(body, Reading(logprobs=False))
    assert isinstance(made, Generation), made
    assert (made.text, made.n_prompt_tokens, made.n_completion_tokens) == ("four", 10, 3)


@pytest.mark.parametrize("usage", [[], "none", 7, {"prompt_tokens": "many"}, {"prompt_tokens": -1}])
def test_what_counts_nothing_costs_no_answer(usage):
    choice = {"message": {"content": "four"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    made = replies.generation(body, Reading(logprobs=False))
    assert isinstance(made, Generation), made
    assert (made.text, made.n_prompt_tokens) == ("four", 0)


HELD_IN = {"logprobs", "output_token_logprobs", "completion_probabilities", "logprob"}


def without_logprobs(body):
    if isinstance(body, dict):
        return {
            key: None if key in HELD_IN else without_logprobs(value) for key, value in body.items()
        }
    return [without_logprobs(one) for one in body] if isinstance(body, list) else body


@pytest.mark.parametrize("reason", ["stop", "length"])
@pytest.mark.parametrize("dialect", ["chat", *OTHER_DIALECTS])
def test_log_probabilities_that_are_missing_are_the_servers_state(monkeypatch, dialect, reason):
    encode = json.dumps
    monkeypatch.setattr(json, "dumps", lambda body: encode(without_logprobs(body)))
    made = {"chat": chat, **OTHER_DIALECTS}[dialect]("It is four", reason)
    assert isinstance(made, Failure)
    assert (made.cause, made.permanent, made.scope) == ("no_logprobs", False, UNCLEAR)
    assert not made.retriable
    # What was withheld is the request's own, whatever else is missing.
    for text in ("It is four", ""):
        withheld = {"chat": chat, **OTHER_DIALECTS}[dialect](text, "content_filter")
        assert isinstance(withheld, Failure)
        assert (withheld.cause, withheld.permanent) == ("no_answer", True)


def streamed(body, cut, start=b"", end=b"data: [DONE]\n\n"):
    """A reply as a stream of parts: texts and lists of tokens in pieces, all else when it may."""
    parts = [{"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant"}}]}]
    for at, choice in enumerate(body["choices"]):
        message = dict(choice["message"])
        text, tokens = message.pop("content"), (choice.get("logprobs") or {}).get("content") or []
        first = {"index": at, "delta": {**message, "content": text and ""}, "finish_reason": None}
        parts.append({"choices": [first]})
        pieces = [one for one in ((text or "")[:cut], (text or "")[cut:]) if one]
        found: list[Any] = [{"delta": {"content": piece}} for piece in pieces]
        found += [{"logprobs": {"content": [one]}} for one in tokens]
        found += [{"delta": {}, "finish_reason": choice["finish_reason"]}]
        parts += [{"choices": [{"index": at, **one}]} for one in found]
    parts.append({"choices": [], "usage": body.get("usage")})
    return start + b"".join(b"data: %s\n\n" % json.dumps(part).encode() for part in parts) + end


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "tool_calls", "error"])
def test_a_stream_that_nobody_asked_for_says_what_a_whole_reply_says(reason, beside):
    starts = itertools.cycle([b"", b": ping\n\n", b"event: message\n", b"\n"])
    for text, cut in itertools.product(TEXTS, (0, 1, 4)):
        whole = chat(text, reason, BESIDE[beside])
        body = streamed(chat_body(text, reason, BESIDE[beside]), cut, next(starts))
        made: Any = replies.generation(body, Reading())
        assert same(made, whole), (made, whole)
        if isinstance(whole, Failure) and whole.cause != "server_error":
            assert made.message.startswith(f"{whole.message}; the server streams its replies")


def same(one, other):
    if isinstance(one, Failure) and isinstance(other, Failure):
        return (one.cause, one.permanent) == (other.cause, other.permanent)
    if type(one) is not type(other):
        return False
    return one.text == other.text and np.array_equal(one.logprobs, other.logprobs)


def parts(*given):
    return b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in given)


def test_tokens_of_a_stream_are_as_they_were_sent_whatever_they_are_called():
    names = ["index", "delta", "text", "content", "choices", "message", "logprobs", "index"] * 20
    sent = [{name: -0.5, "index": -2.0, "delta": -3.0} for name in names]
    choices: list[Any] = [
        {"index": 0, "text": name, "logprobs": {"tokens": [name], "token_logprobs": [-0.5],
                                                "top_logprobs": [top]}}
        for name, top in zip(names, sent, strict=True)
    ]  # fmt: skip
    choices.append({"index": 0, "text": "", "finish_reason": "stop", "logprobs": {"tokens": []}})
    whole: Any = parsing._parsed(parts(*({"choices": [one]} for one in choices)))
    (made,) = whole["choices"]
    assert made["text"] == "".join(names)
    assert made["logprobs"]["tokens"] == names
    assert made["logprobs"]["top_logprobs"] == sent


@pytest.mark.parametrize("end", ["delta", "message", "both"])
def test_a_choice_without_an_index_is_one_and_a_whole_message_at_the_end_adds_nothing(end):
    body = chat_body("Oh my", "stop")
    (whole,) = body["choices"]
    entries = whole.pop("logprobs")["content"]
    last: list[Any] = [{"delta": {}, "finish_reason": "stop"}, whole]
    choices: list[Any] = [{"delta": {"content": piece}} for piece in ("Oh", " my")]
    choices += [{"logprobs": {"content": [one]}} for one in entries]
    choices += {"delta": last[:1], "message": last[1:], "both": last}[end]
    made = replies.generation(parts(*({"choices": [one]} for one in choices)), Reading())
    assert same(made, chat("Oh my", "stop"))


def test_an_empty_list_of_tokens_stays_one():
    choice = {"delta": {"content": ""}, "finish_reason": "stop", "logprobs": {"content": []}}
    made = replies.generation(parts({"choices": [choice]}), Reading())
    assert isinstance(made, Generation)
    assert made.text == ""


@pytest.mark.parametrize("before", [[], [{"choices": [{"index": 0, "delta": {"content": "Hi"}}]}]])
def test_an_error_in_a_stream_is_what_it_says(before):
    error = {"error": {"message": "the model is overloaded", "code": 503}}
    made = replies.generation(b"event: error\n" + parts(*before, error), Reading())
    assert isinstance(made, Failure)
    assert (made.cause, made.permanent) == ("server_error", False)
    assert "the model is overloaded" in made.message


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: {"cho',
        b"data: [1]\n\ndata: [DONE]\n\n",
        b"data: [DONE]\n\n",
        b"event: ping\n\n",
        b"data: " + b'{"a":' * 900 + b"1" + b"}" * 900 + b"\n\n",
        b"".join(b'data: {"choices": [{"index": %d}]}\n\n' % n for n in range(200)),
        b'data: {"choices": [1]}\n\ndata: [DONE]\n\n',
        b'data: {"choices": []}\n\ndata: [DONE]\n\n',
        b'data: {"text": "H", "content": "H"}\n\ndata: {"text": "Hi", "content": "Hi"}\n\n',
    ],
)
def test_a_stream_that_is_cut_or_makes_no_reply_may_come_whole_the_next_time(body):
    for made in (replies.generation(body, Reading()), choice_from_top(body, labels("A", "B"))):
        assert isinstance(made, Failure)
        assert (made.cause, made.permanent) == ("unparseable", False)
        assert "stream" in made.message


OTHER_INTERFACES = {
    "Ollama": {"message": {"role": "assistant", "content": "Hi"}, "done": True},
    "Anthropic": {"type": "message", "content": [{"type": "text", "text": "Hi"}]},
    "Responses": {"object": "response", "output": [{"type": "message", "content": []}]},
    "Gemini": {"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]},
    "TGI": {"generated_text": "Hi"},
}


@pytest.mark.parametrize("whose", OTHER_INTERFACES)
def test_an_answer_of_another_interface_is_paid_for_once(whose):
    line = json.dumps(OTHER_INTERFACES[whose]).encode()
    for body in (line, line + b"\n" + line + b"\n"):
        for made in (replies.generation(body, Reading()), choice_from_top(body, labels("A", "B"))):
            assert isinstance(made, Failure)
            assert (made.cause, made.retriable, made.scope) == ("unparseable", False, UNCLEAR)
            assert ("base_url" in made.message) == (body is line)


@pytest.mark.parametrize(
    "body", [b"<!DOCTYPE html><p>Log in", b"\n<html>", b"<?xml version='1.0'?>"]
)
def test_a_web_page_in_place_of_an_answer_is_the_servers_state(body):
    made = replies.generation(body, Reading())
    assert isinstance(made, Failure)
    assert (made.retriable, made.permanent, made.scope) == (False, False, UNCLEAR)
    assert "base_url" in made.message


@pytest.mark.parametrize(
    ("usage", "generated"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}, 3),
        ({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 30}, 23),
        ({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 2}, 3),
        ({"prompt_tokens": 7, "completion_tokens": 3}, 3),
    ],
    ids=["in all", "reasoning beside them", "a wrong total", "no total"],
)
@pytest.mark.parametrize("reason", ["stop", "content_filter"])
def test_tokens_are_counted_as_they_are_billed_whether_or_not_there_is_an_answer(
    usage, generated, reason
):
    choice = {"message": {"content": "Hi"}, "finish_reason": reason}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    made = replies.generation(body, Reading(logprobs=False))
    assert isinstance(made, Failure) == (reason == "content_filter")
    assert (made.n_prompt_tokens, made.n_completion_tokens) == (7, generated)
