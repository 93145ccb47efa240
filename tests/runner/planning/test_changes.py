"""What differs between two calls of a run is said, each change once and nothing else."""

import json
from typing import Any

import pytest

from orchestrator.recipe.load import loads
from orchestrator.runner.planning.prepare import describe_change

JUDGED = {"kind": "pairwise_ranking", "judges": ["judge"]}
BEFORE: dict[str, Any] = {
    "name": "made",
    "models": {
        name: {"server": "scripted", "weights": "w:0.5"} for name in ("one", "two", "judge")
    },
    "dataset": {"kind": "demo", "n": 4},
    "methods": [JUDGED],
}
IDENTITIES = {name: {"weights": "w:0.5"} for name in BEFORE["models"]}


def changed(tmp_path, identities=IDENTITIES, **changes):
    """The changes from one recipe to another."""
    first, second = (
        loads(json.dumps(one).encode(), tmp_path / "r.yaml") for one in (BEFORE, BEFORE | changes)
    )
    before = {"identities": IDENTITIES, "recipe": first.resolved()}
    return describe_change(before, identities, second)


def test_the_first_call_has_no_changes(tmp_path):
    recipe = loads(json.dumps(BEFORE).encode(), tmp_path / "r.yaml")
    assert describe_change(None, IDENTITIES, recipe) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"identities": IDENTITIES | {"three": {"weights": "x"}}}, ["model three added"]),
        ({"identities": IDENTITIES | {"two": {"weights": "x"}}}, ["model two changed"]),
        (
            {"identities": {name: IDENTITIES[name] for name in ("one", "judge")}},
            ["model two removed"],
        ),
        ({"dataset": {"kind": "demo", "n": 5}}, ["dataset changed"]),
        ({"limit": 3}, ["limit changed"]),
        ({"subset": 2}, ["subset changed"]),
        ({"seed": 1}, ["seed changed"]),
        ({"methods": [JUDGED | {"name": "other"}]}, ["name changed (judge: judge)"]),
        ({"methods": [JUDGED, {"kind": "answers"}]}, ["methods changed (judge: judge)"]),
        ({"limit": 3, "seed": 1}, ["limit changed", "seed changed"]),
        ({"description": "other words"}, []),
        ({"statistics": {"n_resamples": 7}}, []),
    ],
)
def test_each_change_is_said_once(tmp_path, changes, said):
    assert changed(tmp_path, **changes) == said


def test_a_run_of_an_earlier_version_that_kept_nothing_has_all_models_added(tmp_path):
    recipe = loads(json.dumps(BEFORE).encode(), tmp_path / "r.yaml")
    said = describe_change({}, IDENTITIES, recipe)
    assert said[:3] == [f"model {name} added" for name in IDENTITIES]
