import json
import math

import numpy as np
import pytest

from orchestrator.records import UNCLEAR, Failure, Generation
from orchestrator.wire import parsing, replies
from orchestrator.wire.drawn import Reading
from tests.wire.bodies import chat, entry

PLAIN = Reading()
END = entry("<|im_end|>", -0.1)


def read(body, **reading):
    outcome = replies.generation(body, Reading(**reading))
    assert isinstance(outcome, Generation), outcome
    return outcome


def fail(body, **reading):
    outcome = replies.generation(body, Reading(**reading))
    assert isinstance(outcome, Failure), outcome
    return outcome


@pytest.mark.parametrize(("name", "tokens", "k"), [("judge", 1, 20), ("small", 32, 5)])
def test_recorded_bodies_give_every_number(recorded, name, tokens, k):
    outcome = read(recorded[name], top=k)
    content = json.loads(recorded[name])["choices"][0]["logprobs"]["content"]
    expected = np.array([one["logprob"] for one in content], dtype=np.float32)
    np.testing.assert_array_equal(outcome.logprobs, expected)
    assert outcome.finish_reason == "length"
    assert outcome.n_prompt_tokens == 5
    assert outcome.top is not None
    assert outcome.top.logprobs.shape == (tokens, k)


def test_a_large_recorded_body_is_read_whole(recorded):
    outcome = read(recorded["large"], top=20)
    assert outcome.logprobs is not None
    assert outcome.logprobs.shape == (256,)
    assert outcome.logprobs.dtype == np.float32
    assert outcome.n_completion_tokens == 256


def test_alternatives_are_ranked_though_the_drawn_token_comes_first(recorded):
    top = read(recorded["small"], top=4).top
    assert top is not None
    assert (np.diff(top.logprobs, axis=1) <= 0).all()


def test_one_more_alternative_than_wanted_gives_the_exact_best():
    listed = [("x", -9.0), ("a", -0.5), ("b", -1.5)]
    top = read(chat("x", [entry("x", -9.0, listed)], "length"), top=2).top
    assert top is not None
    assert top.logprobs.tolist() == [[-0.5, -1.5]]


def test_a_drawn_token_that_pushed_out_another_is_not_among_the_best():
    listed = [("x", -9.0), ("a", -0.5), ("b", -1.5)]
    top = read(chat("x", [entry("x", -9.0, listed)], "length"), top=3).top
    assert top is not None
    assert top.logprobs[0, :2].tolist() == [-0.5, -1.5]
    assert math.isnan(top.logprobs[0, 2])


def test_alternatives_are_named_where_the_server_names_texts_only():
    body = chat("x", [entry("x", -0.5, [("x", -0.5), ("y", -2.0)])], "length")
    made = read(body, top=2)
    assert made.top is not None
    assert made.token_ids is None
    assert [made.names[-2 - one] for one in made.top.token_ids[0].tolist()] == [b"x", b"y"]


def test_tokens_that_are_named_by_texts_have_their_places():
    body = chat("ab c", [entry("ab", -0.5), entry(" c", -0.5)], "length")
    made = read(body)
    assert made.offsets is not None
    assert (made.offsets.tolist(), made.names) == ([0, 2], ())


def test_tokens_that_do_not_spell_the_text_keep_their_own_texts():
    tokens = [entry(text, -0.5) for text in ("bytes:\\xc3", "\ufffd", "!")]
    body = chat("é!", [one | {"bytes": None} for one in tokens], "length")
    made = read(body)
    assert made.offsets is None
    assert made.named is not None
    texts = [made.names[-2 - one] for one in made.named.tolist()]
    assert texts == [b"\xc3", "\ufffd".encode(), b"!"]


def test_ids_that_were_not_asked_for_do_not_stand_in_the_way_of_texts():
    listed = [("x", -0.5), ("y", -2.0)]
    one = entry("x", -0.5, listed, id=7)
    for n, alternative in enumerate(one["top_logprobs"]):
        alternative["id"] = 7 + n
    body = chat("x", [one], "length")
    assert read(body, top=2).token_ids.tolist() == [7]
    made = read(body, top=2, ids=False)
    assert (made.token_ids, made.offsets.tolist()) == (None, [0])
    assert [made.names[-2 - one] for one in made.top.token_ids[0].tolist()] == [b"x", b"y"]


def test_ids_written_as_placeholders_are_read():
    listed = [("token_id:7", -0.5), ("token_id:9", -2.0)]
    outcome = read(chat("x", [entry("token_id:7", -0.5, listed)], "length"), top=2)
    assert outcome.token_ids is not None
    assert outcome.token_ids.tolist() == [7]
    assert outcome.top is not None
    assert outcome.top.token_ids.tolist() == [[7, 9]]


