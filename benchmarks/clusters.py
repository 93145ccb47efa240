"""Simulate coverage, and wrong orders of sequential stopping, for items in clusters.

    python -m benchmarks.clusters --tables coverage --simulations 1000
    python -m benchmarks.clusters --tables orders --simulations 1000
    python -m benchmarks.clusters --tables copies --simulations 1000

Items of one cluster (questions on one passage) are of like quality: model by model, the noise of
two of them is correlated. "By item" is what the same statistics say that take items for
independent, as they did before there were clusters. "Copies" are items in clusters that the
dataset does not name: what their texts alone make of them.
"""

import argparse
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.interval_coverage import LEVEL, MODELS, Tally, add_ratings
from orchestrator.dataset import from_items
from orchestrator.records import Item, Message
from orchestrator.runner.planning.similar_items import near_copies, text_of
from orchestrator.scheduler.blocks import StoppingRule
from orchestrator.statistics.bradley_terry import fit_bradley_terry, to_elo
from orchestrator.statistics.means import clustered_mean
from orchestrator.statistics.prompt_sums import Pairs, PromptSums, win_rates
from orchestrator.statistics.ratings import rate
from orchestrator.statistics.sequential import OrderTest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CORRELATION = 0.8
SIZES = (1, 3, 10)
UNEVEN = 0
"""Size of clusters of 1 to 9 items, 3 on average."""
POPULATION = 60_000


@dataclasses.dataclass(frozen=True)
class Cell:
    """The size of a simulated study.

    Attributes:
        n_models: Models.
        n_clusters: Clusters of a study.
        size: Items of each; `UNEVEN` for sizes that differ.
    """

    n_models: int
    n_clusters: int
    size: int


def sizes_of(rng: np.random.Generator, cell: Cell) -> Ints:
    """Items of each cluster, shape (clusters,)."""
    if cell.size != UNEVEN:
        return np.full(cell.n_clusters, cell.size)
    return np.minimum(rng.geometric(1 / 3, cell.n_clusters), 9)


def alike(rng: np.random.Generator, clusters: Ints, n_columns: int) -> Floats:
    """Standard normal noise, shape (items, columns), correlated within clusters."""
    shared = rng.normal(size=(int(clusters.max()) + 1, n_columns))[clusters]
    own = rng.normal(size=(clusters.size, n_columns))
    result: Floats = math.sqrt(CORRELATION) * shared + math.sqrt(1 - CORRELATION) * own
    return result


def preferences(rng: np.random.Generator, clusters: Ints, qualities: Sequence[float]) -> Floats:
    """P(first beats second), shape (items, pairs)."""
    first, second = np.triu_indices(len(qualities), 1)
    answers = np.asarray(qualities) + alike(rng, clusters, len(qualities))
    gap = answers[:, first] - answers[:, second] + 0.7 * alike(rng, clusters, len(first))
    result: Floats = 1 / (1 + np.exp(-2.0 * gap))
    return result


def summed(p: Floats, clusters: Ints, n_models: int) -> PromptSums:
    """Sums by cluster and pair."""
    first, second = np.triu_indices(n_models, 1)
    return Pairs(
        np.repeat(clusters, len(first)),
        np.tile(first, len(p)),
        np.tile(second, len(p)),
        n_models,
    ).summing()(p.reshape(-1))


NAMES = ("rating, by item", "rating", "difference", "win rate", "mean")


def simulate(cell: Cell, n_simulations: int, seed: int = 0) -> dict[str, Tally]:
    """Tallies of 95 % intervals by name."""
    rng = np.random.default_rng([seed, cell.n_models, cell.n_clusters, cell.size])
    qualities = MODELS[cell.n_models]
    everyone = summed(
        preferences(rng, np.arange(POPULATION), qualities), np.arange(POPULATION), cell.n_models
    )
    strengths = fit_bradley_terry(everyone.win_matrix).strengths
    wins = everyone.by_pair(everyone.wins) / everyone.by_pair(everyone.counts)
    tallies = {name: Tally() for name in NAMES}
    for _ in range(n_simulations):
        sizes = sizes_of(rng, cell)
        clusters = np.repeat(np.arange(sizes.size), sizes)
        p = preferences(rng, clusters, qualities)
        _rated(tallies, summed(p, clusters, cell.n_models), strengths)
        by_item = summed(p, np.arange(clusters.size), cell.n_models)
        found = rate(by_item, names_of(cell), confidence_level=LEVEL)
        tallies["rating, by item"].add(found.low, found.high, to_elo(strengths))
        shares = win_rates(summed(p, clusters, cell.n_models), LEVEL)
        at = (by_item.first, by_item.second)
        tallies["win rate"].add(shares.low[at], shares.high[at], wins)
        mean = clustered_mean(alike(rng, clusters, 1)[:, 0], clusters, LEVEL).interval
        bounds = (mean.low, mean.high) if mean else (math.nan, math.nan)
        tallies["mean"].add(np.array(bounds[:1]), np.array(bounds[1:]), np.zeros(1))
    return tallies


