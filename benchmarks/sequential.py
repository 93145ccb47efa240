"""Simulate sequential stopping: its wrong orders, and its savings.

    python benchmarks/sequential.py --tables orders
    python benchmarks/sequential.py --tables sequences --judges soft hard
    python benchmarks/sequential.py --tables savings --simulations 200

Models differ in quality by a gap from one to the next; how good an answer is differs by prompt, so
the pairs of a prompt depend on each other. Wrong is an order against the truth (of the source of
the prompts, or of exactly these prompts), and any order of models that are equal. "t-test" is what
it would be without a sequential test: Student's t, Bonferroni over pairs, at each block's end.
"""

import argparse
import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.sequential import OrderTest, confidence_sequence

Floats = NDArray[np.float64]

JUDGES = ("soft", "hard", "skewed", "missing")
POPULATIONS = ("source", "dataset")
ERROR = 0.05
N_PROMPTS = 400
BLOCK = 20
GAPS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2)


@dataclasses.dataclass(frozen=True)
class Study:
    """A simulated study.

    Attributes:
        judge: One of `JUDGES`.
        n_models: Models.
        gap: Between the qualities of one model and the next, in spreads of answers of one model.
        population: One of `POPULATIONS`.
        top: As of the test.
    """

    judge: str
    n_models: int
    gap: float
    population: str
    top: int | None = None


@dataclasses.dataclass
class Found:
    """Results of the simulations of a study.

    Attributes:
        n: Simulations.
        wrong: Of these, with a wrong order.
        wrong_t: With a wrong order by repeated t-tests.
        settled: Sum of the shares of pairs that were settled.
        asked: Sum of the shares of comparisons that were asked.
        difference: Sum of the mean differences of neighbours.
    """

    n: int = 0
    wrong: int = 0
    wrong_t: int = 0
    settled: float = 0.0
    asked: float = 0.0
    difference: float = 0.0

    def share(self, total: float) -> float:
        """In percent of the simulations."""
        return 100 * total / self.n


