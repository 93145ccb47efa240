import json

import pytest

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.records import Label, Message, Prefix, Sampling, labels
from orchestrator.wire import requests
from orchestrator.wire.requests import Dialect

MESSAGES = (Message("system", "s"), Message("user", "ü"))
NATIVE = Dialect(token_ids=True, top_k_off=0)


def generate(sampling=Sampling(), dialect=NATIVE, **ask):  # noqa: B008
    return json.loads(requests.chat("m", GenerateAsk("x", MESSAGES, sampling, **ask), 9, dialect))


def test_every_sampling_field_is_explicit():
    assert generate() == {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "ü"}],
        "max_tokens": 512,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "seed": 9,
        "stream": False,
        "logprobs": True,
        "top_logprobs": 0,
        "return_token_ids": True,
    }


def test_settings_of_the_draw_are_sent():
    sampling = Sampling(max_tokens=3, temperature=0.5, top_p=0.9, top_k=40, stop=("\n",))
    body = generate(sampling)
    assert (body["temperature"], body["top_p"], body["top_k"], body["stop"]) == (
        0.5,
        0.9,
        40,
        ["\n"],
    )


@pytest.mark.parametrize(("wanted", "sent"), [(0, 0), (3, 4), (19, 20), (20, 20), (50, 20)])
def test_one_more_alternative_is_asked_for_where_the_server_lists_so_many(wanted, sent):
    assert generate(top_logprobs=wanted)["top_logprobs"] == sent


def test_a_hosted_dialect_sends_only_what_it_may():
    dialect = Dialect(max_tokens_field="max_completion_tokens", omit=("temperature", "top_p"),
                      logprobs=False, extra={"reasoning_effort": "low"})  # fmt: skip
    body = generate(dialect=dialect)
    assert set(body) == {
        "model", "messages", "max_completion_tokens", "seed", "stream", "reasoning_effort",
    }  # fmt: skip


def test_a_score_asks_for_ids_or_else_for_a_text():
    by_ids = json.loads(requests.score("m", ScoreAsk("x", MESSAGES, (1, 2), "t")))
    by_text = json.loads(requests.score("m", ScoreAsk("x", MESSAGES, (), "t")))
    assert by_ids["token_ids"] == [1, 2]
    assert "text" not in by_ids
    assert by_text["text"] == "t"
    assert "token_ids" not in by_text


@pytest.mark.parametrize(("wanted", "sent"), [(0, None), (5, 5)])
def test_a_score_asks_for_alternatives_where_wanted(wanted, sent):
    ask = ScoreAsk("x", MESSAGES, (1, 2), top_logprobs=wanted)
    assert json.loads(requests.score("m", ask)).get("top_logprobs") == sent


def test_a_score_sends_what_else_is_observed_and_nothing_where_that_is_nothing():
    bare = json.loads(requests.score("m", ScoreAsk("x", MESSAGES, (1, 2))))
    assert not {"features", "end_of_turn"} & bare.keys()
    ask = ScoreAsk("x", MESSAGES, (1, 2), features=("entropy",), end_of_turn=True)
    body = json.loads(requests.score("m", ask))
    assert (body["features"], body["end_of_turn"]) == (["entropy"], True)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (Prefix(), None),
        (Prefix("so "), {"text": "so "}),
        (Prefix("so ", (4, 5)), {"token_ids": [4, 5]}),
    ],
)
def test_a_choice_sends_its_labels_and_its_prefix(prefix, expected):
    asked = (Label("A", ("A", " A")), Label("B", ("B",)))
    body = json.loads(requests.choose("m", ChooseAsk("x", MESSAGES, asked, prefix)))
    assert body["labels"] == [["A", " A"], ["B"]]
    assert body.get("prefix") == expected


def test_a_choice_from_alternatives_draws_one_greedy_token():
    ask = ChooseAsk("x", MESSAGES, labels("A", "B"))
    body = json.loads(requests.choose_by_top("m", ask, Dialect()))
    assert (body["max_tokens"], body["temperature"], body["top_logprobs"]) == (1, 0.0, 20)


def test_bodies_are_the_same_bytes_each_time():
    ask = GenerateAsk("x", MESSAGES, Sampling())
    assert requests.chat("m", ask, 1, NATIVE) == requests.chat("m", ask, 1, NATIVE)


def test_a_lone_surrogate_is_no_text():
    ask = GenerateAsk("x", (Message("user", "\ud800"),), Sampling())
    with pytest.raises(UnicodeEncodeError):
        requests.chat("m", ask, 1, NATIVE)


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([("system", "Be kind."), ("user", "Hello")], [("user", "Be kind.\n\nHello")]),
        ([("system", "Be kind.")], [("user", "Be kind.")]),
        ([("user", "Hello"), ("assistant", "Hi")], [("user", "Hello"), ("assistant", "Hi")]),
    ],
)
def test_a_server_without_the_system_role_is_sent_the_text_in_the_users(messages, sent):
    dialect = Dialect(system_role=False)
    turns = dialect.turns(tuple(Message(*one) for one in messages))
    assert [(turn["role"], turn["content"]) for turn in turns] == sent
