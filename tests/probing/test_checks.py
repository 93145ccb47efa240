"""From replies to findings: each question answered rightly for a good and for a bad server."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probing import checks
from orchestrator.probing.record import BAD, GOOD, UNKNOWN, WARNING
from orchestrator.probing.replies import HttpReply
from orchestrator.records import Failure, Generation, Scored
from tests.probing.bodies import chat, refusal, reply

TOP = {"a": -0.5, "b": -1.5, "c": -2.5, "d": -3.5, "e": -4.5}
ONE = ("a", TOP)


def values(findings):
    return {finding.name: finding.value for finding in findings}


def generation(*logprobs):
    return Generation("x", "stop", logprobs=np.array(logprobs, np.float32))


def scored(*logprobs):
    return Scored(np.arange(len(logprobs), dtype=np.int32), np.array(logprobs, np.float32))


def test_a_server_that_gives_all_has_logprobs_and_ids():
    found = values(checks.logprobs(chat(ONE, ids=[7]), 5))
    assert (found["chat"], found["logprobs"], found["token_ids"]) == ("yes", "yes", "yes")


def test_missing_logprobs_missing_ids_and_no_chat_are_told_apart():
    assert values(checks.logprobs(chat(text="hi"), 5))["logprobs"] == "no"
    assert values(checks.logprobs(chat(ONE), 5))["token_ids"] == "no"  # noqa: S105
    assert values(checks.logprobs(HttpReply(404, b"Not Found"), 5))["chat"] == "no"


def test_a_logprob_that_stands_for_nothing_is_none():
    assert values(checks.logprobs(chat(("a", {"a": -9999.0})), 1))["logprobs"] == "no"


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("Requested sample logprobs of 10000, which is greater than max allowed: 50", "50"),
        ("Invalid value for 'top_logprobs': must be less than or equal to 20.", "20"),
        ("`top_n_tokens` must be <= 5", "5"),
    ],
)
def test_the_cap_is_read_from_the_refusal(words, most):
    assert checks.cap(refusal(words)).value == most


def test_a_cap_that_is_not_said_is_not_known_and_a_long_list_is_one():
    assert checks.cap(refusal("no")).value == "unknown"
    assert checks.cap(chat(ONE)).value == "5"


def test_equal_scores_are_consistent_and_the_largest_difference_is_kept():
    found = checks.consistency([(generation(-1, -2), scored(-1, -2)),
                                (generation(-3), scored(-3.0004))])  # fmt: skip
    assert (found.value, found.state) == ("consistent", GOOD)
    assert found.number == pytest.approx(4e-4, rel=1e-2)
    assert "3 tokens" in found.said


@pytest.mark.parametrize(
    ("gap", "value"), [(0.03, "consistent"), (0.2, "noisy"), (2, "inconsistent")]
)
def test_differences_are_rounding_or_doubtful_or_wrong(gap, value):
    assert checks.consistency([(generation(-1, -2), scored(-1 - gap, -2))]).value == value


def test_scores_one_token_off_are_named_so():
    drawn, late = generation(-1, -5, -0.1, -3), scored(-9, -1, -5, -0.1)
    found = checks.consistency([(drawn, late)])
    assert (found.value, found.state) == ("inconsistent", BAD)
    assert "shifted by one token" in found.said


@given(st.lists(st.floats(-20, 0), min_size=4, max_size=12), st.integers(0, 3), st.floats(0.6, 9))
def test_one_wrong_score_is_never_called_consistent(logprobs, at, gap):
    wrong = list(logprobs)
    wrong[at] -= gap
    assert checks.consistency([(generation(*logprobs), scored(*wrong))]).state == BAD


def test_scores_that_are_missing_or_of_other_tokens_or_no_numbers():
    unable = Failure("unsupported", "can't score", permanent=True)
    down = Failure("timeout", "no reply")
    assert checks.consistency([(generation(-1), unable)]).value == "no"
    assert checks.consistency([(generation(-1), down)]).value == "unknown"
    assert checks.consistency([(generation(-1), scored(-1, -2))]).value == "other_tokens"
    assert checks.consistency([(generation(-1), scored(np.nan))]).value == "inconsistent"
    assert checks.consistency([(generation(), scored())]).value == "unknown"


def test_logprobs_that_change_with_the_temperature_are_scaled():
    sharp = {token: 2 * value for token, value in TOP.items()}
    assert checks.temperature(chat(ONE), chat(ONE)).value == "raw"
    assert checks.temperature(chat(ONE), chat(("a", sharp))).value == "scaled"
    assert checks.temperature(chat(ONE), refusal("no")).value == "unknown"


def test_equally_likely_tokens_say_nothing_about_temperature():
    flat = dict.fromkeys("abcde", -1.6)
    assert checks.temperature(chat(("a", flat)), chat(("a", flat))).value == "unknown"


def test_a_seed_is_honoured_or_ignored_or_not_known():
    one, other = chat(text="x"), chat(text="y")
    assert checks.seed([one, one], [other, one]).value == "honoured"
    assert checks.seed([one, other], [other]).value == "ignored"
    assert checks.seed([one, one], [one]).value == "unknown"
    assert checks.seed([one, refusal("no")], [other]).state == UNKNOWN


def test_given_ids_are_read_only_where_all_come_back():
    listed = chat(("token_id:9", {"token_id:9": -0.1, "token_id:4": -9.0, "token_id:5": -9.5}))
    assert checks.label_ids(listed, [4, 5]).value == "yes"
    assert checks.label_ids(listed, [4, 6]).value == "no"
    assert checks.label_ids(refusal("unknown field"), [4]).value == "no"


def test_replies_that_change_beside_others_are_corrupt():
    spoiled = chat(("a", {"a": -0.5, "!": -9999.0}))
    assert checks.mixing([chat(ONE)], [chat(ONE)]).value == "clean"
    found = checks.mixing([chat(ONE), chat(ONE)], [chat(ONE), spoiled])
    assert (found.value, found.state) == ("corrupts", WARNING)
    assert "1 of 2" in found.said


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
                        ["choices", "message", "logprobs", "content", "top_logprobs", "token",
                         "logprob", "usage", "token_ids", "id"]), inner)))  # fmt: skip
def test_no_reply_is_odd_enough_to_raise(table):
    odd = reply(table)
    checks.logprobs(odd, 5)
    checks.cap(odd)
    checks.temperature(odd, odd)
    checks.seed([odd, odd], [odd])
    checks.label_ids(odd, [1])
    checks.mixing([odd], [odd])
