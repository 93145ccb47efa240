"""Drawn studies, run and reported: no two statements about a run contradict each other."""

import json
from dataclasses import replace
from itertools import combinations

import pytest

from tests.crossed import LONG
from tests.launched import recipe_data
from tests.oracles.verdicts import measures, outputs, rules, studies
from tests.oracles.verdicts.runs import made, told

pytestmark = pytest.mark.timeout(300)

SEEDS = (2, 5, 6, 7, 9, 11, 14)
MORE_SEEDS = range(1, 421)
SCORED = [seed if seed < 4 else pytest.param(seed, marks=LONG) for seed in range(1, 9)]
WITH_PAGE = (7, 14)
"""Studies of which the page is read, too: it takes as long as everything else."""


def of_seed(seed, folder, *, page=False):
    study = studies.drawn(seed)
    n_prompts = len({one.content for one in study.prompts})
    found = outputs.facts(made(study, folder / "study"), study.models, n_prompts, page=page)
    return study, found, rules.contradictions(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_statements_contradict_each_other(seed, tmp_path):
    study, found, contradictions = of_seed(seed, tmp_path, page=seed in WITH_PAGE)
    assert contradictions == [], study.says
    assert len(found.said) > 20


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("first", MORE_SEEDS[::20])
def test_no_two_statements_of_many_studies_do(first, tmp_path):
    contradictions = {
        seed: of_seed(seed, tmp_path / str(seed), page=seed % 20 == 0)[2]
        for seed in range(first, first + 20)
    }
    assert {seed: found for seed, found in contradictions.items() if found} == {}


def test_the_seeds_hold_every_kind():
    drawn = [studies.drawn(seed) for seed in SEEDS]
    said = " ".join(study.says for study in drawn)
    assert all(kind in said for kind in (*studies.KINDS, "copies", "failed"))
    assert {2, 3, 4} <= {len(study.models) for study in drawn}
    assert any(study.has_clusters for study in drawn)


@pytest.mark.parametrize("seed", SCORED)
def test_no_two_statements_about_means_do(seed, tmp_path):
    study = studies.scored(seed)
    found = measures.facts(made(study, tmp_path / "study"), study.models)
    assert rules.contradictions(found) == [], study.says


def test_a_run_on_launched_servers(tmp_path):
    models = {
        "ash": {"server": "scripted", "weights": "a:0.2"},
        "birch": {"server": "scripted", "weights": "b:0.9"},
        "judge": {"server": "scripted", "weights": "j:1.0"},
    }
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(recipe_data(n=14, models=models)), encoding="utf-8")
    run = tmp_path / "run"
    told("run", recipe, "--run-dir", run, "--display", "none")
    found = outputs.facts(run, ("ash", "birch"), page=True)
    assert rules.contradictions(found) == []


TWO_RUNS = (2, 9, *(pytest.param(seed, marks=LONG) for seed in (3, 12)))


def pair_of_runs(seed, folder):
    """Two studies of the same prompts and models, of which the judge says different things."""
    new, old = studies.drawn(seed, "soft"), studies.drawn(seed + 100, "hard")
    n_models = min(len(new.models), len(old.models))
    n = min(len(new.prompts), len(old.prompts))
    prompts = tuple(replace(one, cluster=None) for one in new.prompts[:n])
    return [
        made(replace(study, models=study.models[:n_models], prompts=prompts), folder / name)
        for study, name in ((old, "old"), (new, "new"))
    ]


@pytest.mark.parametrize("seed", TWO_RUNS)
def test_two_runs_compared_and_gated(seed, tmp_path):
    old, new = pair_of_runs(seed, tmp_path)
    there, back = (
        {
            one["model"]: one
            for one in json.loads(told("compare", *runs, "--format", "json"))["differences"]
            if one["score"] == "pairwise_ranking.prefer_a"
        }
        for runs in ((old, new), (new, old))
    )
    assert there.keys() == back.keys()
    assert there
    for model, one in there.items():
        other = back[model]
        assert one["resolved"] == other["resolved"]
        assert one["difference"] == pytest.approx(-other["difference"], abs=1e-9)
        is_known = one["low"] is not None
        assert is_known == (other["low"] is not None)
        if is_known:
            assert (one["low"], one["high"]) == pytest.approx((-other["high"], -other["low"]))
            assert one["low"] <= one["difference"] <= one["high"]
        excludes = is_known and (one["low"] > 0 or one["high"] < 0)
        assert one["resolved"] == excludes, one
        text = f"win_rate({model}) > win_rate({model}, old)"
        asked = told("gate", new, "--against", old, "--require", text, "--format", "json")
        verdict = json.loads(asked)["requirements"][0]["verdict"]
        if one["resolved"]:
            assert verdict == ("holds" if one["difference"] > 0 else "fails")


def test_models_meet_in_every_pair():
    study = studies.drawn(7)
    pairs = list(combinations(range(len(study.models)), 2))
    assert len(study.verdicts) == len({one.content for one in study.prompts}) * len(pairs)
