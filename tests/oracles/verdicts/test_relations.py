"""Metamorphic runs: what must not change a run's conclusions does not, from its recipe on."""

import json
from dataclasses import replace

import pytest

from tests.crossed import crossed
from tests.oracles.verdicts import relations, studies
from tests.oracles.verdicts.runs import made, told

pytestmark = pytest.mark.timeout(300)


def design(n_models, kind, n=12, *, bias=0.0, categories=1):
    """A study of a kind, with all judgments."""
    study = next(
        one
        for seed in range(1000)
        if len((one := studies.drawn(seed, kind)).models) == n_models
        and len(one.prompts) >= n
        and not one.has_clusters
        and None not in one.verdicts.values()
        and "copies" not in one.says
        and all(verdict and verdict.bias == bias for verdict in one.verdicts.values())
    )
    prompts = [
        replace(one, category=None if categories == 1 else f"kind{at % categories}")
        for at, one in enumerate(study.prompts[:n])
    ]
    return replace(study, prompts=tuple(prompts))


DESIGNS = {
    "two hard": design(2, "hard", categories=2),
    "three soft": design(3, "soft"),
    "four stepped": design(4, "stepped"),
    "three rare": design(3, "rare large wins", n=20),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The conclusions of each design, computed once."""
    known = {}

    def of(name):
        if name not in known:
            run = made(DESIGNS[name], tmp_path_factory.mktemp("base") / "study")
            known[name] = relations.conclusions(run)
        return known[name]

    return of


def found(change, name, tmp_path, names=None):
    run = made(change(DESIGNS[name]), tmp_path / "study")
    return relations.conclusions(run, names)


UNCHANGING = {
    "copies": relations.copied,
    "another order of prompts": relations.turned_round,
    "other names of prompts": relations.renamed_items,
    "another order of models": relations.reordered_models,
}


@pytest.mark.parametrize(("change", "name"), crossed(UNCHANGING, DESIGNS))
def test_a_change_that_says_nothing_new(change, name, base, tmp_path):
    changed = found(UNCHANGING[change], name, tmp_path)
    assert relations.differing(base(name), changed) == []


@pytest.mark.parametrize("name", DESIGNS)
def test_prompts_in_halves_of_one_cluster(name, base, tmp_path):
    changed = found(relations.split, name, tmp_path)
    counts = [place for place in base(name) if place.endswith(": n")]
    for place in counts:
        n_items, n_clusters = base(name)[place]
        assert changed[place] == (2 * n_items, n_clusters)
    kept = {place: value for place, value in changed.items() if place not in counts}
    once = {place: value for place, value in base(name).items() if place not in counts}
    assert relations.differing(once, kept) == []


@pytest.mark.parametrize("name", DESIGNS)
def test_other_names_of_models(name, base, tmp_path):
    study = DESIGNS[name]
    others = studies.NAMES[::-1][: len(study.models)]
    names = dict(zip(others, study.models, strict=True))
    changed = found(lambda one: replace(one, models=others), name, tmp_path, names)
    assert relations.differing(base(name), changed) == []


@pytest.mark.parametrize("name", DESIGNS)
def test_a_tie_makes_no_verdict_stronger(name, base, tmp_path):
    changed = found(relations.with_a_tie, name, tmp_path)
    assert relations.resolved(changed) <= relations.resolved(base(name))


@pytest.mark.parametrize("name", DESIGNS)
def test_verdicts_turned_round(name, base, tmp_path):
    changed = found(relations.mirrored, name, tmp_path)
    assert {(place, not is_first) for place, is_first in relations.resolved(changed)} == (
        relations.resolved(base(name))
    )


def gated(run, text):
    (one,) = json.loads(told("gate", run, "--require", text, "--format", "json"))["requirements"]
    return one["verdict"], one["value"], one["low"], one["high"], one["n"]


def test_a_model_that_a_pair_does_not_need(tmp_path):
    study = DESIGNS["four stepped"]
    whole = made(study, tmp_path / "whole")
    less = made(relations.without_the_last_model(study), tmp_path / "less")
    for a, b in (("ash", "birch"), ("birch", "cedar"), ("cedar", "ash")):
        text = f"win_rate({a}, {b}) > 0.5"
        assert gated(whole, text) == pytest.approx(gated(less, text))
