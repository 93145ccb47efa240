"""Simulate the coverage of the intervals of `orchestrator.statistics`.

    python benchmarks/interval_coverage.py --simulations 1000 > coverage.md
    python benchmarks/interval_coverage.py --simulations 2000 --win-rates

A judge compares every pair of models on every prompt. How good an answer is differs by prompt, so
the judgments of one prompt depend on each other. The truth is the same judge on 300,000 prompts.
"""

import argparse
import dataclasses
import itertools

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.bradley_terry import ELO_SCALE, fit_bradley_terry, to_elo
from orchestrator.statistics.prompt_sums import Pairs, PromptSums, win_rates
from orchestrator.statistics.ratings import Ratings, rate

MODELS = {
    2: (0.3, -0.3),
    3: (0.5, 0.0, -0.5),
    5: (1.2, 0.1, -0.2, -0.4, -0.7),
    30: tuple(1.0 - 2.0 * i / 29 for i in range(30)),
}
JUDGES = ("soft", "sharp", "hard", "skewed", "missing", "equal")
FEW = (2, 3, 5)
SPREAD = {"skewed": 2.5, "equal": 0.0}
LEVEL = 0.95
POPULATION = 300_000

Floats = NDArray[np.float64]


@dataclasses.dataclass
class Tally:
    """Counts of intervals that held the truth, that were undefined, and that were open."""

    asked: int = 0
    covered: int = 0
    none: int = 0
    open: int = 0

    def add(self, low: Floats, high: Floats, truth: Floats) -> None:
        """Counts intervals; arrays of one shape, nan bounds for no interval."""
        given = ~(np.isnan(low) | np.isnan(high))
        self.asked += int(given.sum())
        self.none += int((~given).sum())
        self.open += int(np.isinf(low[given]).sum() + np.isinf(high[given]).sum())
        self.covered += int(((low <= truth) & (truth <= high))[given].sum())

    @property
    def coverage(self) -> float:
        """Share of the given intervals that held the truth."""
        return self.covered / self.asked if self.asked else float("nan")


def preferences(
    rng: np.random.Generator, n_prompts: int, qualities: tuple[float, ...], judge: str
) -> Floats:
    """P(first beats second), shape (n_prompts, pairs); nan where there is no judgment."""
    first, second = np.triu_indices(len(qualities), 1)
    answers = SPREAD.get(judge, 1.0) * np.asarray(qualities) + rng.normal(
        size=(n_prompts, len(qualities))
    )
    gap = answers[:, first] - answers[:, second] + 0.7 * rng.normal(size=(n_prompts, len(first)))
    p = 1 / (1 + np.exp(-(8.0 if judge == "sharp" else 2.0) * gap))
    if judge == "hard":
        p = np.where(p > 0.6, 1.0, np.where(p < 0.4, 0.0, 0.5))
    if judge == "missing":
        p = np.where(rng.random(p.shape) < 0.3, np.nan, p)
    return p


def summed(p: Floats, n_models: int) -> PromptSums:
    """Sums of an array of preferences by prompt and pair."""
    first, second = np.triu_indices(n_models, 1)
    prompts = np.repeat(np.arange(len(p)), len(first))
    values = p.reshape(-1)
    kept = ~np.isnan(values)
    return Pairs(
        prompts[kept],
        np.tile(first, len(p))[kept],
        np.tile(second, len(p))[kept],
        n_models,
    ).summing()(values[kept])


@dataclasses.dataclass(frozen=True)
class Cell:
    """One line of the table."""

    judge: str
    n_models: int
    n_prompts: int


def simulate_win_rates(
    cell: Cell, *, n_simulations: int, seed: int, population: int = POPULATION
) -> Tally:
    """Tally of the win rates of pairs alone, without ratings, which take a hundred times longer."""
    rng = _source(cell, seed)
    qualities = MODELS[cell.n_models]
    everyone = summed(preferences(rng, population, qualities, cell.judge), cell.n_models)
    truth = everyone.by_pair(everyone.wins) / everyone.by_pair(everyone.counts)
    tally = Tally()
    for _ in range(n_simulations):
        sums = summed(preferences(rng, cell.n_prompts, qualities, cell.judge), cell.n_models)
        _add_win_rates(tally, sums, truth)
    return tally


