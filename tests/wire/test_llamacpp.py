import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.llamacpp import completions, wire
from orchestrator.ask import GenerateAsk
from orchestrator.records import Failure, Message, Sampling
from orchestrator.wire import replies
from orchestrator.wire.by_ids import Reading as NodeReading
from orchestrator.wire.drawn import Reading
from orchestrator.wire.failures import Failed, known

PIECES = st.lists(st.binary(min_size=0, max_size=4), max_size=8)


def completion(ids, told, content, **fields):
    """A reply in which those tokens are told of that are in `told`."""
    entries = [
        {"id": token, "token": "?", "bytes": [63], "logprob": -float(token), "top_logprobs": []}
        for token in told
    ]
    reply = {
        "content": content, "tokens": ids, "stop_type": "limit", "tokens_predicted": len(ids),
        "tokens_evaluated": 3, "truncated": False, "timings": {"cache_n": 2},
        "completion_probabilities": entries, **fields,
    }  # fmt: skip
    return json.dumps(reply).encode()


def drafted(body):
    made = completions.draft(body, 3, "")
    assert isinstance(made, completions.Draft)
    return made


@given(st.text(max_size=12))
def test_whole_characters_do_not_end_inside_one(text):
    assert not completions.ends_inside(text.encode("utf-8", "replace"))


def test_a_character_that_is_cut_ends_inside_whatever_its_first_byte():
    lasts = {chr(code).encode()[0]: chr(code) for code in range(0x80, 0xD800)}
    lasts |= {chr(code).encode()[0]: chr(code) for code in range(0xE000, 0x110000, 0x400)}
    assert sorted(lasts) == [*range(0xC2, 0xF5)]
    for last in lasts.values():
        for before in ("", "a", "é", "😀"):
            whole = (before + last).encode()
            cut = [whole[:-n_missing] for n_missing in range(1, len(last.encode()))]
            assert all(map(completions.ends_inside, cut))
            assert not completions.ends_inside(whole)


@given(PIECES)
def test_stretches_cover_all_tokens_once_and_in_order(spelled):
    cuts = list(wire.runs(spelled, b"</s>"))
    assert [at for begin, stop in cuts for at in range(begin, stop)] == list(range(len(spelled)))


@given(PIECES)
def test_stretches_of_several_hold_only_what_a_grammar_takes(spelled):
    for begin, stop in wire.runs(spelled, b"ab"):
        if stop - begin > 1:
            some = spelled[begin:stop]
            assert all(wire.is_forcible(piece) and piece != b"ab" for piece in some)


@pytest.mark.parametrize("piece", [b"", b"\0", b"\xe6", b"<|im_end|>", b"</s>", b"[EOS]", b"x</s>"])
def test_what_a_grammar_can_not_force_stands_alone(piece):
    assert not wire.is_forcible(piece)


@pytest.mark.parametrize("piece", [b"[[", b">>", b"<", b" a", "é".encode(), b"[b]", b"]]"])
def test_plain_tokens_are_forced_by_a_grammar(piece):
    assert wire.is_forcible(piece)


def test_numbers_of_drawn_pieces_go_to_the_tokens_that_end_a_character():
    """Twice three bytes, of which the second and the third are the same token."""
    made = drafted(completion([7, 8, 8, 7, 8, 8], [8, 8], "漼漼"))
    spelled = [b"\xe6", b"\xbc", b"\xbc"] * 2
    assert completions.place(made, spelled) == [0, 1, 3, 4]
    for at in (0, 1, 3, 4):
        reading = NodeReading({7: -0.5, 8: -0.25})
        completions.fill(made, at, reading, 1)
    drawn = completions.generation(made, Reading(top=0))
    assert drawn.logprobs is not None
    assert drawn.logprobs.tolist() == [-0.5, -0.25, -8, -0.5, -0.25, -8]


