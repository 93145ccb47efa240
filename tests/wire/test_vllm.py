"""Replies of vLLM, sound and odd, to records or failures."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.vllm import wire
from orchestrator.records import Failure
from orchestrator.wire import by_ids, rulings, spelling
from orchestrator.wire._located import MOST_MASS
from orchestrator.wire.by_ids import Reading
from orchestrator.wire.parsing import logprob


def completion(*choices, n_prompt=3, **fields):
    listed = [{"index": i, "finish_reason": "length", **one} for i, one in enumerate(choices)]
    reply = {"choices": listed, "usage": {"prompt_tokens": n_prompt}, **fields}
    return json.dumps(reply).encode()


def prompt_row(*pairs):
    return {str(token): {"logprob": logprob, "rank": 1} for token, logprob in pairs}


def listed(**values):
    names = {f"token_id:{name[1:]}": value for name, value in values.items()}
    return {"logprobs": {"top_logprobs": [names]}}


def forced(body, ids, n_prompt, n_top):
    found = wire.forced(body, ids, n_prompt, n_top, "")
    assert not isinstance(found, Failure), found
    return found


def failure(outcome, cause):
    assert isinstance(outcome, Failure)
    assert outcome.cause == cause
    return outcome


def test_scores_are_read_at_the_places_of_the_continuation():
    rows = [None, prompt_row((7, -1.0)), prompt_row((8, -2.0), (9, -0.5))]
    found = forced(completion({"prompt_logprobs": rows}), (5, 7, 8), 1, 0)
    assert found.logprobs.tolist() == [-1.0, -2.0]
    assert found.top is None


@pytest.mark.parametrize("reason", ["abort", "error", "cancelled"])
def test_a_score_that_the_server_gave_up_is_none(reason):
    rows = [None, prompt_row((7, -1.0))]
    body = completion({"prompt_logprobs": rows, "finish_reason": reason}, n_prompt=2)
    found = failure(wire.forced(body, (5, 7), 1, 0, ""), "server_error")
    assert not found.permanent


def test_a_list_that_sums_above_one_is_refused():
    body = completion(listed(t1=-0.1, t2=-0.1), n_prompt=1)
    assert "sum to 1.8" in failure(wire.looked(body, [(1,)], 1, ""), "unparseable").message
    rows = [None, prompt_row((8, -0.1), (1, -0.1))]
    body = completion({"prompt_logprobs": rows}, n_prompt=2)
    assert "sum to 1.8" in failure(wire.forced(body, (5, 8), 1, 2, ""), "unparseable").message


def test_the_scored_token_is_found_by_its_id_and_not_by_its_rank():
    rows = [None, prompt_row((8, -2.0), (9, -0.5))]
    body = completion({"prompt_logprobs": rows}, n_prompt=2)
    assert forced(body, (5, 9), 1, 0).logprobs.tolist() == [-0.5]


def test_alternatives_of_a_score_are_in_order_and_without_a_worse_scored_token():
    rows = [None, prompt_row((8, -4.0), (1, -0.5), (2, -1.5))]
    body = completion({"prompt_logprobs": rows}, n_prompt=2)
    found = forced(body, (5, 8), 1, 2)
    assert found.top is not None
    assert found.top.token_ids.tolist() == [[1, 2]]
    assert found.top.logprobs.tolist() == [[-0.5, -1.5]]


@pytest.mark.parametrize("n_prompt", [2, 4])
def test_a_prompt_that_was_cut_or_got_a_second_bos_is_found_out(n_prompt):
    rows = [None, prompt_row((7, -1.0)), prompt_row((8, -2.0))]
    body = completion({"prompt_logprobs": rows}, n_prompt=n_prompt)
    found = failure(wire.forced(body, (5, 7, 8), 1, 0, ""), "unparseable")
    assert "3 prompt tokens were sent" in found.message


@pytest.mark.parametrize(
    ("rows", "cause"),
    [
        (None, "no_logprobs"),
        ([None, prompt_row((7, -1.0))], "no_logprobs"),
        ([None, prompt_row((7, -1.0)), None], "unparseable"),
        ([None, prompt_row((7, -1.0)), prompt_row((9, -1.0))], "unparseable"),
        ([None, prompt_row((7, 5.0)), prompt_row((8, -1.0))], "no_logprobs"),
    ],
)
def test_scores_that_are_missing_are_no_numbers(rows, cause):
    failure(wire.forced(completion({"prompt_logprobs": rows}), (5, 7, 8), 1, 0, ""), cause)


@pytest.mark.parametrize(
    ("given", "expected"), [(-9999.0, -math.inf), (-3.4028234663852886e38, -math.inf)]
)
def test_sentinels_of_given_tokens_are_true_zeros(given, expected):
    body = completion({"prompt_logprobs": [None, prompt_row((7, given))]}, n_prompt=2)
    assert forced(body, (5, 7), 1, 0).logprobs.tolist() == [expected]


def test_a_number_that_is_none_stays_undefined():
    body = completion({"prompt_logprobs": [None, prompt_row((7, math.nan))]}, n_prompt=2)
    assert math.isnan(forced(body, (5, 7), 1, 0).logprobs[0])


def test_alternatives_are_read_by_id_in_the_order_of_the_prompts():
    first, second = listed(t1=-0.5, t2=-1.0), listed(t3=-0.25, t4=-3.0)
    body = json.dumps(
        {
            "choices": [{"index": 1, **second}, {"index": 0, **first}],
            "usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}},
        }
    ).encode()
    found = wire.looked(body, [(1, 2), (1, 2, 3)], 2, "")
    assert not isinstance(found, Failure)
    readings, n_cached = found
    assert [read.logprobs for read in readings] == [{1: -0.5, 2: -1.0}, {3: -0.25, 4: -3.0}]
    assert [read.bound for read in readings] == [-1.0, -3.0]
    assert n_cached == 2


def test_a_reply_that_v1_has_mixed_up_is_to_be_asked_again():
    """The reply as seen: the drawn token and id 0 at minus infinity, whatever was asked for."""
    found = wire.looked(completion(listed(t7=-0.1, t0=-9999.0)), [(1, 2, 3)], 4, "")
    assert found is wire.MIXED_UP
    assert not wire.MIXED_UP.permanent


@pytest.mark.parametrize(
    "choice",
    [
        {"logprobs": None},
        {"logprobs": {"top_logprobs": []}},
        {"logprobs": {"top_logprobs": [None]}},
        {"logprobs": {"top_logprobs": [{}]}},
    ],
)
def test_a_reply_without_alternatives_is_no_reading(choice):
    failure(wire.looked(completion(choice), [(1, 2, 3)], 1, ""), "no_logprobs")


@pytest.mark.parametrize(
    "names", [{" five": -1.0}, {"token_id:x": -1.0}, {"token_id:5": None}, {"token_id:5": 3.0}]
)
def test_alternatives_without_ids_or_numbers_are_no_reading(names):
    body = completion({"logprobs": {"top_logprobs": [names]}})
    failure(wire.looked(body, [(1, 2, 3)], 1, ""), "unparseable")


@given(
    st.dictionaries(
        st.integers(0, 10**8),
        st.none() | st.sampled_from([0.0, 1e-3, -9999.0]) | st.floats(-50.0, 5.0),
        min_size=1,
    )
)
def test_alternatives_that_are_read_together_are_those_read_one_by_one(entries):
    body = completion(listed(**{f"t{token}": value for token, value in entries.items()}))
    alone = {token: logprob(value) for token, value in entries.items()}
    found = wire.looked(body, [(1, 2, 3)], 1, "")
    if any(map(math.isnan, alone.values())) or sum(map(math.exp, alone.values())) > MOST_MASS:
        failure(found, "unparseable")
        return
    kept = {token: value for token, value in alone.items() if value > -math.inf}
    if not kept:
        assert found is wire.MIXED_UP
        return
    assert not isinstance(found, Failure)
    assert found[0] == (Reading(kept, min(kept.values())),)


def test_given_ids_are_read_and_no_others_and_zero_is_zero():
    body = completion(listed(t9=-0.1, t5=-20.0, t6=-9999.0))
    found = wire.looked_exactly(body, [(1, 2, 3)], [5, 6], "")
    assert not isinstance(found, Failure)
    assert found[0][0].logprobs == {5: -20.0, 6: -math.inf}


def test_a_server_that_ignores_given_ids_is_told_from_one_that_reads_them():
    body = completion(listed(t9=-0.1, t5=-20.0))
    found = failure(wire.looked_exactly(body, [(1, 2, 3)], [5, 6], ""), "unsupported")
    assert "logprob_token_ids" in found.message


def test_a_token_that_was_drawn_by_force_has_its_number_after_each_prompt():
    body = json.loads(completion(listed(t5=-20.0)))
    body["choices"].append({"index": 1, **listed(t5=-1.0)})
    body["usage"]["prompt_tokens"] = 5
    found = wire.looked_exactly(
        json.dumps(body).encode(), [(1, 2, 3), (1, 2)], [5], "", forced=True
    )
    assert not isinstance(found, Failure)
    assert [read.logprobs for read in found[0]] == [{5: -20.0}, {5: -1.0}]


def test_a_server_that_draws_what_it_likes_is_told_from_one_that_can_be_forced():
    body = completion(listed(t9=-0.7))
    found = failure(wire.looked_exactly(body, [(1, 2, 3)], [5], "", forced=True), "unsupported")
    assert "allowed_token_ids" in found.message


@pytest.mark.parametrize("value", [0.0, -0.3])
def test_a_token_that_is_likely_only_because_it_is_forced_has_no_number(value):
    """The reply of a server with processed log-probabilities for every such token."""
    body = completion(listed(t5=value))
    found = failure(wire.looked_exactly(body, [(1, 2, 3)], [5], "", forced=True), "unsupported")
    assert "raw_logprobs: false" in found.message


def test_fewer_answers_than_prompts_are_found_out():
    failure(wire.looked(completion(listed(t1=-1.0)), [(1,), (1, 2)], 1, ""), "unparseable")


@pytest.mark.parametrize(
    "said",
    [
        "Requested sample logprobs of 1000000, which is greater than max allowed: 64 "
        "(parameter=logprobs, value=1000000)",
        "HTTP 400: Requested prompt logprobs of 99, which is greater than max allowed: 64",
    ],
)
def test_the_most_alternatives_are_learnt_from_a_refusal(said):
    assert rulings.CAP.search(said)
    assert rulings.most_in(said) == 64


def test_another_refusal_says_nothing_of_alternatives():
    assert not rulings.CAP.search("HTTP 400: the prompt is too long: 64")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error": {"message": "no", "code": 500}}'])
@pytest.mark.parametrize(
    "read",
    [
        lambda body: wire.forced(body, (1, 2), 1, 0, ""),
        lambda body: wire.looked(body, [(1,)], 1, ""),
        lambda body: wire.tried(body, ""),
        lambda body: by_ids.token_ids(body, ""),
        lambda body: by_ids.token_texts(body, ""),
        lambda body: by_ids.text(body, ""),
    ],
    ids=["forced", "looked", "tried", "token_ids", "token_texts", "text"],
)
def test_what_is_no_reply_is_a_failure(read, body):
    assert isinstance(read(body), Failure)


def test_every_sampling_field_of_a_reading_is_written_out():
    body = json.loads(wire.look("m", [(1, 2)], 5))
    assert body["temperature"] == 0
    assert body["repetition_penalty"] == body["top_p"] == 1
    assert body["add_special_tokens"] is False
    assert (body["max_tokens"], body["logprobs"]) == (1, 5)


def test_long_names_of_tokens_are_refused_and_not_remembered():
    before = spelling._id_in.cache_info().currsize
    body = completion({"logprobs": {"top_logprobs": [{"token_id:" + "1" * 5000: -0.5}]}})
    found = wire.looked(body, [(1, 2, 3)], 1, "")
    assert isinstance(found, Failure)
    assert spelling._id_in.cache_info().currsize == before
