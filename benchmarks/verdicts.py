"""Simulate what decides whether two models can be told apart, beside the rules it replaced.

    python -m benchmarks.verdicts --tables alarms --simulations 2000
    python -m benchmarks.verdicts --tables coverage --simulations 2000
    python -m benchmarks.verdicts --tables power --simulations 600
    python -m benchmarks.verdicts --tables fields --simulations 200

Designs of two models are values of one model's preference whose mean is known: graded, hard, tied,
and values that agree but for rare exceptions, whose mean a small sample can miss. Fields of models
are judged by the differences of qualities plus noise; in "rare" one model loses a little to all
and wins everything on 5 % of the prompts.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtr

from benchmarks.interval_coverage import summed
from orchestrator.statistics.bounded_mean import intervals, p_values
from orchestrator.statistics.field import influences
from orchestrator.statistics.multiple import adjusted
from orchestrator.statistics.ratings import Ratings, rate
from orchestrator.statistics.student import degrees_of_freedom, variance_factor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Draw = Callable[[np.random.Generator, tuple[int, int], Floats, float], Floats]

ERROR: Final = 0.05
PROMPTS: Final = (8, 20, 40, 100, 300)
CLUSTERS: Final = {
    "20 x 3": [3] * 20,
    "20 of 1 to 9": [1] * 10 + [2, 2, 3, 3, 4, 4, 6, 6, 9, 9],
    "40 of 1 to 30": [1] * 30 + [2] * 5 + [5, 10, 15, 20, 30],
}


def _judge(slope: float) -> Draw:
    """P(first better) of answers that differ by a normal quality; alike within a cluster."""

    def draw(
        rng: np.random.Generator, shape: tuple[int, int], sizes: Floats, mean: float
    ) -> Floats:
        z = np.linspace(-5, 5, 2001)
        weights = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
        lead = scipy.optimize.brentq(
            lambda gap: float((weights * expit(slope * (gap + 1.578 * z))).sum()) - mean, -20, 20
        )
        most = int(sizes.max())
        alike = 0.8 if most > 1 else 0.0
        quality = math.sqrt(alike) * rng.normal(size=(*shape, 1))
        quality = quality + math.sqrt(1 - alike) * rng.normal(size=(*shape, most))
        values = expit(slope * (lead + 1.578 * quality))
        totals: Floats = (values * (np.arange(most) < sizes[:, None])).sum(axis=2)
        return totals

    return draw


def _units(values: Callable[[np.random.Generator, tuple[int, int], float], Floats]) -> Draw:
    """Items of a cluster that all say the same."""
    return lambda rng, shape, sizes, mean: values(rng, shape, mean) * sizes


def _rare(share: float, spread: float = 0.0) -> Draw:
    """Small losses of one size, and wins at 1.0 on a share of the prompts."""

    def values(rng: np.random.Generator, shape: tuple[int, int], mean: float) -> Floats:
        usual = (mean - share) / (1.0 - share)
        small = np.clip(
            usual + spread * rng.normal(size=shape), max(0, 2 * usual - 1), min(1, 2 * usual)
        )
        return np.where(rng.random(shape) < share, 1.0, small)

    return _units(values)


def _around(spread: float) -> Draw:
    def values(rng: np.random.Generator, shape: tuple[int, int], mean: float) -> Floats:
        found: Floats = np.clip(mean + spread * rng.normal(size=shape), 2 * mean - 1, 1)
        return found

    return _units(values)


DESIGNS: Final[dict[str, Draw]] = {
    "soft judge": _judge(1.0),
    "sure judge": _judge(6.0),
    "hard wins": _units(lambda rng, shape, mean: (rng.random(shape) < mean).astype(float)),
    "90 % ties": _units(
        lambda rng, shape, mean: np.where(
            rng.random(shape) < 0.9,
            0.5,
            (rng.random(shape) < 0.5 + 10 * (mean - 0.5)).astype(float),
        )
    ),
    "normal, s.d. 0.15": _around(0.15),
    "normal, s.d. 0.05": _around(0.05),
    "2 % rare wins": _rare(0.02),
    "5 % rare wins": _rare(0.05),
    "5 % rare wins, noise": _rare(0.05, 0.03),
    "10 % rare wins, noise": _rare(0.1, 0.03),
}


def by_t(totals: Floats, sizes: Floats, mean: float = 0.5) -> Floats:
    """The sandwich t of a rating difference with its sign test, which decided on pairs before."""
    n, size = totals.shape[1], sizes[:, None]
    share = totals.sum(axis=1) / sizes.sum()
    factor, dof = float(variance_factor(size)[0]), float(degrees_of_freedom(size)[0])
    squares = np.square(totals - share[:, None] * sizes).sum(axis=1)
    error = np.sqrt(factor * squares) / sizes.sum()
    with np.errstate(all="ignore"):
        found = (logit(share) - logit(mean)) * share * (1 - share) / error
        same = np.where(np.abs(share - mean) < 1e-9, 1.0, 2 * 0.5**n)
        is_flat = (error < 1e-9) | ~np.isfinite(found)
        return np.where(is_flat, same, 2 * stdtr(max(dof, 1), -np.abs(found)))


def by_wilson(totals: Floats, sizes: Floats, mean: float = 0.5) -> Floats:
    """Wilson's test on the effective number of prompts, which decided on win rates before.

    One prompt half 0, half 1 is added, with a weight by the tails of the others.
    """
    n, weight = totals.shape[1], sizes.mean()
    values = totals / sizes
    middle = values.mean(axis=1)
    apart = np.maximum(np.abs(values - np.median(values, axis=1)[:, None]) - 1e-3, 0).mean(axis=1)
    with np.errstate(all="ignore"):
        tails = np.where(apart > 0, math.sqrt(2 / math.pi) * values.std(axis=1) / apart, np.inf)
        seen = np.where(np.isinf(tails), np.inf, values.var(axis=1) * np.minimum(tails, 1e9) ** 8)
    added = np.minimum(1, seen / (0.5 * (middle**2 + (1 - middle) ** 2)))
    total = weight * (n + added)
    share = (totals.sum(axis=1) + 0.5 * added * weight) / total
    squares = np.square(totals - share[:, None] * sizes).sum(axis=1)
    squares += added * weight**2 * 0.5 * (share**2 + (1 - share) ** 2)
    variance = squares / total**2 * (n + added) / np.maximum(n + added - 1, 0.5)
    factor, dof = (
        float(variance_factor(sizes[:, None])[0]),
        float(degrees_of_freedom(sizes[:, None])[0]),
    )
    variance = variance * max(1.0, factor * (n - 1) / n)
    plain = totals.sum(axis=1) / sizes.sum()
    scale = np.sqrt(mean * (1 - mean) * variance / (share * (1 - share)))
    p_values: Floats = 2 * stdtr(max(dof, 1), -np.abs(plain - mean) / scale)
    return p_values


def by_rule(totals: Floats, sizes: Floats, mean: float = 0.5) -> Floats:
    """The product's."""
    return p_values(totals, np.broadcast_to(sizes, totals.shape), mean)


