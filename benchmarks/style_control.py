"""Simulate ratings at equal style: coverage of the intervals and false alarms.

    python -m benchmarks.style_control --simulations 2000

Four models answer; the better ones write longer, by more or less on each prompt. A judge prefers an
answer by its model's strength, the difference of a feature and what the prompt adds, which all
judgments of a prompt share. "Dense" features differ in every pair, "rare" ones (a header here and
there) on 5, 10 or 20 prompts only. The truth of the rating without control is that of 400,000
prompts.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.bradley_terry import StyledPairs, StyleFit, fit_style
from orchestrator.statistics.results import Interval

Floats = NDArray[np.float64]

LEVEL = 0.95
STRENGTHS = np.array([0.6, 0.2, -0.2, -0.6])
LONGER = np.array([0.4, 0.1, -0.1, -0.4])
"""Mean length of each model's answers, in a unit of its own."""
PROMPTS = (20, 50, 100, 300)
RARE = (5, 10, 20)
POPULATION = 400_000


def draw(n_prompts: int, effect: float, rare: int | None, rng: np.random.Generator) -> StyledPairs:
    """All pairs of the models on prompts, judged softly; the second feature is the rare one."""
    pairs = np.array(list(combinations(range(4), 2)))
    first, second = np.tile(pairs.T, n_prompts)
    prompts = np.repeat(np.arange(n_prompts), len(pairs))
    length = LONGER + rng.normal(0.0, 0.5, (n_prompts, 4))
    taste = rng.normal(0.0, 0.7, (n_prompts, 4))
    columns = [np.tanh(length[prompts, first] - length[prompts, second])]
    odds = STRENGTHS[first] - STRENGTHS[second] + taste[prompts, first] - taste[prompts, second]
    odds += effect * columns[0]
    if rare is not None:
        has = np.zeros((n_prompts, 4))
        has[:rare] = rng.random((rare, 4)) < 0.5
        columns.append(has[prompts, first] - has[prompts, second])
        odds += effect * columns[1]
    soft = scipy.special.expit(2.0 * odds + rng.normal(0.0, 1.0, len(odds)))
    return StyledPairs(prompts, first, second, 4, soft, np.column_stack(columns))


def fitted(pairs: StyledPairs) -> tuple[StyleFit, StyleFit]:
    """The fits without and with the features."""
    bare = dataclasses.replace(pairs, features=pairs.features[:, :0])
    plain, controlled = fit_style(bare), fit_style(pairs)
    if plain is None or controlled is None:
        raise RuntimeError("a simulated study has no fit")
    return plain, controlled


def share(hits: list[bool]) -> str:
    """Percent of the studies."""
    return f"{100 * float(np.mean(hits)):.1f}"


def holds(interval: Interval | None, true: float) -> bool:
    """Return True if an interval holds the truth."""
    if interval is None:
        raise RuntimeError("a simulated study has no interval")
    return interval.contains(true)


def dense(n_prompts: int, n_simulations: int) -> str:
    """Coverage of strength, effect and change, and alarms where there is no effect."""
    plain, controlled = fitted(draw(POPULATION, 0.5, None, np.random.default_rng(1)))
    rng = np.random.default_rng([2, n_prompts])
    scale = float(draw(POPULATION, 0.5, None, np.random.default_rng(3)).spreads()[0])
    covered: dict[str, list[bool]] = {"strength": [], "effect": [], "change": [], "alarm": []}
    for _ in range(n_simulations):
        pairs = draw(n_prompts, 0.5, None, rng)
        own, with_style = fitted(pairs)
        true = controlled.effects[0] / scale * float(pairs.spreads()[0])
        covered["effect"].append(holds(with_style.interval(4, LEVEL), true))
        covered["strength"].append(holds(with_style.interval(0, LEVEL), controlled.strengths[0]))
        change = with_style.change_from(own, 0, LEVEL)[1]
        covered["change"].append(holds(change, controlled.strengths[0] - plain.strengths[0]))
        none = fitted(draw(n_prompts, 0.0, None, rng))[1]
        covered["alarm"].append(none.p_value(0) < 1.0 - LEVEL)
    return " | ".join(share(hits) for hits in covered.values())


def rarely(n_differing: int, n_simulations: int) -> str:
    """False alarms of a feature without an effect that differs on few of 100 prompts."""
    rng = np.random.default_rng([4, n_differing])
    alarms = []
    for _ in range(n_simulations):
        fit = fitted(draw(100, 0.0, n_differing, rng))[1]
        alarms.append(fit.p_value(1) < 1.0 - LEVEL)
    return share(alarms)


def tables(n_simulations: int) -> Iterator[str]:
    """Both tables, line by line."""
    yield "| prompts | strength at equal style | effect | change | false alarms |"
    yield "|---|---|---|---|---|"
    for n_prompts in PROMPTS:
        yield f"| {n_prompts} | {dense(n_prompts, n_simulations)} |"
    yield ""
    yield "| of 100 prompts differ | false alarms |"
    yield "|---|---|"
    for n_differing in RARE:
        yield f"| {n_differing} | {rarely(n_differing, n_simulations)} |"


def main() -> None:
    """Print coverage and false alarms, in percent of the studies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--simulations", type=int, default=2000, help="studies of each cell")
    for line in tables(parser.parse_args().simulations):
        print(line, flush=True)


if __name__ == "__main__":
    main()