def test_the_stop_token_is_dropped_from_ids_and_logprobs():
    body = chat("four", [entry("fo", -1.0), entry("ur", -2.0), END], token_ids=[5, 6, 2])
    outcome = read(body)
    assert outcome.token_ids is not None
    assert outcome.logprobs is not None
    assert outcome.token_ids.tolist() == [5, 6]
    assert outcome.logprobs.tolist() == [-1.0, -2.0]


def test_nothing_is_dropped_where_the_server_left_the_stop_token_out():
    outcome = read(chat("four", [entry("fo", -1.0), entry("ur", -2.0)]))
    assert outcome.logprobs is not None
    assert outcome.logprobs.tolist() == [-1.0, -2.0]


def test_ids_without_the_stop_token_are_aligned_with_logprobs_that_have_it():
    outcome = read(chat("four", [entry("four", -1.0), END], token_ids=[5]))
    assert outcome.token_ids is not None
    assert outcome.logprobs is not None
    assert len(outcome.token_ids) == len(outcome.logprobs) == 1


def test_tokens_of_a_stop_string_are_dropped():
    entries = [entry("one", -1.0), entry("\n", -2.0), entry("two", -3.0)]
    outcome = read(chat("one", entries, token_ids=[1, 2, 3]))
    assert outcome.logprobs is not None
    assert outcome.logprobs.tolist() == [-1.0]


def test_an_end_token_after_bytes_of_a_character_is_dropped():
    broken = {"token": "", "logprob": -1.0, "bytes": []}
    entries = [broken, entry("ok", -2.0), END]
    outcome = read(chat("\ufffdok", entries))
    assert outcome.logprobs is not None
    assert outcome.logprobs.tolist() == [-1.0, -2.0]


def test_a_text_cut_by_length_keeps_its_last_token():
    outcome = read(chat("on", [entry("on", -1.0)], "length", token_ids=[4]))
    assert outcome.token_ids is not None
    assert outcome.token_ids.tolist() == [4]


def test_an_empty_answer_has_no_tokens():
    outcome = read(chat("", [END], token_ids=[2]))
    assert outcome.text == ""
    assert outcome.logprobs is not None
    assert outcome.logprobs.size == 0
    assert math.isnan(outcome.mean_logprob)


def test_tokens_of_reasoning_are_not_those_of_the_answer():
    entries = [entry("hm", -1.0), entry("</think>", -2.0), entry("yes", -3.0), END]
    outcome = read(chat("yes", entries, reasoning="hm"))
    assert outcome.logprobs is not None
    assert outcome.logprobs.tolist() == [-3.0]


@pytest.mark.parametrize("number", [-9999.0, -3.4028234663852886e38])
def test_sentinels_are_minus_infinity(number):
    outcome = read(chat("x", [entry("x", number)], "length"))
    assert outcome.logprobs is not None
    assert outcome.logprobs.tolist() == [-math.inf]


def test_null_is_nan():
    outcome = read(chat("x", [entry("x", None)], "length"))
    assert outcome.logprobs is not None
    assert math.isnan(outcome.logprobs[0])


@pytest.mark.parametrize(("literal", "expected"), [(b"NaN", math.nan), (b"-Infinity", -math.inf)])
def test_literals_that_json_does_not_have_are_read(literal, expected):
    body = chat("x", [entry("x", -1.5)], "length").replace(b"-1.5", literal)
    outcome = read(body)
    assert outcome.logprobs is not None
    np.testing.assert_array_equal(outcome.logprobs, np.array([expected], dtype=np.float32))


def test_logits_are_not_taken_for_log_probabilities():
    assert fail(chat("x", [entry("x", 3.5)], "length")).cause == "no_logprobs"


def test_missing_logprobs_are_a_failure():
    failure = fail(chat("x", None))
    assert (failure.cause, failure.permanent, failure.scope) == ("no_logprobs", False, UNCLEAR)


def test_missing_logprobs_are_fine_where_not_asked_for():
    outcome = read(chat("x", None), logprobs=False)
    assert outcome.text == "x"
    assert outcome.logprobs is None


@pytest.mark.parametrize("reason", ["abort", "error", "ERROR", "cancelled"])
def test_an_unfinished_answer_is_a_failure_of_the_moment(reason):
    failure = fail(chat("x", [entry("x", -1.0)], reason))
    assert (failure.cause, failure.permanent) == ("server_error", False)


def test_other_numbers_of_ids_and_logprobs_are_a_failure():
    failure = fail(chat("xy", [entry("x", -1.0), entry("y", -1.0)], "length", token_ids=[1]))
    assert failure.cause == "unparseable"


