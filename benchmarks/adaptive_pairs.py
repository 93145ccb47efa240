"""Simulate the adaptive choice of comparisons: its wrong orders, and what it costs.

    python -m benchmarks.adaptive_pairs --tables orders target --figures docs/images
    python -m benchmarks.adaptive_pairs --tables costs --simulations 100 --figures docs/images

How good an answer is differs by prompt, so the pairs of a prompt depend on each other. Wrong is any
declared order against the truth, which is the order of the mean win rates over all opponents (over
the baseline, where that is the goal), and any order of models that are equal. *cycle*: every model
beats half of the others and loses to the other half, so that mean win rates are equal and no order
is right, although no pair is equal. *unordered*: each pair has a mean of its own, so the matrix
follows no Bradley-Terry model and has many cycles. Models *in groups* are equal within groups of
three, so that the five best end within a group; only orders within a group are always wrong.

*All pairs* is the same test with every comparison. *Uniform* spends the same number of comparisons
on pairs drawn at random and tests each pair by its own results; *uniform, same test* keeps all
models in play to the end.

A study of 30 models on 500 prompts takes about 0.05 s of a processor. `OPENBLAS_NUM_THREADS=1`
keeps the small matrices of a study on one of them.
"""

import argparse
import dataclasses
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks._curves import draw_curves
from orchestrator.statistics.adaptive import AdaptiveTest, consequences
from orchestrator.statistics.sequential import LAG, Capital

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WORLDS = ("soft", "hard", "missing", "clusters", "cycle", "unordered")
GOALS = ("ranking", "top 5", "baseline")
ERROR = 0.05
BLOCK = 20
N_MODELS, N_PROMPTS = 30, 500
SHARES = (0.01, 0.02, 0.035, 0.05, 0.1, 0.2)
SPREADS = (0.5, 1.0, 2.0)
ORDERS_FIGURE, COSTS_FIGURE = "adaptive_wrong.svg", "adaptive_pairs.svg"
_CLUSTER = 5
_GROUP = 3
# Of the soft judge's view of a difference of two answers: spread of its error.
_JUDGE_NOISE = 0.5
# Simulations in which each pair is tested by its own results too, which takes longest.
_MOST_DIRECT = 100