def test_tokens_behind_a_stop_string_are_not_looked_up():
    made = drafted(completion([1, 2, 3, 4], [1, 2], "ab", stop_type="word"))
    assert completions.place(made, [b"a", b"b", b"#", b"#"]) == []
    drawn = completions.generation(made, Reading())
    assert (drawn.text, drawn.finish_reason) == ("ab", "stop")
    assert drawn.token_ids is not None
    assert drawn.logprobs is not None
    assert drawn.token_ids.tolist() == [1, 2]
    assert drawn.logprobs.tolist() == [-1, -2]


def test_tokens_of_the_text_that_a_stop_string_took_with_it_are_looked_up():
    made = drafted(completion([1, 2, 3], [1], "ab", stop_type="word"))
    assert completions.place(made, [b"a", b"b", b"#"]) == [1]


def test_entries_that_fit_no_token_are_a_failure():
    made = drafted(completion([1, 2], [2], "ab"))
    with pytest.raises(Failed):
        completions.place(made, [b"a", b"b"])


def test_what_can_not_be_looked_up_is_unknown():
    made = drafted(completion([7, 8], [8], "é"))
    assert completions.place(made, [b"\xc3", b"\xa9"]) == [0]
    completions.fill(made, 0, NodeReading({1: -1.0}), 1)
    drawn = completions.generation(made, Reading())
    assert drawn.logprobs is not None
    assert math.isnan(drawn.logprobs[0])


@pytest.mark.parametrize("stop_type", ["none", "", "odd"])
def test_an_unfinished_answer_is_a_failure(stop_type):
    made = completions.draft(completion([1], [1], "a", stop_type=stop_type), 3, "")
    if not isinstance(made, Failure):
        with pytest.raises(Failed):
            completions.generation(made, Reading())


def test_a_forced_token_that_is_not_told_of_has_a_failure_of_its_own():
    found = completions.forced(completion([7], [], ""), 3, (7,), "")
    assert isinstance(found, Failure)
    assert found.cause == completions.FRAGMENT


def test_what_is_too_small_for_float32_is_bounded_by_that():
    listed = [{"id": 1, "logprob": -0.5}, {"id": 2, "logprob": -3.4028234663852886e38}]
    entry = {"id": 9, "token": "a", "bytes": [97], "logprob": -7.0, "top_logprobs": listed}
    body = completion([9], [], "a", completion_probabilities=[entry])
    found = completions.looked(known(completions.forced(body, 3, (9,), "")), 9)
    assert found[0] == NodeReading({1: -0.5, 9: -7.0}, -103.0)


def test_a_list_bounds_what_is_not_on_it_and_holds_what_was_drawn():
    listed = [{"id": 1, "logprob": -0.5}, {"id": 2, "logprob": -1.5}]
    entry = {"id": 9, "token": "a", "bytes": [97], "logprob": -7.0, "top_logprobs": listed}
    body = completion([9], [], "a", completion_probabilities=[entry])
    found = completions.looked(known(completions.forced(body, 3, (9,), "")), 9)
    assert found[0] == NodeReading({1: -0.5, 2: -1.5, 9: -7.0}, -1.5)


def test_greedy_and_sampled_draws_name_their_samplers():
    prompt = (Message("user", "x"),)
    greedy = GenerateAsk("m", prompt, Sampling(max_tokens=4))
    warm = GenerateAsk("m", prompt, Sampling(temperature=0.7, top_k=5, top_p=0.9), top_logprobs=3)
    first = json.loads(wire.generate((1,), greedy, 5, {}))
    second = json.loads(wire.generate((1,), warm, 5, {}))
    assert (first["samplers"], first["top_k"], first["n_probs"]) == (["top_k"], 1, 1)
    assert second["samplers"] == ["temperature", "top_k", "top_p"]
    assert (second["seed"], second["top_k"], second["n_probs"]) == (5, 5, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1e+01\n", (2, 10, None)),
        (b"llamacpp:prompt_tokens_total 30\nllamacpp:prompt_tokens_cached_total 12\n",
         (None, None, 42)),
        (b"llamacpp:requests_processing nan\n", None),
        (b"requests_processing 3\n", None),
    ],
)  # fmt: skip
def test_load_figures_are_read(text, expected):
    found = replies.load_figures(text, "m")
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.running, found.waiting, found.prefix_queries) == expected
