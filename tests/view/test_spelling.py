"""Tokens as text, by places or by a tokenizer on this machine."""

import json

import numpy as np
import pytest

from orchestrator import contracts, plugins
from orchestrator.recipe.load import loads
from orchestrator.runner.results.token_texts import Speller

pytestmark = pytest.mark.models


embedded = contracts.load(plugins.LAUNCH, "embedded")


@pytest.fixture
def recipe(tmp_path):
    text = {
        "name": "x",
        "models": {
            "here": {"server": "embedded", "weights": "bundled:expert"},
            "far": {"base_url": "http://127.0.0.1:1/v1"},
        },
        "dataset": {"kind": "demo"},
        "methods": [{"kind": "answers"}],
    }
    return loads(json.dumps(text).encode(), tmp_path / "x.json")


@pytest.fixture
def identity(recipe):
    launch = embedded(recipe.models["here"].server.config)
    found = launch.tokenizer("bundled:expert")
    assert found is not None
    _, digest = found
    assert launch.identity("bundled:expert")["tokenizer"] == digest
    return {"tokenizer": digest}


def encoded(text):
    found = embedded(embedded.Config()).tokenizer("bundled:expert")
    assert found is not None
    path, _ = found
    tokenizers = pytest.importorskip("tokenizers")
    return tokenizers.Tokenizer.from_file(str(path)).encode(text).ids


@pytest.mark.parametrize("text", ["6 0 9 5", "naïve €", "Sort: y o c", "日本", ""])
def test_pieces_spell_the_text(recipe, identity, text):
    speller = Speller(recipe, {"here": identity})
    ids = encoded(text)
    pieces = speller.pieces("here", ids, text, None)
    assert pieces is not None
    assert len(pieces) == len(ids)
    assert "".join(pieces) == text


def test_another_tokenizer_in_the_same_place_is_not_used(recipe):
    speller = Speller(recipe, {"here": {"tokenizer": "another"}})
    assert speller.one("here", 25) is None
    assert speller.pieces("here", [25], "6", None) is None


def test_places_spell_the_tokens_of_any_server(recipe):
    speller = Speller(recipe, {})
    offsets = np.array([0, 2, 2, 5], dtype=np.int32)
    assert speller.pieces("far", [1, 2, 3, 4], "ab cd e", offsets) == ["ab", "", " cd", " e"]


def test_nobody_spells_the_tokens_of_a_server_without_places(recipe):
    assert Speller(recipe, {}).pieces("far", [1], "a", None) is None
    assert Speller(recipe, {}).pieces("of another recipe", [1], "a", None) is None
