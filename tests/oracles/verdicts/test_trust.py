"""A judge that can't be trusted, or not yet, gives no verdict anywhere, and the cause is named."""

import itertools
import json
import re

import pytest

from tests.oracles.verdicts.runs import command, made, told
from tests.oracles.verdicts.studies import NAMES, Prompt, Study, Verdict


def study(n_models, n_prompts, says):
    pairs = list(itertools.combinations(range(n_models), 2))
    verdicts = {(k, a, b): says(k, a, b) for k in range(n_prompts) for a, b in pairs}
    prompts = tuple(Prompt(f"k{n}", n) for n in range(n_prompts))
    return Study("trust", NAMES[:n_models], prompts, verdicts)


def flips_in_two_of_five(k, a, b):
    return Verdict(0.55, bias=0.2) if k % 5 < 2 else Verdict(0.9, bias=0.05)


def ties_but_five(k, a, b):
    return Verdict(0.5, 0.1, bias=0.3) if k < 5 and (a, b) == (0, 1) else Verdict(0.53, 0.9)


def fails_with_the_last(k, a, b):
    return None if b == 2 and k < 38 else Verdict(0.8, bias=0.02)


@pytest.mark.parametrize(
    ("drawn", "state", "cause"),
    [
        (study(2, 20, flips_in_two_of_five), "open", "more independent prompts"),
        (study(3, 80, ties_but_five), "withheld", "only 5 of 240 pairs have a winner"),
        (study(3, 60, fails_with_the_last), "withheld", "76 of 120 cases with cedar"),
    ],
)
def test_nothing_is_concluded_and_the_cause_is_named(tmp_path, drawn, state, cause):
    run = made(drawn, tmp_path / "study")
    question = json.loads(told("report", run, "--format", "json"))["brief"]["questions"][0]
    assert (question["state"], question["n_apart"]) == (state, 0)
    assert question["answer"].startswith("No ranking")
    screen = told("report", run)
    assert screen.count(cause) == 1
    code, said, _ = command(
        "gate", run, "--require", "ash > birch", "--require", "win_rate(ash, birch) > 0.5",
        "--junit", tmp_path / "junit.xml",
    )  # fmt: skip
    assert (code, said.count(cause)) == (5, 2)
    junit = (tmp_path / "junit.xml").read_text()
    assert junit.count('type="not known yet"') == 2
    assert cause in junit
    compared = told("compare", run)
    assert cause in compared
    assert not re.search(" is (better|worse) than ", screen + compared)