@dataclasses.dataclass(frozen=True)
class Study:
    """A simulated study.

    Attributes:
        world: One of `WORLDS`.
        n_models: Models.
        spread: Of the models' qualities, in spreads of the answers of one model; 0 where all are
            equal.
        goal: One of `GOALS`.
        share: Of all comparisons that may be asked.
        n_prompts: Prompts.
        group: Models in a row of equal quality; 1 where each has its own.
    """

    world: str
    n_models: int
    spread: float
    goal: str = "ranking"
    share: float = 0.05
    n_prompts: int = N_PROMPTS
    group: int = 1

    @property
    def models(self) -> str:
        """The differences between the models, in words."""
        if self.world in ("cycle", "unordered"):
            return "by pair"
        if not self.spread:
            return "all equal"
        return f"{'in groups, ' if self.group > 1 else ''}spread {self.spread:g}"

    def target(self) -> dict[str, int]:
        """The goal as arguments of the test; the baseline is the model in the middle."""
        if self.goal == "baseline":
            return {"baseline": self.n_models // 2}
        return {"top": min(5, self.n_models - 1)} if self.goal == "top 5" else {}

    def sizes(self) -> tuple[int, ...]:
        """Prompts of each cluster; none where each stands alone."""
        if self.world != "clusters":
            return ()
        return (_CLUSTER,) * (self.n_prompts // _CLUSTER)


def results(rng: np.random.Generator, study: Study) -> tuple[Floats, Floats]:
    """Draw all results, and the true score of each model.

    Returns:
        Shape (prompts, pairs), in [-1, 1]; shape (K, K), the sign of the true order of each two
        models for the goal of the study.
    """
    n, shape = study.n_models, (study.n_prompts, study.n_models)
    first, second = np.triu_indices(n, 1)
    if study.world in ("cycle", "unordered"):
        apart = (second - first) * 2 * np.pi / n
        means = 0.6 * np.sin(apart) if study.world == "cycle" else 0.0
        if study.world == "unordered":
            means = rng.uniform(-0.9, 0.9, size=len(first))
        x = np.where(rng.random((shape[0], len(first))) < (1 + means) / 2, 1.0, -1.0)
        return x, _truth(np.broadcast_to(means, first.shape), study)
    # Drawn from a normal distribution, as a leaderboard's models are, the best first.
    quality = study.spread * np.repeat(
        np.sort(rng.normal(size=n // study.group))[::-1], study.group
    )
    answers = rng.normal(size=shape)
    if study.world == "clusters":
        common = np.repeat(rng.normal(size=(shape[0] // _CLUSTER, n)), _CLUSTER, axis=0)
        answers = np.sqrt(0.2) * answers + np.sqrt(0.8) * common
    answers += quality
    x = judged(answers, rng)
    if study.world == "hard":
        x = np.where(np.abs(x) < 0.2, 0.0, np.sign(x))
    if study.world == "missing":
        x = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    return x, np.sign(quality[:, None] - quality[None, :])


def judged(answers: Floats, rng: np.random.Generator) -> Floats:
    """Return the results of a soft judge for all pairs.

    `answers` are qualities, shape (prompts, K). Returns shape (prompts, pairs), in (-1, 1),
    positive where the first of the pair is better; pairs are (0, 1), (0, 2), …, (1, 2), ….
    """
    first, second = np.triu_indices(answers.shape[1], 1)
    noise = _JUDGE_NOISE * rng.normal(size=(len(answers), len(first)))
    found: Floats = np.tanh(answers[:, first] - answers[:, second] + noise)
    return found


def _truth(means: Floats, study: Study) -> Floats:
    """Signs of the orders of mean win rates, or of each pair's mean for the baseline."""
    n = study.n_models
    matrix = np.zeros((n, n))
    first, second = np.triu_indices(n, 1)
    matrix[first, second], matrix[second, first] = means, -means
    if study.goal == "baseline":
        return np.sign(np.where(np.abs(matrix) < 1e-12, 0.0, matrix))
    score = matrix.sum(axis=1)
    apart = score[:, None] - score[None, :]
    return np.sign(np.where(np.abs(apart) < 1e-9, 0.0, apart))


class Stubborn(AdaptiveTest):
    """The same test without a choice: every model stays in play to the end."""

    def _still_open(self) -> Bools:
        return self._asked_for


def run_test(
    x: Floats, study: Study, seed: int, kind: type[AdaptiveTest] = AdaptiveTest
) -> AdaptiveTest:
    """A test that looked at all blocks, as a run does it."""
    test = kind(
        study.n_models,
        error=ERROR,
        n_prompts=len(x),
        share=study.share,
        **study.target(),
        sizes=study.sizes(),
    )
    bounds = [*range(0, len(x), BLOCK), len(x)]
    sizes = (_CLUSTER,) * (BLOCK // _CLUSTER) if study.sizes() else None
    n_blocks = len(bounds) - 1
    for block in range(n_blocks + LAG - 1):
        if block < n_blocks:
            n_prompts = bounds[block + 1] - bounds[block]
            test.design(n_prompts, np.random.default_rng([seed, block]))
        looked = block - LAG + 1
        if looked >= 0:
            test.look(x[bounds[looked] : bounds[looked + 1]], sizes)
    return test


def direct_orders(x: Floats, n_models: int, n_asked: int, rng: np.random.Generator) -> Bools:
    """Orders of pairs drawn at random, each tested by its own results; with consequences.

    Holm's procedure over both directions of all pairs, as `statistics.stop_when` does it. For the
    sake of the comparison the orders' consequences count too, which assumes transitivity.
    """
    keys = rng.permutation(x.size)[:n_asked]
    asked = np.zeros(x.size, np.bool_)
    asked[keys] = True
    seen = np.where(asked.reshape(x.shape), x, np.nan)
    first, second = np.triu_indices(n_models, 1)
    highest = np.zeros((n_models, n_models))
    for sign, rows, columns in ((1.0, first, second), (-1.0, second, first)):
        path = Capital(x.shape[1]).add(sign * seen)
        highest[rows, columns] = np.maximum(0.0, path.max(axis=0))
    better = np.zeros((n_models, n_models), np.bool_)
    n_all = 2 * x.shape[1]
    while True:
        threshold = np.log((n_all - better.sum()) / ERROR)
        found = consequences(better | (highest >= threshold))
        if (found == better).all():
            return better
        better = found


def settled(test: AdaptiveTest, study: Study) -> Bools:
    """Return what the goal asks for and is known: pairs, or models."""
    if study.goal == "ranking":
        return test.better
    return np.array([place.verdict != 0 for place in test.places()])


class Found(NamedTuple):
    """The results of many simulations of a study.

    Attributes:
        first_wrong: Prompts after which the first wrong order was declared, shape (simulations,);
            0 where none was.
        settled: Mean share of the pairs (models) that are settled.
        asked: Mean share of the budget that was spent.
        same: Share of what all pairs settle that is settled; nan where that was not simulated.
        identical: Share of the simulations in which nothing of that is missing.
        direct: Share of what all pairs settle if each is tested by its own results, from the first
            `_MOST_DIRECT` simulations; nan for other goals than the ranking.
    """

    first_wrong: NDArray[np.int64]
    settled: float
    asked: float
    same: float = np.nan
    identical: float = np.nan
    direct: float = np.nan

    def wrong(self) -> float:
        """Share of the simulations with a wrong order."""
        return float((self.first_wrong > 0).mean())


def simulate(study: Study, n_simulations: int, *, against_all: bool = False) -> Found:
    """Simulate a study many times.

    Args:
        study: Of which the results are drawn.
        n_simulations: How often.
        against_all: Hold it against all pairs too.
    """
    rng = np.random.default_rng(zlib.crc32(repr(study).encode()))
    first_wrong = np.zeros(n_simulations, np.int64)
    whole = dataclasses.replace(study, share=1.0)
    n_budget = study.share * study.n_prompts * study.n_models * (study.n_models - 1) / 2
    known = asked = 0.0
    counts = np.zeros((n_simulations, 4), np.int64)
    for seed in range(n_simulations):
        x, truth = results(rng, study)
        test = run_test(x, study, seed)
        wrong = test.better & (truth <= 0)
        first_wrong[seed] = (
            test.settled_at[wrong].min(initial=study.n_prompts) if wrong.any() else 0
        )
        known += _share_settled(test, study)
        asked += test.n_asked / n_budget
        if against_all:
            found, every = settled(test, study), settled(run_test(x, whole, seed), study)
            own = np.zeros_like(found)
            if study.goal == "ranking" and seed < _MOST_DIRECT:
                own = direct_orders(x, study.n_models, x.size, rng)
            counts[seed] = (found & every).sum(), every.sum(), (found & own).sum(), own.sum()
    same, n_all, same_direct, n_direct = counts.sum(axis=0)
    return Found(
        first_wrong,
        known / n_simulations,
        asked / n_simulations,
        same / n_all if n_all else np.nan,
        float((counts[:, 0] == counts[:, 1]).mean()) if against_all else np.nan,
        same_direct / n_direct if n_direct else np.nan,
    )


def wrong_orders(
    n_simulations: int, models: Sequence[int], processes: int, figure: Path | None = None
) -> Iterator[str]:
    """The table of wrong orders, line by line."""
    chosen = [study for study in studies() if study.n_models in models]
    yield "| judge | number | models | goal | share, % | wrong, % | settled, % |"
    yield "|---|---|---|---|---|---|---|"
    curves: dict[str, dict[str, list[float]]] = {goal: {} for goal in GOALS}
    at = np.arange(BLOCK, N_PROMPTS + 1, BLOCK)
    with ProcessPoolExecutor(processes) as pool:
        for study, found in zip(
            chosen, pool.map(simulate, chosen, repeat(n_simulations)), strict=True
        ):
            yield (
                f"| {study.world} | {study.n_models} | {study.models} | {study.goal} "
                f"| {100 * study.share:g} | {100 * found.wrong():.2f} "
                f"| {100 * found.settled:.0f} |"
            )
            if study.n_models == N_MODELS and study.world == "soft":
                n_wrong = [((found.first_wrong > 0) & (found.first_wrong <= n)).mean() for n in at]
                curves[study.goal][study.models] = [100 * float(share) for share in n_wrong]
    if figure is not None:
        for lines in curves.values():
            lines["allowed"] = [100 * ERROR] * len(at)
        figure.write_text(
            draw_curves(
                [float(n) for n in at],
                curves,
                x_label="prompts that were looked at",
                y_label="studies with a wrong order so far, %",
                highest=8,
                marked=(20, 50, 100, 200, 500),
            ),
            encoding="utf-8",
        )


def studies() -> Iterator[Study]:
    """Studies in which orders may be wrong."""
    for world in WORLDS:
        for spread in (0.0,) if world in ("cycle", "unordered") else (0.0, 0.1):
            yield Study(world, 5, spread, "ranking", 0.5, 200)
    for goal in GOALS:
        for world in WORLDS:
            # Of equal models nothing is settled: the five best are then the test of a ranking.
            if goal != "top 5" or world in ("soft", "unordered"):
                yield Study(world, N_MODELS, 0.0, goal)
        for world in ("soft", "hard"):
            yield Study(world, N_MODELS, 1.0, goal, group=_GROUP)
        yield Study("soft", N_MODELS, 1.0, goal)


def target(n_simulations: int, processes: int) -> Iterator[str]:
    """The table of a twentieth of the comparisons against all of them, line by line."""
    chosen = [
        Study("soft", N_MODELS, spread, goal, group=group)
        for goal in GOALS
        for spread, group in (*((spread, 1) for spread in SPREADS), (1.0, _GROUP))
    ]
    yield (
        "| goal | models | wrong, % | settled, % | asked, % of the share | of all pairs', % "
        "| nothing missing, % of studies | of all pairs' own tests, % |"
    )
    yield "|---" * 8 + "|"
    with ProcessPoolExecutor(processes) as pool:
        found_of = pool.map(_against_all, chosen, repeat(n_simulations))
        for study, found in zip(chosen, found_of, strict=True):
            direct = "" if np.isnan(found.direct) else f"{100 * found.direct:.1f}"
            yield (
                f"| {study.goal} | {study.models} | {100 * found.wrong():.2f} "
                f"| {100 * found.settled:.0f} | {100 * found.asked:.0f} "
                f"| {100 * found.same:.1f} | {100 * found.identical:.0f} | {direct} |"
            )


def _against_all(study: Study, n_simulations: int) -> Found:
    return simulate(study, n_simulations, against_all=True)


def _share_settled(test: AdaptiveTest, study: Study) -> float:
    known = settled(test, study)
    if study.goal == "ranking":
        return float(known.sum() / len(test.pairs))
    return float(known.sum() / (study.n_models - (study.goal == "baseline")))


def costs(n_simulations: int, processes: int, figure: Path | None = None) -> Iterator[str]:
    """The table of what is recovered of the orders of all pairs, line by line.

    In percent of what all comparisons settle under the same test.
    """
    shares = " | ".join(f"{100 * share:g} %" for share in SHARES)
    yield f"| goal | spread | choice | {shares} | all pairs settle |"
    yield "|---" * (len(SHARES) + 4) + "|"
    curves: dict[str, dict[str, list[float]]] = {}
    chosen = [(goal, spread) for goal in GOALS for spread in SPREADS]
    with ProcessPoolExecutor(processes) as pool:
        rows_of = pool.map(_recovered, *zip(*chosen, strict=True), repeat(n_simulations))
        for (goal, spread), rows in zip(chosen, rows_of, strict=True):
            for name, (shares_found, whole) in rows.items():
                cells = " | ".join(f"{100 * share:.0f}" for share in shares_found)
                yield f"| {goal} | {spread:g} | {name} | {cells} | {100 * whole:.0f} |"
            panel = f"{goal}, spread {spread:g}"
            curves[panel] = {name: found for name, (found, _) in rows.items()}
    if figure is not None:
        figure.write_text(
            draw_curves(
                [100 * share for share in SHARES],
                {
                    panel: {name: [100 * y for y in ys] for name, ys in lines.items()}
                    for panel, lines in curves.items()
                },
                x_label="share of all comparisons that are requested, %",
                y_label="settled, % of all pairs'",
            ),
            encoding="utf-8",
        )


def _recovered(
    goal: str, spread: float, n_simulations: int
) -> dict[str, tuple[list[float], float]]:
    """Share of what all pairs settle, at each of `SHARES`, and how much that is."""
    full = Study("soft", N_MODELS, spread, goal, 1.0)
    rng = np.random.default_rng(zlib.crc32(repr(full).encode()))
    names = ["adaptive", "uniform, same test"] + (["uniform"] if goal == "ranking" else [])
    found = {name: np.zeros(len(SHARES)) for name in names}
    total = whole = 0.0
    for seed in range(n_simulations):
        x, _ = results(rng, full)
        known = settled(run_test(x, full, seed), full)
        total += known.sum()
        whole += _size(full)
        for at, share in enumerate(SHARES):
            study = dataclasses.replace(full, share=share)
            test = run_test(x, study, seed)
            found["adaptive"][at] += (settled(test, study) & known).sum()
            stubborn = run_test(x, study, seed, Stubborn)
            found["uniform, same test"][at] += (settled(stubborn, study) & known).sum()
            if goal == "ranking":
                direct = direct_orders(x, N_MODELS, test.n_asked, np.random.default_rng(seed))
                found["uniform"][at] += (direct & known).sum()
    return {name: ((sums / max(1, total)).tolist(), total / whole) for name, sums in found.items()}


def _size(study: Study) -> int:
    """The number of pairs, or of models, to settle."""
    n = study.n_models
    return n * (n - 1) // 2 if study.goal == "ranking" else n - (study.goal == "baseline")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000, help="of each line")
    tables = ("orders", "target", "costs")
    parser.add_argument("--tables", nargs="+", choices=tables, default=["orders"])
    parser.add_argument("--models", nargs="+", type=int, default=[5, 30], help="of wrong orders")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--figures", type=Path, help="folder for the curves of orders and costs")
    options = parser.parse_args(arguments)
    n, processes, folder = options.simulations, options.processes, options.figures
    for name in options.tables:
        print(f"\n{name}, {n:,} simulations\n")
        if name == "orders":
            figure = None if folder is None else folder / ORDERS_FIGURE
            lines = wrong_orders(n, options.models, processes, figure)
        elif name == "target":
            lines = target(n, processes)
        else:
            lines = costs(n, processes, None if folder is None else folder / COSTS_FIGURE)
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
