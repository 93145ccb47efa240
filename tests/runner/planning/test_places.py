"""Errors that show once a recipe is loaded say where it is written: file, line and key."""

import pytest

from orchestrator.errors import LaunchError, UsageError
from orchestrator.interface import api

RECIPE = """models:
  one: {base_url: "http://127.0.0.1:9"}
  two: %s
  judge: {base_url: "http://127.0.0.1:9"}
dataset: {kind: demo, n: 4}
methods:
  - {kind: pairwise_ranking, judges: [judge]}
%s
"""
SERVED = '{base_url: "http://127.0.0.1:9"}'


@pytest.mark.parametrize("call", [api.plan, api.run, api.check])
@pytest.mark.parametrize(
    ("model", "more", "said"),
    [
        ("{server: llamacpp, weights: nowhere.gguf}", "", ":3: models.two.weights: no such file"),
        ("{server: embedded, weights: nowhere}", "", ":3: models.two.weights: no model folder"),
        (
            '{server: embedded, weights: "bundled:nobody"}',
            "",
            ":3: models.two.weights: no bundled model",
        ),
        (SERVED, "subset: 3/2", ":8: subset: there is no shard 3 of 2"),
        (SERVED, "subset: 7/8", ":8: subset: 8 shards of 4 items"),
        (
            SERVED,
            "subset: 1/2\nstatistics: {stop_when: {}}",
            ":9: statistics.stop_when: decides from all items",
        ),
    ],
)
def test_an_error_after_loading_names_its_place(tmp_path, call, model, more, said):
    recipe = tmp_path / "r.yaml"
    recipe.write_text(RECIPE % (model, more), encoding="utf-8")
    try:
        words = " ".join(api.check(recipe) if call is api.check else call(recipe))
    except (LaunchError, UsageError) as error:
        words = str(error)
    assert f"{recipe}{said}" in words


def test_a_bound_on_money_names_its_place(tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text(RECIPE % (SERVED, "budget: {money: 1}"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"r\.yaml:8: budget\.money: .*one, two, judge"):
        api.run(recipe, run_dir=tmp_path / "run", display="none")


def test_an_override_is_the_place_of_what_it_says(tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text(RECIPE % (SERVED, ""), encoding="utf-8")
    with pytest.raises(UsageError, match=r"^--set subset=3/2: subset: there is no shard"):
        api.plan(recipe, overrides=["subset=3/2"])
