"""Simulate the coverage of intervals of means, shares, correlations, kappas and alphas.

    python benchmarks/statistics_coverage.py --tables coverage --simulations 2000 > coverage.md
    python benchmarks/statistics_coverage.py --tables skewed --simulations 2000

Points of one prompt share half of their variance where a prompt has several. The truth is the same
world with 200,000 prompts.
"""

import argparse
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.agreement import (
    cohen_kappa,
    krippendorff_alpha,
)
from orchestrator.statistics.association import KINDS, Kind
from orchestrator.statistics.confidence import confidence
from orchestrator.statistics.correlation import (
    compare_accuracies,
    compare_correlations,
    correlate,
    correlate_within,
    partial_correlation,
)
from orchestrator.statistics.means import clustered_mean
from orchestrator.statistics.resampling import Resampling
from orchestrator.statistics.results import Estimate, Interval

LEVEL = 0.95
PROMPTS = (20, 50, 200)
SIZES = (1, 5)
POPULATION = 200_000
CATEGORIES = 4
TABLES = ("coverage", "skewed")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class World:
    """Points of a study; arrays of shape (n,).

    Two evaluators of different skill, gold with the ties of grades from 1 to 10, a length that
    moves both, three raters with three categories, and a quantity with a long tail.
    """

    prompts: Ints
    one: Floats
    two: Floats
    gold: Floats
    length: Floats
    raters: Floats
    skewed: Floats


def draw(rng: np.random.Generator, n_prompts: int, size: int) -> World:
    """A study of `n_prompts` prompts with `size` points each."""
    shape = (n_prompts, size, 7)
    z = (
        math.sqrt(0.5) * rng.normal(size=(n_prompts, 1, 7))
        + math.sqrt(0.5) * rng.normal(size=shape)
    ).reshape(-1, 7)
    truth = z[:, 0] + 0.4 * z[:, 1]
    raters = np.digitize(z[:, 4, None] + 0.8 * z[:, [0, 5, 6]], (-0.7, 0.7)).astype(float)
    return World(
        prompts=np.repeat(np.arange(n_prompts), size),
        one=0.9 * truth + 0.5 * z[:, 1] + 0.6 * z[:, 2],
        two=0.5 * truth + 0.8 * z[:, 3],
        gold=np.clip(np.round(1.8 * truth + 7), 1, 10),
        length=z[:, 1],
        raters=raters,
        skewed=np.exp(z[:, 4]),
    )


def _right(world: World) -> tuple[Floats, Floats]:
    return (world.one > -0.8).astype(float), (world.two > -0.3).astype(float)


def _correlations(world: World, kind: Kind, rng: np.random.Generator) -> dict[str, Estimate]:
    few = Resampling(4, rng)
    found: dict[str, Estimate] = {
        f"{kind}": correlate(world.one, world.gold, world.prompts, kind=kind),
        f"{kind}, within": correlate_within(
            world.one,
            world.gold,
            world.prompts,
            [str(i % CATEGORIES) for i in world.prompts],
            kind=kind,
        )[1],
        f"{kind}, difference": compare_correlations(
            world.one, world.two, world.gold, world.prompts, kind, few
        ),
    }
    if kind != "kendall":
        found[f"{kind}, partial"] = partial_correlation(
            world.one, world.gold, world.length, world.prompts, kind=kind
        )
    return found


def estimates(world: World, rng: np.random.Generator) -> dict[str, Estimate]:
    """Everything with a value and an interval, by name."""
    categories = [str(i % CATEGORIES) for i in world.prompts]
    usual, rare = confidence(world.two, world.prompts, [-0.5, 1.9], categories=categories)
    found: dict[str, Estimate] = {
        "mean": clustered_mean(world.one, world.prompts),
        "mean, log-normal": clustered_mean(world.skewed, world.prompts),
        "share, near 3/4": usual.published,
        "share, near 2 %": rare.published,
        "accuracy, difference": compare_accuracies(
            *_right(world), world.prompts, Resampling(4, rng)
        ),
        "Cohen's kappa": cohen_kappa(world.raters[:, 0], world.raters[:, 1], world.prompts),
        "Krippendorff's alpha": krippendorff_alpha(world.raters, world.prompts),
        "pearson, log-normal": correlate(
            world.skewed, world.raters[:, 0], world.prompts, kind="pearson"
        ),
    }
    if usual.macro is not None:
        found["share, macro"] = usual.macro
    for kind in KINDS:
        found |= _correlations(world, kind, rng)
    return found


