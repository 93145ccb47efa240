"""Base models and reasoning models in a recipe: what may be said, and what it decides."""

import json

import pytest

from orchestrator.errors import RecipeError, UsageError
from orchestrator.recipe.load import load
from orchestrator.runner.models.identity import model_identity
from orchestrator.runner.planning.prepare import prepare

URL = {"base_url": "http://127.0.0.1:1"}


@pytest.fixture
def load_models(tmp_path):
    def make(*methods, **models):
        chosen = methods or ({"kind": "answers"},)
        recipe = {"models": models, "dataset": {"kind": "demo", "n": 2}, "methods": chosen}
        path = tmp_path / "made.yaml"
        path.write_text(json.dumps(recipe), encoding="utf-8")
        return load(path)

    return make


def test_a_base_model_and_a_reasoning_model_are_other_models(load_models):
    loaded = load_models(
        chat=URL,
        base={**URL, "template": "none"},
        reasoning={**URL, "thinking": {}},
        other={**URL, "thinking": {"end": "[/THINK]"}},
    )
    identities = [{**model_identity(spec), "model": "same"} for spec in loaded.models.values()]
    assert len({json.dumps(identity, sort_keys=True) for identity in identities}) == 4


def test_the_resolved_entry_leads_to_the_same_model(load_models):
    entry = {**URL, "template": "none", "thinking": {"end": "</t>"}}
    spec = load_models(m=entry).models["m"]
    again = load_models(m=spec.resolved()).models["m"]
    assert (again.plain, again.thinking_end) == (spec.plain, spec.thinking_end) == (True, "</t>")
    assert "template" not in load_models(m=URL).models["m"].resolved()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({**URL, "template": "none", "system": "x"}, "a base model .* cannot have a system prompt"),
        ({**URL, "template": "mine"}, "template"),
        ({**URL, "thinking": {"end": ""}}, "thinking.end"),
        (
            {"answers": {"field": "x"}, "thinking": {}},
            "can be used only with 'server' or 'base_url'",
        ),
        ({"base_url": []}, "one address or a list of different addresses"),
        (
            {"base_url": ["http://127.0.0.1:1", "http://127.0.0.1:1/"]},
            "list of different addresses",
        ),
        ({"base_url": ["http://127.0.0.1:1", "nowhere"]}, "must be a URL"),
        ({**URL, "replicas": 2}, "can be used only with 'server', not with 'base_url'"),
        ({"server": "fake", "weights": "x", "replicas": 0}, "replicas"),
        (
            {"server": "fake", "weights": "x", "replicas": 2, "min_servers": 3},
            "number of servers, 2, got 3",
        ),
        ({**URL, "min_servers": 2}, "number of servers, 1, got 2"),
    ],
)
def test_what_makes_no_sense_is_a_fault(load_models, entry, said):
    with pytest.raises(RecipeError, match=said):
        load_models(m=entry)


def test_a_base_model_that_can_not_judge_is_refused_before_anything_is_sent(load_models, tmp_path):
    method = {"kind": "pairwise_ranking", "judges": ["j"]}
    plain = {**URL, "template": "none", "backend": "openai"}
    loaded = load_models(method, a=URL, b=URL, j=plain)
    with pytest.raises(
        UsageError, match=r"by 'j' \(openai\): it cannot choose labels with a base model"
    ):
        prepare(loaded)


def test_several_addresses_are_one_model_whatever_their_order(load_models):
    one, other = "http://127.0.0.1:1/v1", "http://127.0.0.1:2"
    loaded = load_models(a={"base_url": [one, other]}, b={"base_url": [other, one]})
    a, b = ({**model_identity(spec), "model": "m"} for spec in loaded.models.values())
    assert a == b
    assert loaded.models["a"].base_urls == ("http://127.0.0.1:1", other)
    again = load_models(a=loaded.models["a"].resolved()).models["a"]
    assert again.base_urls == loaded.models["a"].base_urls


def test_one_address_in_a_list_is_as_good_as_alone(load_models):
    url = "http://127.0.0.1:1"
    listed, alone = load_models(a={"base_url": [url]}, b={"base_url": url}).models.values()
    assert (listed.base_url, listed.base_urls) == (alone.base_url, ())