RULES: Final = {"sandwich t": by_t, "Wilson": by_wilson, "**this rule**": by_rule}


def refused(
    design: str, sizes: Floats, n_studies: int, *, truth: float = 0.5, tested: float | None = None
) -> dict[str, float]:
    """Share of studies in %, by rule, in which a mean is refused."""
    seed = [len(sizes), int(sizes.sum()), round(truth * 1000), *design.encode()]
    rng = np.random.default_rng(seed)
    totals = DESIGNS[design](rng, (n_studies, len(sizes)), sizes, truth)
    mean = truth if tested is None else tested
    return {
        name: 100 * float((rule(totals, sizes, mean) <= ERROR).mean())
        for name, rule in RULES.items()
    }


def alarms(n_studies: int) -> Iterator[list[str]]:
    """False alarms of two models that are equal."""
    yield ["design", "prompts", *RULES]
    for design in DESIGNS:
        for n in PROMPTS:
            yield [design, str(n), *_cells(refused(design, np.ones(n), n_studies))]
    for design in ("soft judge", "hard wins", "5 % rare wins, noise"):
        for name, sizes in CLUSTERS.items():
            yield [design, name, *_cells(refused(design, np.array(sizes, float), n_studies))]


def coverage(n_studies: int) -> Iterator[list[str]]:
    """Measure how often intervals hold a mean other than one half, and their length."""
    yield ["design", "mean", "prompts", *RULES, "length"]
    for design in ("soft judge", "sure judge", "hard wins", "5 % rare wins"):
        for truth in (0.6, 0.9):
            for n in (20, 100, 300):
                sizes = np.ones(n)
                held = {
                    k: 100 - v for k, v in refused(design, sizes, n_studies, truth=truth).items()
                }
                rng = np.random.default_rng(n)
                totals = DESIGNS[design](rng, (200, n), sizes, truth)
                low, high = intervals(totals, np.ones_like(totals), ERROR)
                yield [design, f"{truth}", str(n), *_cells(held), f"{(high - low).mean():.3f}"]


