"""A recipe is the same however Python spells it: the bundled ones, with their parts as objects."""

from contextlib import chdir
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from orchestrator import Recipe, plugins
from orchestrator.contracts import BASES, load

_FILES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
_FAMILIES = {"dataset": plugins.DATASETS, "server": plugins.LAUNCH, "backend": plugins.BACKENDS}
_LISTS = {"methods": plugins.METHODS, "analyses": plugins.ANALYSES}


class Loose(BaseModel):
    """A model of somebody else's."""

    model_config = ConfigDict(extra="allow")


@settings(max_examples=100, deadline=None)
@given(file=st.sampled_from(_FILES), rng=st.randoms(use_true_random=False))
def test_every_spelling_of_a_bundled_recipe_is_that_recipe(file, rng):
    written = yaml.safe_load(file.read_text())
    spelled = {key: _spelled(value, (key,), rng) for key, value in written.items()}
    if rng.random() < 0.5:
        named = ({"name": name, **entry} for name, entry in written["models"].items())
        spelled["models"] = [_spelled(entry, ("models", "one"), rng) for entry in named]
    # Paths in a file are relative to it, those of Python to the working directory.
    with chdir(file.parent):
        made = Recipe(**spelled).load()
    assert made.resolved() == Recipe.from_yaml(file).load().resolved()


def _spelled(value: Any, at: tuple[str, ...], rng: Random) -> Any:
    """Return a part of a recipe as Python may spell it; `at` are the keys down to it."""
    if isinstance(value, list):
        inner = [_spelled(one, (*at, "one"), rng) for one in value]
        return tuple(inner) if rng.random() < 0.5 else inner
    if isinstance(value, str) and at[-1] == "path" and str(Path(value)) == value:
        return Path(value) if rng.random() < 0.5 else value
    if not isinstance(value, dict):
        return value
    in_list = len(at) == 2 and at[1] == "one"
    family = _LISTS.get(at[0]) if in_list else _FAMILIES.get(at[-1])
    # A plug-in has no name of its own in the recipe.
    is_plugin = family and value.get("kind") in plugins.kinds(family) and "name" not in value
    if family and is_plugin and rng.random() < 0.5:
        rest = {key: one for key, one in value.items() if key != "kind"}
        if in_list and not rest and rng.random() < 0.5:
            return value["kind"]
        kind = load(BASES[family], value["kind"])
        return kind(kind.Config.model_validate(rest))
    parts = {key: _spelled(one, (*at, key), rng) for key, one in value.items()}
    return Loose.model_validate(parts) if in_list and rng.random() < 0.5 else parts


@pytest.mark.parametrize("family", [*_FAMILIES.values(), *_LISTS.values()])
def test_every_class_of_a_kind_is_named_by_that_kind(family):
    for kind in plugins.kinds(family):
        assert plugins.kind_of(load(BASES[family], kind)) == kind
