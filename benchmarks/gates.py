"""Simulate wrong verdicts of gates and false differences of comparisons, and their power.

    python -m benchmarks.gates --tables alarms --simulations 1000
    python -m benchmarks.gates --tables power --simulations 400

Judgments are made up, put into frames as a run has them, and decided by the code of
`orchestrator gate` and `orchestrator compare`. A judge prefers an answer with a probability that
depends on the qualities of both answers to an item: it is mostly sure, or soft. The models of
"alarms" are equal, so that every verdict but "not known yet" is a false alarm.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special, stats

from orchestrator.gates import read
from orchestrator.interface.differences import contrasts, differences
from orchestrator.interface.gating import Deciding
from orchestrator.interface.result import Result
from orchestrator.interface.sides import MATCHED, Side, common_items
from orchestrator.report.progress import Completeness
from orchestrator.runner.results.tables import all_sources

Floats = NDArray[np.float64]

LEVEL: Final = 0.95
MODELS: Final = ("a", "b", "c", "d")
SHARPNESS: Final = {"sure": 6.0, "soft": 1.0}
"""Slope of the judge's preference over the difference of two answers."""


def preferences(
    rng: np.random.Generator, qualities: Sequence[float], n_items: int, size: int, judge: str
) -> Floats:
    """P(first beats second) of each pair of models, shape (items, pairs).

    Args:
        rng: Source of the answers.
        qualities: Of the models; equal for models that win half of their comparisons.
        n_items: Items.
        size: Items of a cluster, whose answers are alike.
        judge: One of `SHARPNESS`.
    """
    first, second = np.triu_indices(len(qualities), 1)
    clusters = np.arange(n_items) // size

    def noise(n_columns: int) -> Floats:
        own = rng.normal(size=(n_items, n_columns))
        if size == 1:
            return own
        shared = rng.normal(size=(int(clusters[-1]) + 1, n_columns))[clusters]
        return math.sqrt(0.8) * shared + math.sqrt(0.2) * own

    answers = np.asarray(qualities) + noise(len(qualities))
    gap = answers[:, first] - answers[:, second] + 0.7 * noise(len(first))
    return np.asarray(special.expit(SHARPNESS[judge] * gap), np.float64)


def quality_of(win_rate: float, judge: str) -> float:
    """Return the advantage in quality that wins this share of comparisons, by integration."""
    spread = math.sqrt(2 + 0.7**2)
    points = stats.norm.ppf((np.arange(2000) + 0.5) / 2000) * spread

    def share(quality: float) -> float:
        return float(special.expit(SHARPNESS[judge] * (quality + points)).mean())

    low, high = 0.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if share(middle) < win_rate else (low, middle)
    return low


def side(label: str, prefer: Floats, size: int, models: Sequence[str] = MODELS) -> Side:
    """Return a run with these judgments, as it is compared."""
    n_items, n_pairs = prefer.shape
    first, second = np.triu_indices(len(models), 1)
    keys = [f"i{at:05d}" for at in range(n_items)]
    rows = pl.DataFrame(
        {
            "method": "pairwise_ranking",
            "item": np.repeat(keys, n_pairs),
            "model_a": np.tile(np.array(models)[first], n_items),
            "model_b": np.tile(np.array(models)[second], n_items),
            "judge": "judge",
            "status": "ok",
            "cause": pl.Series([None] * prefer.size, dtype=pl.String),
            "message": pl.Series([None] * prefer.size, dtype=pl.String),
            "prefer_a": prefer.ravel(),
            "turn": 1,
        }
    )
    clusters = None if size == 1 else [f"c{at // size}" for at in range(n_items)]
    items = pl.DataFrame(
        {"item": keys, "cluster": pl.Series(clusters or [None] * n_items, dtype=pl.String)}
    )
    frames = {"judgments": rows, "items": items}
    method = {"kind": "pairwise_ranking", "judges": ["judge"]}
    settings = {"methods": [method], "statistics": {"n_resamples": 400}}
    result = SimpleNamespace(
        frames=frames, settings=settings, completeness=Completeness(), trust={}, path=Path(label)
    )
    names = {"model": tuple(models), "judge": ("judge",), "method": ("pairwise_ranking",)}
    context = all_sources(frames, settings)
    renamed = {kind: {name: name for name in names[kind]} for kind in MATCHED}
    return Side(label, cast(Result, result), items, context, cast(Any, names), renamed)