def power(n_studies: int) -> Iterator[list[str]]:
    """Prompts that are needed to tell two models apart in 80 % of studies."""
    yield ["design", "win rate", *RULES]
    grid = (6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 140, 200, 300, 420, 600, 850)
    for design in (
        "soft judge",
        "sure judge",
        "hard wins",
        "normal, s.d. 0.15",
        "normal, s.d. 0.05",
    ):
        for truth in (0.55, 0.6, 0.7):
            needed = dict.fromkeys(RULES, math.nan)
            before: dict[str, tuple[int, float]] = {}
            for n in grid:
                found = refused(design, np.ones(n), n_studies, truth=truth, tested=0.5)
                for name, share in found.items():
                    if math.isnan(needed[name]) and share >= 80:
                        needed[name] = _between(before.get(name), (n, share))
                before = {name: (n, share) for name, share in found.items()}
                if not any(map(math.isnan, needed.values())):
                    break
            cells = [f"> {grid[-1]}" if math.isnan(n) else f"{n:.0f}" for n in needed.values()]
            yield [design, f"{truth}", *cells]


def _between(before: tuple[int, float] | None, now: tuple[int, float]) -> float:
    """Prompts at which 80 % is reached, on the scale of their logarithm."""
    if before is None:
        return now[0]
    n, share = before
    way = (80 - min(share, 79.9)) / (now[1] - min(share, 79.9))
    return float(n * (now[0] / n) ** way)


def _study(rng: np.random.Generator, kind: str, n: int, lead: Floats, slope: float) -> Floats:
    """Preferences of every two models on every prompt, shape (n, pairs)."""
    n_models = len(lead)
    first, second = np.triu_indices(n_models, 1)
    shape = n, len(first)
    if kind == "cycle":
        wins = (second - first) % n_models <= (n_models - 1) // 2
        return np.clip(0.5 + 0.1 * np.where(wins, 1, -1) + 0.2 * rng.normal(size=shape), 0, 1)
    if kind == "rare":
        values = np.clip(0.5 + 0.1 * rng.normal(size=shape), 0, 1)
        own = first == 0
        small = 0.45 / 0.95 + np.clip(0.03 * rng.normal(size=(n, own.sum())), -0.1, 0.1)
        values[:, own] = np.where(rng.random((n, 1)) < 0.05, 1.0, small)
        return values
    quality = lead + rng.normal(size=(n, n_models))
    return expit(slope * (quality[:, first] - quality[:, second] + 0.7 * rng.normal(size=shape)))


def _leads(kind: str, n_models: int) -> Floats:
    if kind == "ladder":
        return -np.linspace(-0.5, 0.5, n_models)
    if kind == "two good":
        return np.array([0.35] * 2 + [-0.35] * (n_models - 2))
    return np.zeros(n_models)


FIELDS: Final = (
    ("equal", 20, 3, 1.0, 0.0), ("equal", 40, 5, 6.0, 0.0), ("equal", 40, 5, 1.0, 0.3),
    ("rare", 20, 3, 1.0, 0.0), ("rare", 40, 5, 1.0, 0.0), ("rare", 40, 5, 1.0, 0.3),
    ("cycle", 40, 3, 1.0, 0.0), ("ladder", 40, 3, 1.0, 0.0), ("ladder", 20, 3, 6.0, 0.0),
    ("two good", 40, 5, 1.0, 0.0), ("two good", 40, 5, 1.0, 0.3), ("ladder", 40, 5, 1.0, 0.0),
    ("two good", 100, 5, 1.0, 0.0), ("ladder", 100, 5, 6.0, 0.0), ("ladder", 300, 5, 6.0, 0.0),
    ("ladder", 100, 8, 1.0, 0.0), ("ladder", 100, 30, 1.0, 0.0), ("ladder", 300, 30, 1.0, 0.0),
)  # fmt: skip
"""Kind, prompts, models, slope of the judge, share of comparisons that is missing."""


