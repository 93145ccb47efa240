"""No secret among what a model adds to requests is stored with a run."""

import json

import pytest

from orchestrator.errors import RecipeError
from orchestrator.recipe.load import load

HIDDEN = "a-value-of-this-machine"
SHAPED = "hf_" + "abcd" * 8


def loaded(tmp_path, added):
    model = {"base_url": "http://127.0.0.1:1", "extra_body": added}
    path = tmp_path / "r.json"
    recipe = {
        "name": "r",
        "models": {"a": model, "b": model, "c": model},
        "dataset": {"kind": "demo"},
        "methods": [{"kind": "pairwise_ranking", "judges": ["c"], "prompt": "compact"}],
    }
    path.write_text(json.dumps(recipe, indent=1))
    return load(path)


@pytest.mark.parametrize(
    "added",
    [
        {"x": SHAPED},
        {"x": HIDDEN},
        {"deep": [{"x": ["y", SHAPED]}]},
        {"hf_token": "short"},
        {"headers": {"X-Auth-Token": "short"}},
        {"client_secret": "short"},
        {"url": "https://me:hunter2@proxy:3128"},
    ],
)
def test_a_secret_is_refused_with_its_place_and_without_its_value(tmp_path, monkeypatch, added):
    monkeypatch.setenv("OTHER_TOKEN", HIDDEN)
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, added)
    said = str(caught.value)
    assert "models.a.extra_body." in said
    assert "looks like a secret and would be stored with the run" in said
    assert "'api_key_env: NAME'" in said
    assert "r.json:" in said
    assert not any(text in said for text in (SHAPED, HIDDEN, '"short"', "hunter2"))


def test_what_is_no_secret_is_taken(tmp_path):
    added = {
        "eos_token": "</s>",
        "stop_token": "<|im_end|>",
        "max_token": 5,
        "prompt_cache_key": "run-1",
        "lora": [{"id": 0, "scale": 1.0}],
        "service_tier": "flex",
        "monkey": "x",
    }
    assert loaded(tmp_path, added)