def names_of(cell: Cell) -> list[str]:
    """Names of the models."""
    return [f"m{i}" for i in range(cell.n_models)]


def _rated(tallies: dict[str, Tally], sums: PromptSums, strengths: Floats) -> None:
    names = [f"m{i}" for i in range(sums.n_models)]
    found = rate(sums, names, confidence_level=LEVEL)
    add_ratings(tallies, found, strengths)


def coverage(n_simulations: int) -> Iterator[str]:
    """The table of coverage, line by line."""
    yield f"| models | clusters | items of each | {' | '.join(NAMES)} |"
    yield f"|{'---|' * (len(NAMES) + 3)}"
    for n_models, n_clusters, size in itertools.product((2, 5), (6, 10, 20, 60), (*SIZES, UNEVEN)):
        cell = Cell(n_models, n_clusters, size)
        found = simulate(cell, n_simulations)
        shown = [f"{100 * found[name].coverage:.1f}" for name in NAMES]
        yield f"| {n_models} | {n_clusters} | {size or '1 to 9'} | {' | '.join(shown)} |"


ERROR = 0.05
N_ITEMS = 400
BLOCK = 20


def differences(rng: np.random.Generator, clusters: Ints, n_models: int) -> Floats:
    """Differences in [-1, 1] of equally good models on each item, shape (items, pairs)."""
    first, second = np.triu_indices(n_models, 1)
    answers = alike(rng, clusters, n_models)
    noise = 0.5 * alike(rng, clusters, len(first))
    result: Floats = np.tanh(answers[:, first] - answers[:, second] + noise)
    return result


def is_wrong(x: Floats, sizes: Ints | None, n_models: int) -> bool:
    """Return True if a test that looks block by block declares any order of equal models."""
    rule = StoppingRule(
        n_items=len(x), block=BLOCK, error=ERROR, population=None, top=None, rankings=(), slots=(),
        feeds=(), sizes=() if sizes is None else tuple(sizes.tolist()),
    )  # fmt: skip
    layout = rule.layout()
    largest = 1 if sizes is None else int(sizes.max())
    test = OrderTest(n_models, error=ERROR, largest=largest)
    for block in range(layout.n_blocks):
        if not test.is_open(block).any():
            break
        part = slice(*layout.bounds[block : block + 2])
        test.look(x[part], layout.sizes_of(block, block + 1))
    return bool(test.settled.any())


def wrong_orders(cell: Cell, n_simulations: int, seed: int = 0) -> tuple[float, float]:
    """Percent of studies with a wrong order, by item and by cluster."""
    rng = np.random.default_rng([seed, 1, cell.n_models, cell.size])
    n_wrong = [0, 0]
    for _ in range(n_simulations):
        sizes = sizes_of(rng, cell)
        clusters = np.repeat(np.arange(sizes.size), sizes)
        x = differences(rng, clusters, cell.n_models)
        n_wrong[0] += is_wrong(rng.permutation(x), None, cell.n_models)
        n_wrong[1] += is_wrong(x, sizes, cell.n_models)
    return 100 * n_wrong[0] / n_simulations, 100 * n_wrong[1] / n_simulations