def fields(n_studies: int) -> Iterator[list[str]]:
    """Any false verdict, and the share of true differences found, all pairs decided together."""
    ways = ("sandwich t, Holm", "direct, Holm", "field, Holm", "**this rule**")
    yield [
        "field",
        "models",
        "prompts",
        "missing",
        *(f"{w}: false / found, %" for w in ways),
        "held",
    ]
    for kind, n, n_models, slope, missing in FIELDS:
        lead = _leads(kind, n_models)
        first, second = np.triu_indices(n_models, 1)
        truth = np.sign(lead[first] - lead[second])
        rng = np.random.default_rng([n, n_models, int(slope), *kind.encode()])
        false, found, held = np.zeros(len(ways)), np.zeros(len(ways)), 0
        many = max(10, n_studies // (20 if n_models > 10 else 1))
        for _ in range(many):
            values = _study(rng, kind, n, lead, slope)
            values[rng.random(values.shape) < missing] = np.nan
            rated = rate(summed(values, n_models), [""] * n_models, confidence_level=1 - ERROR)
            for at, (p, sign) in enumerate(_decisions(values, rated, first, second)):
                told = p <= ERROR
                false[at] += bool(np.any(told & (sign != truth)))
                found[at] += (told & (sign == truth) & (truth != 0)).sum() / max(
                    (truth != 0).sum(), 1
                )
            ranks = 1 + (lead > lead[:, None]).sum(axis=1), (lead >= lead[:, None]).sum(axis=1)
            held += bool(np.all((rated.rank_low <= ranks[1]) & (rated.rank_high >= ranks[0])))
        cells = [
            f"{100 * f / many:.1f} / {100 * t / many:.0f}"
            for f, t in zip(false, found, strict=True)
        ]
        judge = "" if kind in ("rare", "cycle") else ", sure" if slope > 2 else ", soft"
        yield [
            f"{kind}{judge}",
            str(n_models),
            str(n),
            f"{missing:.0%}",
            *cells,
            f"{100 * held / many:.0f}",
        ]


def _decisions(
    values: Floats, rated: Ratings, first: Ints, second: Ints
) -> Iterator[tuple[Floats, Floats]]:
    """Adjusted p-values and signs of all pairs, by each way of deciding."""
    ahead = np.sign(rated.values[first] - rated.values[second])
    yield adjusted(_sandwich(rated, first, second), ERROR).p_values, ahead
    kept = ~np.isnan(values)
    totals, sizes = np.where(kept, values, 0.0).T, kept.T.astype(np.float64)
    share = totals.sum(axis=1) / np.maximum(sizes.sum(axis=1), 1)
    yield adjusted(p_values(totals, sizes), ERROR).p_values, np.sign(share - 0.5)
    yield adjusted(rated.p_values[first, second], ERROR).p_values, ahead
    yield rated.adjusted[first, second], ahead


def _sandwich(rated: Ratings, first: Ints, second: Ints) -> Floats:
    """P-values of the cluster-robust t of fitted differences."""
    n = rated.field.sums.n_prompts
    moved = influences(rated.field.sums, rated.field.strengths)
    errors = np.sqrt(np.square(moved[:, first] - moved[:, second]).sum(axis=0) * n / (n - 1))
    gaps = rated.field.strengths[first] - rated.field.strengths[second]
    with np.errstate(all="ignore"):
        p_values: Floats = 2 * stdtr(n - 1, -np.abs(gaps / errors))
    return p_values


def _cells(shares: dict[str, float]) -> list[str]:
    return [f"{share:.1f}" for share in shares.values()]


TABLES: Final = {"alarms": alarms, "coverage": coverage, "power": power, "fields": fields}


def main() -> None:
    """Print tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--simulations", type=int, default=2000)
    options = parser.parse_args()
    for name in options.tables:
        for number, cells in enumerate(TABLES[name](options.simulations)):
            print(f"| {' | '.join(cells)} |", flush=True)
            if not number:
                print(f"|{' --- |' * len(cells)}")
        print()


if __name__ == "__main__":
    main()