def pairs_of(n_models: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and second models of the pairs, in the test's order."""
    first, second = np.triu_indices(n_models, 1)
    return first, second


def differences(rng: np.random.Generator, study: Study, n_prompts: int) -> Floats:
    """Per-prompt differences in [-1, 1], shape (n_prompts, pairs); model 0 is the best.

    Equal models on exactly these prompts are exactly equal: each prompt has a mirror image.
    """
    first, second = pairs_of(study.n_models)
    is_tied = study.gap == 0 and study.population == "dataset"
    n_drawn = n_prompts // 2 if is_tied else n_prompts
    if study.judge == "skewed":
        # Rare large wins against many small losses: the mean is 0, hardly any prompt says so.
        x = np.where(rng.random((n_drawn, len(first))) < 0.1, 1.0, -1 / 9)
    else:
        answers = rng.normal(size=(n_drawn, study.n_models))
        answers -= study.gap * np.arange(study.n_models)
        noise = 0.5 * rng.normal(size=(n_drawn, len(first)))
        x = np.tanh(answers[:, first] - answers[:, second] + noise)
        if study.judge == "hard":
            x = np.where(np.abs(x) < 0.2, 0.0, np.sign(x))
    if study.judge == "missing":
        x = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    return rng.permutation(np.vstack([x, -x])) if is_tied else x


def truth(x: Floats, study: Study) -> Floats:
    """The sign of each pair's order."""
    if study.population == "dataset" and study.gap > 0:
        signs: Floats = np.sign(np.nansum(x, axis=0))
        return signs
    return np.full(x.shape[1], np.sign(study.gap))


def run_test(x: Floats, study: Study) -> tuple[OrderTest, float]:
    """A test that looked block by block until nothing was open, and the share of what was asked."""
    test = OrderTest(
        study.n_models,
        error=ERROR,
        population=len(x) if study.population == "dataset" else None,
        top=study.top,
    )
    asked = 0
    for block in range(len(x) // BLOCK):
        is_open = test.is_open(block)
        if not is_open.any():
            break
        asked += BLOCK * int(is_open.sum())
        test.look(x[block * BLOCK : (block + 1) * BLOCK])
    return test, asked / x.size


def t_tests(x: Floats, quantiles: Floats) -> Floats:
    """Signs declared by Student's t at any look, Bonferroni over pairs; the first one counts."""
    counts = np.cumsum(~np.isnan(x), axis=0)[BLOCK - 1 :: BLOCK]
    sums = np.cumsum(np.nan_to_num(x), axis=0)[BLOCK - 1 :: BLOCK]
    squares = np.cumsum(np.nan_to_num(x) ** 2, axis=0)[BLOCK - 1 :: BLOCK]
    mean = sums / counts
    variance = (squares - counts * mean**2) / (counts - 1)
    score = mean / np.sqrt(np.maximum(variance, 1e-12) / counts)
    declared = np.abs(score) > quantiles[: len(score), None]
    at = declared.argmax(axis=0)
    return np.where(declared.any(axis=0), np.sign(np.take_along_axis(score, at[None], 0)[0]), 0.0)


@functools.cache
def t_quantiles(n_pairs: int, n_looks: int) -> Floats:
    """Quantiles of |t| at `ERROR` over the pairs for each look, by simulation (scipy is slow)."""
    rng = np.random.default_rng(0)
    level = 1 - ERROR / n_pairs
    degrees = BLOCK * np.arange(1, n_looks + 1) - 1
    normal, chi = rng.normal(size=200_000), rng.chisquare(degrees[:, None], (n_looks, 200_000))
    return np.quantile(np.abs(normal) / np.sqrt(chi / degrees[:, None]), level, axis=1)


def simulate(study: Study, n_simulations: int, seed: int = 0, n_prompts: int = N_PROMPTS) -> Found:
    """Run a study."""
    key = [JUDGES.index(study.judge), study.n_models, round(1000 * study.gap)]
    rng = np.random.default_rng([seed, *key, POPULATIONS.index(study.population)])
    quantiles = t_quantiles(len(pairs_of(study.n_models)[0]), n_prompts // BLOCK)
    found = Found()
    for _ in range(n_simulations):
        x = differences(rng, study, n_prompts)
        right = truth(x, study)
        test, asked = run_test(x, study)
        found.n += 1
        found.wrong += bool(np.any((test.settled != 0) & (test.settled != right)))
        declared = t_tests(x, quantiles)
        found.wrong_t += bool(np.any((declared != 0) & (declared != right)))
        found.settled += float(np.mean(test.settled != 0))
        found.asked += asked
        neighbours = [n for n, (a, b) in enumerate(test.pairs) if b == a + 1]
        found.difference += float(np.nanmean(x[:, neighbours]))
    return found


def coverage(judge: str, n_simulations: int, seed: int = 0) -> tuple[float, float]:
    """Share of confidence sequences of two models that held the mean at every look, by population.

    In percent; nominal is 95.
    """
    rng = np.random.default_rng([seed, JUDGES.index(judge), 99])
    found = []
    for population in POPULATIONS:
        study = Study(judge, 2, 0.3, population)
        source = np.mean(differences(rng, study, 4_000_000))
        held = 0
        for first in range(0, n_simulations, 100):
            n_series = min(100, n_simulations - first)
            x = np.hstack([differences(rng, study, N_PROMPTS) for _ in range(n_series)])
            mean = np.mean(x, axis=0) if population == "dataset" else source
            size = N_PROMPTS if population == "dataset" else None
            # Cut in the middle: a population that is asked whole has nothing left to cover.
            low, high = confidence_sequence(x[: N_PROMPTS // 2], error=ERROR / 2, population=size)
            held += int(((low <= mean) & (mean <= high)).sum())
        found.append(100 * held / n_simulations)
    return found[0], found[1]


def wrong_orders(n_simulations: int, judges: Sequence[str]) -> Iterator[str]:
    """The table of wrong orders, line by line."""
    yield "| judge | models | gap | order on | wrong, % | settled, % | wrong by t-test, % |"
    yield "|---|---|---|---|---|---|---|"
    for judge in judges:
        for n_models in (2, 5):
            for gap in (0.0,) if judge == "skewed" else (0.0, 0.05):
                for population in POPULATIONS:
                    found = simulate(Study(judge, n_models, gap, population), n_simulations)
                    yield (
                        f"| {judge} | {n_models} | {gap:g} | {population} "
                        f"| {found.share(found.wrong):.2f} | {found.share(found.settled):.0f} "
                        f"| {found.share(found.wrong_t):.1f} |"
                    )


def savings(n_simulations: int, judges: Sequence[str]) -> Iterator[str]:
    """The table of what is asked, line by line: percent of all comparisons (of pairs settled).

    Of the first of the judges.
    """
    yield "| gap | mean difference | 2 models | 2, dataset | 5 models | 5, dataset | 5, top 1 |"
    yield "|---|---|---|---|---|---|---|"
    curve = []
    for gap in GAPS:
        cells = []
        difference = 0.0
        for n_models, population, top in (
            (2, "source", None), (2, "dataset", None),
            (5, "source", None), (5, "dataset", None), (5, "source", 1),
        ):  # fmt: skip
            found = simulate(Study(judges[0], n_models, gap, population, top), n_simulations)
            cells.append(f"{found.share(found.asked):.0f} ({found.share(found.settled):.0f})")
            difference = found.difference / found.n
        yield f"| {gap:g} | {difference:.3f} | {' | '.join(cells)} |"
        # Of five models, the order of every pair.
        asked = int(cells[2].partition(" ")[0])
        curve.append(f"{difference:6.3f}  {'█' * round(asked / 2)} {asked} %")
    yield "\n```\nmean difference of neighbours, and comparisons requested with 5 models"
    yield from curve
    yield "```"


def coverages(n_simulations: int, judges: Sequence[str]) -> Iterator[str]:
    """The table of confidence sequences, line by line."""
    yield "| judge | held, source, % | held, dataset, % |"
    yield "|---|---|---|"
    for judge in judges:
        source, dataset = coverage(judge, n_simulations)
        yield f"| {judge} | {source:.1f} | {dataset:.1f} |"


TABLES = {"orders": wrong_orders, "sequences": coverages, "savings": savings}


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000, help="of each line")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--judges", nargs="+", choices=JUDGES, default=list(JUDGES))
    options = parser.parse_args()
    for name in options.tables:
        print(f"\n{name}, {options.simulations:,} simulations of {N_PROMPTS} prompts\n")
        for line in TABLES[name](options.simulations, options.judges):
            print(line, flush=True)


if __name__ == "__main__":
    main()