def gated(sides: Sequence[Side], texts: Sequence[str]) -> list[str]:
    """Return the verdicts on requirements."""
    deciding = Deciding(sides, LEVEL)
    return [deciding.decide(read(text)).verdict for text in texts]


Cell = Callable[[np.random.Generator], bool]


def alarm_cells(n_items: int, size: int, judge: str) -> Mapping[str, Cell]:
    """The tables' columns of false alarms: each simulates a study of equal models once."""
    equal = [0.0] * len(MODELS)

    def one(rng: np.random.Generator, n_models: int = 4) -> Side:
        prefer = preferences(rng, equal[:n_models], n_items, size, judge)
        return side("A", prefer, size, MODELS[:n_models])

    def two(rng: np.random.Generator) -> list[Side]:
        again = preferences(rng, equal[:2], n_items, size, judge)
        return [one(rng, 2), side("B", again, size, MODELS[:2])]

    def alarmed(verdicts: Sequence[str]) -> bool:
        return any(verdict != "not known yet" for verdict in verdicts)

    many = ["a > b", "c > d", "win_rate(a, c) > 0.5", "score(b) > score(d)"]

    def compared(rng: np.random.Generator) -> bool:
        sides = [one(rng)]
        found = contrasts(sides, common_items(sides), "model", (), "")
        return any(one.resolved for one in differences(found, LEVEL))

    def compared_runs(rng: np.random.Generator) -> bool:
        sides = two(rng)
        found = contrasts(sides, common_items(sides), "run", (), "")
        return any(one.resolved for one in differences(found, LEVEL))

    return {
        "a > b": lambda rng: alarmed(gated([one(rng, 2)], ["a > b"])),
        "win_rate(a, b) > 0.5": lambda rng: alarmed(gated([one(rng, 2)], ["win_rate(a, b) > 0.5"])),
        "score(a) >= score(a, old)": lambda rng: alarmed(
            gated(two(rng), ["score(a) >= score(a, old)"])
        ),
        "4 requirements, any": lambda rng: alarmed(gated([one(rng)], many)),
        "compare 4 models, any": compared,
        "compare 2 runs, any": compared_runs,
    }


def share(cell: Cell, simulations: int, seed: int) -> float:
    """Return how often a cell is true."""
    generators = np.random.default_rng(seed).spawn(simulations)
    return sum(map(cell, generators)) / simulations


def alarms(simulations: int) -> Iterator[str]:
    """The table of false alarms, line by line."""
    columns = " | ".join(alarm_cells(20, 1, "sure"))
    yield f"| items | items a cluster | judge | {columns} |"
    yield f"| ---: | ---: | :--- | {' | '.join(['---:'] * (columns.count(' | ') + 1))} |"
    for n_items, size in ((20, 1), (60, 1), (120, 4)):
        for judge in SHARPNESS:
            cells = alarm_cells(n_items, size, judge)
            found = [share(cell, simulations, 1) for cell in cells.values()]
            shown = " | ".join(f"{100 * one:.1f} %" for one in found)
            yield f"| {n_items} | {size} | {judge} | {shown} |"


def power(simulations: int) -> Iterator[str]:
    """The power of `win_rate(a, b) > 0.5`, `a > b` and a margin, line by line."""
    yield "| true win rate | judge | 50 items | 100 | 200 | 400 |"
    yield "| ---: | :--- | ---: | ---: | ---: | ---: |"
    for rate in (0.55, 0.6, 0.65, 0.7):
        for judge in SHARPNESS:
            quality = quality_of(rate, judge)

            def holds(
                rng: np.random.Generator, n: int, quality: float = quality, judge: str = judge
            ) -> bool:
                run = side("A", preferences(rng, [quality, 0.0], n, 1, judge), 1, MODELS[:2])
                return gated([run], ["win_rate(a, b) > 0.5"]) == ["holds"]

            found = [share(partial(holds, n=n), simulations, 2) for n in (50, 100, 200, 400)]
            yield f"| {rate:.2f} | {judge} | {' | '.join(f'{100 * one:.0f} %' for one in found)} |"


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tables", nargs="+", choices=["alarms", "power"], default=["alarms"])
    parser.add_argument("--simulations", type=int, default=1000)
    options = parser.parse_args()
    for name in options.tables:
        for line in {"alarms": alarms, "power": power}[name](options.simulations):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
