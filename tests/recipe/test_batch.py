"""A model asked in batches: how a recipe says it, what is refused, what it costs."""

import io
import json

import msgspec
import pytest

from orchestrator.backend import Batch
from orchestrator.errors import RecipeError
from orchestrator.recipe.load import load
from orchestrator.recipe.schema import Price
from orchestrator.report import calls
from orchestrator.report.page import print_to
from orchestrator.runner.models.identity import model_identity
from orchestrator.runner.planning.counts import count_prepared
from orchestrator.runner.planning.prepare import prepare

URL = "https://models.example/v1"


def written(tmp_path, **entry):
    path = tmp_path / "r.json"
    recipe = {
        "models": {"a": {"base_url": URL, **entry}},
        "dataset": {"kind": "demo", "n": 3},
        "methods": [{"kind": "answers"}],
    }
    path.write_text(json.dumps(recipe, indent=1))
    return path


def loaded(tmp_path, **entry):
    return load(written(tmp_path, **entry)).models["a"]


def test_true_means_the_defaults_and_false_none(tmp_path):
    assert loaded(tmp_path, batch=True).entry.batch == Batch()
    assert loaded(tmp_path, batch=False).entry.batch is None
    assert loaded(tmp_path, batch=True).max_in_flight == Batch().most
    assert not loaded(tmp_path, base_url="http://127.0.0.1:1", batch=True).is_adaptive
    # An answer a day tells nothing of how many a server takes at a time.
    found = loaded(tmp_path, batch=True, limits={"max_in_flight": "auto"})
    assert (found.is_adaptive, found.max_in_flight) == (False, Batch().most)


def test_the_same_model_is_asked_in_either_way(tmp_path):
    single = loaded(tmp_path, backend="openai")
    assert model_identity(loaded(tmp_path, batch=True)) == model_identity(single)


def test_a_recipe_written_from_a_loaded_one_says_the_same(tmp_path):
    first = loaded(tmp_path, batch={"most": 7}, price={"input": 2, "output": 4})
    again = loaded(tmp_path, **{"base_url": None, **first.resolved()})
    assert (again.entry.batch, again.price) == (first.entry.batch, first.price)


def test_a_folder_is_found_from_the_recipe(tmp_path):
    found = loaded(tmp_path, base_url="local", batch={"folder": "requests"})
    assert found.entry.batch is not None
    assert found.entry.batch.folder == str(tmp_path / "requests")


@pytest.mark.parametrize(
    "entry",
    [
        {"base_url": [URL, "https://other.example"], "batch": True},
        {"backend": "vllm", "batch": True},
        {"headers": {"X-A": {"env": "A_VALUE"}}, "batch": True},
        {"base_url": "local"},
        {"base_url": "local", "batch": True},
        {"batch": {"folder": "requests"}},
        {"batch": {"most": 0}},
        {"batch": {"price": 1.5}},
    ],
    ids=str,
)
def test_what_can_t_be_asked_in_batches_is_refused(tmp_path, entry):
    with pytest.raises(RecipeError, match=r"models\.a"):
        loaded(tmp_path, **entry)


@pytest.mark.parametrize(("batch", "share"), [(None, 1.0), (True, 0.5), ({"price": 0.25}, 0.25)])
@pytest.mark.parametrize("is_hosted", [True, False])
def test_both_prices_are_planned(tmp_path, batch, share, is_hosted):
    entry = {
        "base_url": URL if is_hosted else "http://127.0.0.1:1",
        "price": {"input": 1e4, "output": 1e4},
        **({"batch": batch} if batch else {}),
    }
    prepared = prepare(load(written(tmp_path, **entry)))
    plan = count_prepared(prepared, None)
    assert plan.money is not None
    assert plan.one_by_one is not None
    least = share if batch else 0.5 if is_hosted else 1.0
    assert plan.one_by_one == pytest.approx(plan.money / share)
    assert plan.in_batches == pytest.approx(least * plan.one_by_one)
    shown = io.StringIO()
    print_to(shown, calls.plan(plan))
    assert ("one by one" in shown.getvalue()) == (share < 1)
    assert ("`batch: true`" in shown.getvalue()) == (batch is None and is_hosted)
    assert msgspec.to_builtins(plan)["in_batches"] == plan.in_batches


def test_a_share_of_a_price_is_of_both_parts():
    price = Price(input=3.0, output=9.0)
    assert price.times(0.5).of(10, 20) == pytest.approx(price.of(10, 20) / 2)
