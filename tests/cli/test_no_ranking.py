"""A run whose judge can't be trusted: each way of reading it says so before any number."""

import json

import pytest

MASS = {"route": "choose", "label_mass": 0.004}
FIRST = {"route": "choose", "judge_first": True}
FORM, ORDER = "does not answer in the requested form", "contradicts itself by order"
CASES = {"coverage": ([MASS], [FORM]), "flips": ([FIRST], [ORDER])}
CASES["both"] = ([MASS, FIRST], [FORM, ORDER])


def judged_by(rules):
    return {
        "weak": {"server": "scripted", "weights": "a:0.2"},
        "strong": {"server": "scripted", "weights": "b:0.9"},
        "judge": {"server": {"kind": "scripted", "rules": rules}, "weights": "j:1.0"},
    }


def run(command, path, *more):
    return command("run", path, "--display", "none", *more)


@pytest.mark.parametrize("case", CASES)
def test_a_run_says_first_that_there_is_no_ranking(command, recipe, case):
    rules, reasons = CASES[case]
    path = recipe(models=judged_by(rules))
    code, out, err = run(command, path)
    assert code == 0
    assert out.startswith("No ranking: judge ")
    first = " ".join(out.split())
    assert all(reason in first for reason in reasons)
    assert "rating " not in first
    whole = command("report", "made", "--full")[1]
    before = " ".join(
        whole[: whole.index("No ranking of 2 models by judge (pairwise_ranking)")].split()
    )
    assert all(reason in before for reason in reasons)
    assert [one for one in (FORM, ORDER) if one in before] == reasons
    assert "Try " in before
    assert "●" not in whole
    assert "pairwise_ranking: No ranking: judge" in " ".join(err.split())
    assert run(command, path, "--strict")[0] == 3
    said = json.loads(command("report", "made", "--format", "json")[1])
    (document,) = said["rankings"]
    assert said["brief"]["questions"][0]["state"] == "withheld"
    assert list(document)[:3] == ["format", "warning", "trusted"]
    assert not document["trusted"]
    assert document["trust"][0]["verdict"] == "not trusted"


def test_a_judge_that_is_trusted_passes_strict(command, recipe):
    code, out, err = run(command, recipe(n=12), "--strict")
    assert code == 0
    assert out.startswith("strong is better than weak: +")
    assert "No ranking" not in err


def test_a_few_pairs_are_not_enough_to_say(command, recipe):
    code, out, err = run(command, recipe(n=2), "--strict")
    assert code == 0
    assert "can be trusted cannot be said yet" in " ".join(out.split())
    assert "No ranking" not in err


def test_thresholds_of_the_recipe_hold_for_a_run_that_is_there(command, recipe):
    path = recipe(models=judged_by([{"route": "choose", "label_mass": 0.7}]), n=12)
    assert run(command, path, "--strict")[0] == 0
    assert run(command, path, "--strict", "--set", "statistics.trust.mass=0.8")[0] == 3
    assert command("report", "made")[1].startswith("No ranking: judge does not answer in")


def test_a_wrong_threshold_is_a_fault_of_the_recipe(command, recipe):
    code, _, err = run(command, recipe(), "--set", "statistics.trust.usable_flips=0.6")
    assert code == 2
    assert "usable_flips must be below flips" in err
