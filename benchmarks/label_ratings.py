"""Simulate Bradley-Terry ratings of few human labels and many judgments: coverage and width.

    python -m benchmarks.label_ratings --simulations 1000

M models answer each prompt, and a judge compares every two answers. People label a random choice of
the comparisons; comparisons of a prompt share the answers, and people's taste. The judge favours
the first model by half a spread of what people feel, and is too sure. The truth is the
Bradley-Terry fit to what people say of 200,000 prompts, which no Bradley-Terry model describes
exactly. Cells: coverage in percent of 95 % intervals of ratings (of differences of two models),
corrected / labels alone, the ratio of their mean widths, and the share of studies with intervals.
"""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.bradley_terry import fit_bradley_terry, to_elo
from orchestrator.statistics.label_planning import inclusion_probabilities, systematic_sample
from orchestrator.statistics.label_ratings import (
    CorrectedRatings,
    LabelledPairs,
    corrected_ratings,
    rating_interval,
)
from orchestrator.statistics.prediction_powered import Labelled
from orchestrator.statistics.results import Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVEL = 0.95
POPULATION = 200_000
SKILLS = {
    "3 models": (0.4, 0.0, -0.4),
    "4 equal": (0.0, 0.0, 0.0, 0.0),
    "6 models": (0.8, 0.5, 0.2, -0.1, -0.4, -1.0),
}
NOISE = {"chance": 1e3, "weak": 1.5, "good": 0.6}
"""Spread of a judge's own errors of each answer, in spreads of what people feel."""
SIZES = ((50, 100), (100, 100), (100, 300), (200, 300))
"""Labels, and prompts."""


@dataclasses.dataclass(frozen=True)
class World:
    """The distribution of people's labels and of a judge's scores.

    Attributes:
        skills: Of `SKILLS`.
        quality: Of `NOISE`.
    """

    skills: str
    quality: str

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Shape (K, 2): every two models."""
        return np.array(list(itertools.combinations(range(len(SKILLS[self.skills])), 2)))


def draw(world: World, n_prompts: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Labels and the judge's preferences, each of shape (n_prompts, K)."""
    skills = np.array(SKILLS[world.skills])
    shape = (n_prompts, len(skills))
    felt = skills + rng.normal(size=shape)
    noise = NOISE[world.quality]
    heard = (felt + noise * rng.normal(size=shape)) / np.sqrt(1 + noise**2)
    heard[:, 0] += 0.5
    first, second = world.pairs.T
    labels = (felt[:, first] > felt[:, second]).astype(np.float64)
    return labels, scipy.special.expit(3.0 * (heard[:, first] - heard[:, second]))


@functools.cache
def truth(world: World) -> tuple[float, ...]:
    """Ratings by what people say of all prompts, Elo."""
    shares = draw(world, POPULATION, np.random.default_rng(1))[0].mean(axis=0)
    n_models = len(SKILLS[world.skills])
    wins = np.zeros((1, n_models, n_models))
    first, second = world.pairs.T
    wins[0, first, second], wins[0, second, first] = shares, 1.0 - shares
    return tuple(to_elo(fit_bradley_terry(wins).strengths[0]).tolist())


def study(
    world: World, n_labels: int, n_prompts: int, rng: np.random.Generator, *, by_doubt: bool
) -> tuple[CorrectedRatings, CorrectedRatings]:
    """Corrected ratings, and those of the labels alone."""
    labels, scores = (one.ravel() for one in draw(world, n_prompts, rng))
    doubt = np.sqrt(scores * (1.0 - scores)) if by_doubt else np.ones(scores.size)
    chances = inclusion_probabilities(doubt, n_labels)
    told = np.full(scores.size, np.nan)
    chosen = systematic_sample(chances, rng)
    told[chosen] = labels[chosen]
    prompts = np.repeat(np.arange(n_prompts), len(world.pairs))
    first, second = np.tile(world.pairs, (n_prompts, 1)).T
    rows = Labelled(scores, told, prompts, chances if by_doubt else None)
    data = LabelledPairs(rows, first, second, len(SKILLS[world.skills]))
    return corrected_ratings(data), corrected_ratings(data, tuning=0.0)


def simulate(
    world: World,
    n_labels: int,
    n_prompts: int,
    n_simulations: int,
    *,
    by_doubt: bool = False,
    seed: int = 0,
) -> str:
    """A cell of the table."""
    rng = np.random.default_rng([seed, list(SKILLS).index(world.skills), n_labels, n_prompts])
    true = truth(world)
    models = range(len(true))
    held: tuple[list[bool], list[bool]] = ([], [])
    apart: tuple[list[bool], list[bool]] = ([], [])
    widths: tuple[list[float], list[float]] = ([], [])
    for _ in range(n_simulations):
        for which, found in enumerate(study(world, n_labels, n_prompts, rng, by_doubt=by_doubt)):
            for model in models:
                interval = rating_interval(found, model, LEVEL)
                if isinstance(interval, Interval):
                    held[which].append(interval.contains(true[model]))
                    widths[which].append(interval.high - interval.low)
            for one, two in itertools.combinations(models, 2):
                interval = rating_interval(found, one, LEVEL, minus=two)
                if isinstance(interval, Interval):
                    apart[which].append(interval.contains(true[one] - true[two]))

    def shown(of: tuple[list[bool], list[bool]]) -> str:
        return " / ".join(f"{100 * np.mean(one):.1f}" if one else "none" for one in of)

    ratio = np.mean(widths[0]) / np.mean(widths[1]) if all(widths) else np.nan
    share = 100 * len(held[0]) / (n_simulations * len(true))
    return f"{shown(held)} ({shown(apart)}) {ratio:.2f}, {share:.0f} %"


def table(n_simulations: int, *, by_doubt: bool) -> Iterator[str]:
    """Line by line."""
    sizes = " | ".join(f"{n} labels, {prompts} prompts" for n, prompts in SIZES)
    yield f"| models | judge | {sizes} |"
    yield f"|{'---|' * (2 + len(SIZES))}"
    for skills, quality in itertools.product(SKILLS, NOISE):
        world = World(skills, quality)
        cells = [simulate(world, *size, n_simulations, by_doubt=by_doubt) for size in SIZES]
        yield f"| {skills} | {quality} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000, help="of each cell")
    parser.add_argument("--by-uncertainty", action="store_true", help="labels by the judge's doubt")
    options = parser.parse_args()
    for line in table(options.simulations, by_doubt=options.by_uncertainty):
        print(line, flush=True)


if __name__ == "__main__":
    main()
