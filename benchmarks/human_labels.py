"""Simulate means and win rates of few human labels and many judge scores: coverage and width.

    python -m benchmarks.human_labels --simulations 1000

People label a random choice of rows, the judge scores all. Rows come one or three a prompt; three
are alike (correlation 0.5 of what people feel, and of the judge's own errors), and labels are drawn
row by row, so that a prompt may have labelled and other rows. The truth is the mean over 600,000
prompts. The table has the coverage of the corrected interval, of that of the labels alone, and the
ratio of their widths.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.prediction_powered import (
    Labelled,
    corrected_mean,
)
from orchestrator.statistics.results import Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVEL = 0.95
POPULATION = 600_000
SIZES = ((20, 300), (50, 300), (100, 300), (20, 2000), (50, 2000), (100, 2000), (300, 2000))
"""Labels, and rows in all."""
NOISE = {"chance": 1e6, "weak": 1.5, "good": 0.6, "near": 0.15}
"""Spread of a judge's own errors by its quality, in spreads of what people feel."""
KINDS = {"score": None, "win rate, even": 0.0, "win rate, 88 %": 1.2}
"""People's threshold; None for a graded score."""


@dataclasses.dataclass(frozen=True)
class World:
    """The distribution of people's labels and of a judge's scores.

    Attributes:
        kind: Of `KINDS`.
        quality: Of `NOISE`.
        rows: Rows of a prompt.
    """

    kind: str
    quality: str
    rows: int


def draw(world: World, n_rows: int, rng: np.random.Generator) -> tuple[Floats, Floats, Ints]:
    """Labels that people would give, scores of the judge, and prompts; each of shape (rows,)."""
    prompts = np.arange(n_rows) // world.rows
    alike = np.sqrt(0.5 if world.rows > 1 else 0.0)

    def noise() -> Floats:
        shared = rng.normal(size=int(prompts.max()) + 1)[prompts]
        result: Floats = alike * shared + np.sqrt(1 - alike**2) * rng.normal(size=n_rows)
        return result

    felt = noise()
    heard = felt + NOISE[world.quality] * noise()
    heard = heard / np.sqrt(1 + NOISE[world.quality] ** 2)
    shift = KINDS[world.kind]
    if shift is None:
        return felt, heard + 0.3, prompts
    labels = (felt + shift > 0).astype(np.float64)
    return labels, scipy.special.expit(4.0 * (heard + shift + 0.4)), prompts


def simulate(
    world: World, n_labels: int, n_rows: int, n_simulations: int, seed: int = 0
) -> dict[str, tuple[float, float, float]]:
    """Coverage in percent, mean width, and percent of studies that have it, of each interval."""
    rng = np.random.default_rng([seed, list(KINDS).index(world.kind), n_labels, n_rows])
    true = float(draw(world, POPULATION, np.random.default_rng(1))[0].mean())
    found: dict[str, list[tuple[bool, float]]] = {}
    for _ in range(n_simulations):
        labels, scores, prompts = draw(world, n_rows, rng)
        chosen = np.zeros(n_rows, dtype=np.bool_)
        chosen[rng.permutation(n_rows)[:n_labels]] = True
        data = Labelled(scores, np.where(chosen, labels, np.nan), prompts)
        for name, interval in intervals(world, data).items():
            if isinstance(interval, Interval):
                held = (interval.contains(true), interval.high - interval.low)
                found.setdefault(name, []).append(held)
    return {
        name: (
            100 * float(np.mean([held for held, _ in studies])),
            float(np.mean([width for _, width in studies])),
            100 * len(studies) / n_simulations,
        )
        for name, studies in found.items()
    }


def intervals(world: World, data: Labelled) -> dict[str, Interval | None]:
    """The interval of each estimate; None where there is none."""
    means = {"labels": corrected_mean(data, tuning=0.0), "corrected": corrected_mean(data)}
    is_share = KINDS[world.kind] is not None
    return {name: one.estimate(LEVEL, is_share=is_share).interval for name, one in means.items()}


def tables(n_simulations: int) -> Iterator[str]:
    """Coverage of PPI++, line by line."""
    sizes = " | ".join(f"{n_labels} of {n_rows:,}" for n_labels, n_rows in SIZES)
    yield f"| quantity | judge | rows a prompt | {sizes} |"
    yield f"|{'---|' * (3 + len(SIZES))}"
    for kind, quality, rows in itertools.product(KINDS, NOISE, (1, 3)):
        world = World(kind, quality, rows)
        found = [simulate(world, n_labels, n_rows, n_simulations) for n_labels, n_rows in SIZES]
        cells = [
            f"{one['corrected'][0]:.1f} / {one['labels'][0]:.1f} "
            f"({one['corrected'][1] / one['labels'][1]:.2f})"
            for one in found
        ]
        yield f"| {kind} | {quality} | {rows} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000, help="of each line")
    options = parser.parse_args()
    for line in tables(options.simulations):
        print(line, flush=True)


if __name__ == "__main__":
    main()