@pytest.mark.parametrize(
    ("body", "cause", "permanent"),
    [
        (b"", "unparseable", False),
        (b'{"choices": [{"mess', "unparseable", False),
        (b"<html>gateway</html>", "unparseable", False),
        (b"[" * 100_000, "unparseable", False),
        (b'"\xff"', "unparseable", False),
        (b'{"choices": "none"}', "unparseable", True),
        (b'{"choices": [7]}', "unparseable", True),
        (b'{"choices": []}', "unparseable", False),
        (b"{}", "unparseable", False),
        (b'{"error": {"message": "no", "code": 500}}', "server_error", False),
        (b'{"error": "EngineCore encountered an issue"}', "dead_server", False),
        (b'{"object": "error", "message": "busy", "code": 429}', "rate_limited", False),
        (b'{"error": {"message": "too many tokens", "code": 400}}', "too_long", True),
    ],
)
def test_bad_bodies_are_failures_with_a_cause(body, cause, permanent):
    failure = fail(body)
    assert (failure.cause, failure.permanent) == (cause, permanent)


def test_a_body_over_the_limit_is_not_parsed():
    failure = fail(b" " * (parsing.MAX_BODY_BYTES + 1))
    assert (failure.cause, failure.permanent) == ("unparseable", True)
    assert "64 MiB" in failure.message


def test_a_lone_surrogate_in_a_text_is_replaced():
    body = chat("x", [entry("?", -1.0)], "length").replace(
        b'"content": "x"', rb'"content": "\ud800"'
    )
    assert read(body).text == "?"


def test_an_answer_of_megabytes_is_refused():
    text = "a" * (4 * 2**20 + 1)
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    failure = fail(json.dumps(body).encode(), logprobs=False)
    assert (failure.cause, failure.permanent) == ("unparseable", True)
    assert "longer than 4 MiB" in failure.message


def test_one_long_list_does_not_make_all_lists_long():
    short: list[dict[str, object]] = [{"token": "a", "logprob": -1.0}]
    long: list[dict[str, object]] = [{}] * 20_000
    listed: list[dict[str, object]] = [{**short[0], "top_logprobs": short}] * 500
    listed[7] = {**short[0], "top_logprobs": long}
    choice = {"message": {"content": "a" * 500}, "finish_reason": "stop"}
    body = {"choices": [{**choice, "logprobs": {"content": listed}}]}
    failure = fail(json.dumps(body).encode(), top=2)
    assert "more than 8,388,608 alternatives" in failure.message


def _put(path, value):
    def change(reply):
        place = reply
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return reply

    return change


OF_A_CHOICE = ("choices", 0)
OF_AN_ENTRY = (*OF_A_CHOICE, "logprobs", "content", 0)
ODD = {
    "reason as an object": _put((*OF_A_CHOICE, "finish_reason"), {"type": "stop"}),
    "refusal: 0": _put((*OF_A_CHOICE, "message", "refusal"), 0),
    "refusal as a list": _put((*OF_A_CHOICE, "message", "refusal"), []),
    "content as an object": _put((*OF_A_CHOICE, "message", "content"), {"text": "ab c"}),
    "message as a text": _put((*OF_A_CHOICE, "message"), "ab c"),
    "ids as an object": _put((*OF_A_CHOICE, "token_ids"), {}),
    "bytes in base64": _put((*OF_AN_ENTRY, "bytes"), "QUJD"),
    "no alternatives: null": _put((*OF_AN_ENTRY, "top_logprobs"), None),
    "alternatives by token": _put((*OF_AN_ENTRY, "top_logprobs"), {"ab": -0.1}),
    "a number as a text": _put((*OF_AN_ENTRY, "logprob"), "-0.1"),
    "a list of one reply": lambda reply: [reply],
    "usage as a text": _put(("usage",), "x"),
}


@pytest.mark.parametrize("top", [0, 1])
@pytest.mark.parametrize("odd", ODD)
def test_a_part_that_is_written_otherwise_costs_no_answer(odd, top):
    entries = [
        {"token": token, "logprob": -0.1, "top_logprobs": [{"token": token, "logprob": -0.1}]}
        for token in ("ab", " c")
    ]
    choice = {"finish_reason": "stop", "message": {"content": "ab c"}}
    reply = {"choices": [{**choice, "logprobs": {"content": entries}}]}
    body = json.dumps(ODD[odd](reply)).encode()
    got = replies.generation(body, Reading(top=top))
    assert isinstance(got, Generation)
    assert (got.text, got.finish_reason) == ("ab c", "stop")
    assert got.logprobs is not None
    assert got.logprobs.tolist() == pytest.approx([-0.1, -0.1])


def test_a_shape_that_no_reply_has_is_the_servers_until_others_are_answered():
    failure = fail(b'{"choices": {"0": {}}}')
    assert (failure.cause, failure.permanent, failure.scope) == ("unparseable", True, UNCLEAR)
    assert fail(b" ").message == "empty reply"
