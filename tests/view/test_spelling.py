"""Tokens as text, by places or by the texts that the run wrote down."""

import json
from typing import Any

import numpy as np
import pytest

from orchestrator.ask import GenerateAsk
from orchestrator.recipe.load import loads
from orchestrator.records import Generation, Sampling, TopLogprobs
from orchestrator.runner.results.token_texts import Speller
from orchestrator.view.item import _tokens


@pytest.fixture
def recipe(tmp_path):
    text = {
        "name": "x",
        "models": {"far": {"base_url": "http://127.0.0.1:1/v1"}},
        "dataset": {"kind": "demo"},
        "methods": [{"kind": "answers"}],
    }
    return loads(json.dumps(text).encode(), tmp_path / "x.json")


def test_texts_that_the_run_wrote_down_spell_the_text(recipe):
    whole = "naïve €"
    tokens = [b"na", "ï".encode()[:1], "ï".encode()[1:], b"ve ", "€".encode()]
    speller = Speller(recipe, {"far": dict(enumerate(tokens))})
    assert speller.pieces("far", range(5), whole) == ["na", "", "ï", "ve ", "€"]
    assert speller.one("far", 3) == "ve "
    assert speller.one("far", 7) is None


def test_places_spell_the_tokens_of_any_server(recipe):
    speller = Speller(recipe)
    offsets = np.array([0, 2, 2, 5], dtype=np.int32)
    assert speller.pieces("far", [1, 2, 3, 4], "ab cd e", offsets) == ["ab", "", " cd", " e"]


def test_nobody_spells_the_tokens_of_a_server_without_places_and_texts(recipe):
    assert Speller(recipe).pieces("far", [1], "a") is None
    assert Speller(recipe).pieces("of another recipe", [1], "a") is None
    assert Speller(recipe).pieces("far", [], "") == []


@pytest.mark.parametrize("spelled", [{}, {7: b"a"}, {8: "\u202e".encode()}, {7: b"a", 8: b"<b>"}])
def test_an_alternative_is_shown_by_its_text_if_that_is_known_and_by_its_number(recipe, spelled):
    top = TopLogprobs(np.array([[7, 8]], np.int32), np.array([[-1.0, -2.0]], np.float32))
    made = Generation("a", "stop", token_ids=np.array([7], np.int32), top=top)
    ask = GenerateAsk("far", (), Sampling())
    tokens: Any = _tokens(ask, made, Speller(recipe, {"far": spelled}))["tokens"]
    shown = {7: "a", 8: "<b>" if spelled.get(8) == b"<b>" else "\\u202e"}
    expected = [shown[number] if number in spelled else None for number in (7, 8)]
    assert tokens["top"] == [[[expected[0], 7, -1.0], [expected[1], 8, -2.0]]]