@dataclasses.dataclass
class Tally:
    """Counts of intervals that held the truth, and of undefined ones."""

    asked: int = 0
    covered: int = 0
    none: int = 0

    def add(self, interval: Interval | None, truth: float) -> None:
        """Counts one interval."""
        if interval is None:
            self.none += 1
            return
        self.asked += 1
        self.covered += int(interval.contains(truth))

    @property
    def coverage(self) -> float:
        """Share of the given intervals that held the truth."""
        return self.covered / self.asked if self.asked else math.nan


@functools.cache
def truths(population: int) -> dict[str, float]:
    """Return the estimates for that many prompts."""
    rng = np.random.default_rng(0)
    found = estimates(draw(rng, population, 1), rng)
    return {
        name: float(estimate.value)
        for name, estimate in found.items()
        if not np.isnan(estimate.value)
    }


def simulate(
    n_prompts: int,
    size: int,
    n_simulations: int,
    *,
    seed: int = 0,
    population: int = POPULATION,
) -> dict[str, Tally]:
    """Tallies by name of the estimate."""
    rng = np.random.default_rng([seed, n_prompts, size])
    true = truths(population)
    tallies = {name: Tally() for name in true}
    for _ in range(n_simulations):
        for name, found in estimates(draw(rng, n_prompts, size), rng).items():
            tallies[name].add(found.interval, true[name])
    return tallies


def false_alarms(n_prompts: int, size: int, n_simulations: int, *, seed: int = 0) -> float:
    """Share of sign-flip tests at 5 % that tell two equally good evaluators apart."""
    rng = np.random.default_rng([seed, n_prompts, size, 1])
    n_found = 0
    for _ in range(n_simulations):
        world = draw(rng, n_prompts, size)
        one, two = (world.gold / 2 + noise for noise in rng.normal(size=(2, world.gold.size)))
        found = compare_correlations(
            one, two, world.gold, world.prompts, "spearman", Resampling(400, rng)
        )
        n_found += int(found.p_value <= 1.0 - LEVEL)
    return n_found / n_simulations


QUANTITIES: Final[dict[str, tuple[Callable[[Floats], Floats], float]]] = {
    "normal": (lambda z: z, 0.0),
    "absolute normal": (np.abs, math.sqrt(2.0 / math.pi)),
    "squared normal": (np.square, 1.0),
    "log-normal": (np.exp, math.exp(0.5)),
}
"""Quantities of a normal one, and their means."""


def in_doubt(quantity: str, n_prompts: int, n_simulations: int) -> tuple[float, Tally, Tally]:
    """Share of means in doubt; tallies of the intervals of these, and of the others."""
    rng = np.random.default_rng([n_prompts, *quantity.encode()])
    form, truth = QUANTITIES[quantity]
    tallies = Tally(), Tally()
    for _ in range(n_simulations):
        values = form(rng.normal(size=n_prompts))
        found = clustered_mean(values, np.arange(n_prompts), LEVEL).interval
        tallies[0 if found is not None and found.doubt else 1].add(found, truth)
    return tallies[0].asked / n_simulations, *tallies


def skewed(n_simulations: int) -> Iterator[str]:
    """The table of means in doubt, line by line."""
    yield "| quantity | prompts | in doubt, % | covered, % | of those in doubt | of the others |"
    yield "|---|---|---|---|---|---|"
    for quantity, n in itertools.product(QUANTITIES, (8, 20, 50, 200, 1000)):
        share, doubted, others = in_doubt(quantity, n, n_simulations)
        every = (doubted.covered + others.covered) / n_simulations
        shown = [
            f"{100 * one.coverage:.1f}" if one.asked >= 50 else "" for one in (doubted, others)
        ]
        yield f"| {quantity} | {n} | {100 * share:.1f} | {100 * every:.1f} | {' | '.join(shown)} |"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if "skewed" in options.tables:
        print("\n".join(skewed(options.simulations)))
    if "coverage" in options.tables:
        _coverage(options.simulations, options.seed)


def _coverage(n_simulations: int, seed: int) -> None:
    columns = list(itertools.product(PROMPTS, SIZES))
    found = {cell: simulate(*cell, n_simulations, seed=seed) for cell in columns}
    print("| prompts x points | " + " | ".join(f"{n} x {k}" for n, k in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for name in found[columns[0]]:
        cells = [f"{100 * found[cell][name].coverage:.1f}" for cell in columns]
        print(f"| {name} | {' | '.join(cells)} |")
    alarms = [false_alarms(*cell, n_simulations, seed=seed) for cell in columns]
    print("| false alarms at 5 % | " + " | ".join(f"{100 * share:.1f}" for share in alarms) + " |")


if __name__ == "__main__":
    main()