def _source(cell: Cell, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, JUDGES.index(cell.judge), cell.n_models, cell.n_prompts])


def add_ratings(tallies: dict[str, Tally], found: Ratings, strengths: Floats) -> None:
    """Add intervals of ratings and of neighbours' differences.

    Args:
        tallies: By name; "rating" and "difference" are added to.
        found: Ratings of M models.
        strengths: True strengths, natural log, shape (M,).
    """
    tallies["rating"].add(found.low, found.high, to_elo(strengths))
    for i, j in itertools.pairwise(range(len(strengths))):
        first, second = np.array([[i], [j]])
        interval = found.differences(first, second, np.array([1.0 - LEVEL]))[0].interval
        bounds = (interval.low, interval.high) if interval else (np.nan, np.nan)
        truth = np.array([ELO_SCALE * (strengths[i] - strengths[j])])
        tallies["difference"].add(np.array(bounds[:1]), np.array(bounds[1:]), truth)


def _add_win_rates(tally: Tally, sums: PromptSums, truth: Floats) -> None:
    shares = win_rates(sums, LEVEL)
    at = (sums.first, sums.second)
    tally.add(shares.low[at], shares.high[at], truth)


def simulate(
    cell: Cell, *, n_simulations: int, seed: int, population: int = POPULATION
) -> dict[str, Tally]:
    """Tallies of ratings, neighbours' differences, win rates and ranks (all ranks at once)."""
    rng = _source(cell, seed)
    qualities = MODELS[cell.n_models]
    everyone = summed(preferences(rng, population, qualities, cell.judge), cell.n_models)
    strengths = fit_bradley_terry(everyone.win_matrix).strengths
    if cell.judge == "equal":
        strengths = np.zeros(cell.n_models)
    win_truth = everyone.by_pair(everyone.wins) / everyone.by_pair(everyone.counts)
    true_rank = 1 + (strengths[None] > strengths[:, None]).sum(1)
    tallies = {name: Tally() for name in ("rating", "difference", "win rate", "ranks")}
    names = [f"m{i}" for i in range(cell.n_models)]
    for _ in range(n_simulations):
        sums = summed(preferences(rng, cell.n_prompts, qualities, cell.judge), cell.n_models)
        result = rate(sums, names, confidence_level=LEVEL)
        add_ratings(tallies, result, strengths)
        _add_win_rates(tallies["win rate"], sums, win_truth)
        held = (result.rank_low <= true_rank) & (true_rank <= result.rank_high)
        tallies["ranks"].add(np.zeros(1), np.ones(1), np.array([0.5 if held.all() else 2.0]))
    return tallies


def _print_win_rates(options: argparse.Namespace) -> None:
    print("| judge | models | 20 prompts | 50 prompts | 200 prompts |\n|---|---|---|---|---|")
    for judge, n_models in itertools.product(options.judges, options.models):
        tallies = [
            simulate_win_rates(
                Cell(judge, n_models, n_prompts),
                n_simulations=options.simulations,
                seed=options.seed,
            )
            for n_prompts in (20, 50, 200)
        ]
        cells = " | ".join(f"{100 * tally.coverage:.1f}" for tally in tallies)
        print(f"| {judge} | {n_models} | {cells} |", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", type=int, nargs="+", default=FEW, choices=tuple(MODELS))
    parser.add_argument("--judges", nargs="+", default=JUDGES, choices=JUDGES)
    parser.add_argument("--win-rates", action="store_true", help="print only the win rates")
    options = parser.parse_args()
    if options.win_rates:
        _print_win_rates(options)
        return
    print("| judge | models | prompts | rating | difference | win rate | ranks | none | open |")
    print("|---|---|---|---|---|---|---|---|---|")
    for judge, n_models, n_prompts in itertools.product(
        options.judges, options.models, (20, 50, 200)
    ):
        tallies = simulate(
            Cell(judge, n_models, n_prompts),
            n_simulations=options.simulations,
            seed=options.seed,
        )
        cells = [f"{100 * tally.coverage:.1f}" for tally in tallies.values()]
        rating = tallies["rating"]
        total = rating.asked + rating.none
        cells += [f"{100 * rating.none / total:.1f}", f"{100 * rating.open / total:.1f}"]
        print(f"| {judge} | {n_models} | {n_prompts} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