def orders(n_simulations: int) -> Iterator[str]:
    """The table of wrong orders, line by line."""
    yield "| models | items of a cluster | wrong by item, % | wrong by cluster, % |"
    yield "|---|---|---|---|"
    for n_models, size in itertools.product((2, 5), (*SIZES, UNEVEN)):
        cell = Cell(n_models, N_ITEMS // (size or 3), size)
        by_item, by_cluster = wrong_orders(cell, n_simulations)
        yield f"| {n_models} | {size or '1 to 9'} | {by_item:.1f} | {by_cluster:.1f} |"


def items_of(rng: np.random.Generator, cell: Cell, *, equal: bool) -> list[Item]:
    """Items without named clusters: those of one are equal, or questions on one passage."""
    words = rng.integers(26**4, size=(cell.n_clusters, 60))
    passages = [" ".join(np.base_repr(word, 36) for word in row) for row in words]
    return [
        Item(key=f"{at}-{copy}", messages=(Message("user", f"{text} {'' if equal else copy}?"),))
        for at, text in enumerate(passages)
        for copy in range(cell.size)
    ]


def copied_ratings(cell: Cell, n_simulations: int, seed: int = 0) -> tuple[float, float]:
    """Coverage in percent of ratings from copied items: as independent, and as they are found."""
    rng = np.random.default_rng([seed, 2, cell.n_models, cell.size])
    qualities = MODELS[cell.n_models]
    alone = np.arange(POPULATION)
    everyone = summed(preferences(rng, alone, qualities), alone, cell.n_models)
    truth = to_elo(fit_bradley_terry(everyone.win_matrix).strengths)
    found = from_items("copies", items_of(rng, cell, equal=True)).with_copies(lambda _: None)
    codes = np.arange(len(found))
    ways = codes, codes if found.clusters is None else found.clusters.codes.astype(np.int64)
    tallies = Tally(), Tally()
    for _ in range(n_simulations):
        p = preferences(rng, np.arange(cell.n_clusters), qualities).repeat(cell.size, axis=0)
        for clusters, tally in zip(ways, tallies, strict=True):
            rated = rate(summed(p, clusters, cell.n_models), names_of(cell), confidence_level=LEVEL)
            tally.add(rated.low, rated.high, truth)
    return 100 * tallies[0].coverage, 100 * tallies[1].coverage


def copied_orders(
    cell: Cell, n_simulations: int, *, equal: bool, seed: int = 0
) -> tuple[float, float, float]:
    """Percent of studies with a wrong order from items without named clusters.

    Returns:
        As independent; as they are found, of the studies that are not refused; and refused.
    """
    rng = np.random.default_rng([seed, 3, cell.n_models, cell.size])
    alone, found, refused = 0, 0, 0
    clusters = np.repeat(np.arange(cell.n_clusters), cell.size)
    for _ in range(n_simulations):
        dataset = from_items("copies", items_of(rng, cell, equal=equal))
        dataset = dataset.with_copies(lambda _: None)
        every = np.ones(len(dataset), np.bool_)
        first = every if dataset.copies is None else dataset.copies.is_first()
        asked = (dataset.item(at) for at in np.flatnonzero(first).tolist())
        if equal:
            x = differences(rng, np.arange(cell.n_clusters), cell.n_models)[clusters]
        else:
            x = differences(rng, clusters, cell.n_models)
        in_any_order = rng.permutation(x)
        alone += is_wrong(in_any_order, None, cell.n_models)
        if near_copies((item.key, text_of(item)) for item in asked) is not None:
            refused += 1
        elif dataset.clusters is None:
            found += is_wrong(in_any_order, None, cell.n_models)
        else:
            found += is_wrong(x, np.bincount(dataset.clusters.codes), cell.n_models)
    n_open = n_simulations - refused
    share = 100 * found / n_open if n_open else math.nan
    return 100 * alone / n_simulations, share, 100 * refused / n_simulations


def copies(n_simulations: int) -> Iterator[str]:
    """The table of items that ask the same, or nearly, line by line."""
    yield "| what | models | items | as independent, % | as found, % | refused, % |"
    yield "|---|---|---|---|---|---|"
    for n_models, size in itertools.product((2, 5), (1, 3, 15)):
        one, two = copied_ratings(Cell(n_models, 20, size), n_simulations)
        items = f"20 prompts x {size}"
        yield f"| ratings held | {n_models} | {items} | {one:.1f} | {two:.1f} | |"
    for n_models, equal in itertools.product((2, 5), (True, False)):
        cell = Cell(n_models, N_ITEMS // 10, 10)
        one, two, refused = copied_orders(cell, n_simulations // 5, equal=equal)
        items = f"40 {'prompts x 10' if equal else 'passages x 10 questions'}"
        shown = "" if math.isnan(two) else f"{two:.1f}"
        yield f"| wrong orders | {n_models} | {items} | {one:.1f} | {shown} | {refused:.0f} |"


TABLES = {"coverage": coverage, "orders": orders, "copies": copies}


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000, help="of each line")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options = parser.parse_args()
    for name in options.tables:
        print(f"\n{name}, {options.simulations:,} simulations\n")
        for line in TABLES[name](options.simulations):
            print(line, flush=True)


if __name__ == "__main__":
    main()
