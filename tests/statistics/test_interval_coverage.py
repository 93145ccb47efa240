"""Intervals cover at their level, by simulation; `benchmarks/interval_coverage.py` is the judge."""

import itertools
import math
import runpy
from pathlib import Path

import pytest

BENCHMARK = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"), run_name="coverage"
)
LEVEL = BENCHMARK["LEVEL"]
MODELS, PROMPTS = (2, 3, 5), (20, 50, 200)


def cells():
    """All designs; CI has time for one, beside the smaller studies below."""
    for at, judge in enumerate(BENCHMARK["JUDGES"]):
        for cell in itertools.product(MODELS, PROMPTS):
            is_here = judge == "sharp" and cell == (MODELS[at % 3], PROMPTS[0])
            marks = () if is_here else pytest.mark.long
            yield pytest.param(judge, *cell, marks=marks)


def covered(judge, n_models, n_prompts, n_simulations):
    cell = BENCHMARK["Cell"](judge, n_models, n_prompts)
    return BENCHMARK["simulate"](cell, n_simulations=n_simulations, seed=1, population=100_000)


def fault(tally, n_simulations, slack):
    """Return the shortfall of coverage below the level, beyond Monte-Carlo error and `slack`."""
    error = math.sqrt(LEVEL * (1 - LEVEL) / n_simulations)
    return LEVEL - slack - 3 * error - tally.coverage


@pytest.mark.parametrize("judge", ["soft", pytest.param("hard", marks=pytest.mark.slow)])
def test_intervals_of_three_models_cover_at_twenty_prompts(judge):
    tallies = covered(judge, 3, 20, 100)
    assert all(fault(tally, 100, 0.0) <= 0 for tally in tallies.values())
    assert tallies["rating"].none == 0


def test_equal_models_are_seldom_told_apart():
    assert fault(covered("equal", 3, 20, 100)["ranks"], 100, 0.0) <= 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("judge", "n_models", "n_prompts"), list(cells()))
def test_intervals_cover_at_their_level(judge, n_models, n_prompts):
    tallies = covered(judge, n_models, n_prompts, 400)
    # Ratings of a model that wins 97 % are up to two points short at 20 prompts.
    slack = 0.02 if judge == "skewed" else 0.005
    for name, tally in tallies.items():
        assert fault(tally, 400, slack) <= 0, (name, tally.coverage)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_intervals_of_thirty_models_cover_at_twenty_prompts():
    tallies = covered("soft", 30, 20, 60)
    # Ratings of one study depend on each other, so the error is that of the studies.
    assert all(fault(tally, 60, 0.0) <= 0 for tally in tallies.values())
