"""Questions of several turns: columns to messages, followups and a reference for each turn."""

import json

import pytest

from orchestrator.records import Item, Message
from tests.datasets.test_open import message_of, opened

TURNS = ["Name a colour.", "Why that one?"]


@pytest.fixture
def item_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(row, **settings):
        path = tmp_path / "items.jsonl"
        path.write_text(json.dumps(row), encoding="utf-8")
        return opened(path, **settings).item(0)

    return make


@pytest.mark.parametrize("column", ["turns", "prompt", "question"])
def test_a_list_of_texts_becomes_the_question_and_its_followups(item_of, column):
    item = item_of({column: TURNS})
    assert item.messages == (Message("user", TURNS[0]),)
    assert item.followups == (TURNS[1],)


def test_turns_may_be_json_text_as_a_csv_holds_them(item_of):
    assert item_of({"turns": json.dumps(TURNS)}).followups == (TURNS[1],)


def test_one_turn_is_an_ordinary_item(item_of):
    assert item_of({"turns": TURNS[:1]}).followups == ()


def test_references_are_those_of_their_turns(item_of):
    item = item_of({"turns": TURNS, "reference": ["red", "it is warm"]})
    assert item.reference == "red"
    assert [item.reference_of(turn) for turn in (1, 2, 3)] == ["red", "it is warm", None]


def test_a_turn_without_reference_has_none(item_of):
    item = item_of({"turns": TURNS, "reference": [None, "it is warm"]})
    assert [item.reference_of(turn) for turn in (1, 2)] == [None, "it is warm"]


def test_a_single_reference_is_that_of_the_first_turn(item_of):
    item = item_of({"turns": TURNS, "reference": "red"})
    assert [item.reference_of(turn) for turn in (1, 2)] == ["red", None]
    assert item.references == ()


def test_an_empty_list_of_references_is_none(item_of):
    assert item_of({"turns": TURNS, "reference": []}).reference is None


def test_another_followup_is_another_item(item_of):
    keys = {item_of({"turns": [TURNS[0], last]}).key for last in ("Why?", "Why not?")}
    assert len(keys) == 2


def test_text_that_is_no_list_of_turns_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "items.jsonl"
    path.write_text('{"turns": "Name a colour."}', encoding="utf-8")
    assert "for one question set dataset: {fields: {prompt: turns, turns: null}}" in message_of(
        path
    )


def test_a_prompt_beside_turns_is_not_guessed_between(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"prompt": "x", "turns": TURNS}), encoding="utf-8")
    assert "'prompt' and 'turns' could each be the prompt" in message_of(path)
    assert opened(path, fields={"turns": None}).item(0).followups == ()
    assert opened(path, fields={"turns": "turns"}).item(0).followups == (TURNS[1],)


def test_an_item_of_one_turn_has_no_reference_for_a_second():
    item = Item(key="a", messages=(Message("user", "x"),), reference="y")
    assert item.reference_of(2) is None
