"""Simulate the coverage and power of intervals of means in [0, 1].

    python benchmarks/bounded_means.py --simulations 4000 > bounded.md

One value a prompt, from distributions that judges give: graded, skewed, nearly always sure, yes or
no, ties. The last rows have several values a prompt. The truth is the mean over 2,000,000 prompts.
"""

import argparse
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.means import clustered_shares

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Floats]

LEVEL = 0.95
PROMPTS = (5, 10, 20, 40, 200, 1000)
POPULATION = 2_000_000


def _normal(mean: float, spread: float) -> Draw:
    return lambda rng, n, k: np.clip(rng.normal(mean, spread, size=(n, k)), 0.0, 1.0)


def _beta(a: float, b: float) -> Draw:
    return lambda rng, n, k: rng.beta(a, b, size=(n, k))


def _yes(p: float) -> Draw:
    return lambda rng, n, k: (rng.random((n, k)) < p).astype(np.float64)


def _sure(centre: float, spread: float) -> Draw:
    """A judge's probability for the better of two answers that differ by a normal gap."""
    return lambda rng, n, k: scipy.special.expit(rng.normal(centre, spread, size=(n, k)))


def _position(sharpness: float, bias: float) -> Draw:
    """Preference for the answer shown first, mean of both orders."""

    def draw(rng: np.random.Generator, n: int, k: int) -> Floats:
        gap = rng.normal(size=(n, k))
        first = scipy.special.expit(sharpness * (gap + bias))
        return 0.5 + 0.5 * (first - scipy.special.expit(sharpness * (gap - bias)))

    return draw


def _flips(share: float, to_first: float) -> Draw:
    """The same of a judge without probabilities: one half, or 1 or 0 where its verdict flips."""

    def draw(rng: np.random.Generator, n: int, k: int) -> Floats:
        u = rng.random((n, k))
        return np.where(u < share * to_first, 1.0, np.where(u < share, 0.0, 0.5))

    return draw


def _mostly_equal(rng: np.random.Generator, n: int, k: int) -> Floats:
    rare = rng.random((n, k)) < 0.05
    return np.where(rare, rng.random((n, k)), rng.normal(0.5, 0.005, size=(n, k)))


WORLDS: dict[str, Draw] = {
    "normal, 0.52 ± 0.039": _normal(0.52, 0.039),
    "normal, 0.5 ± 0.15": _normal(0.5, 0.15),
    "normal, 0.5 ± 0.01": _normal(0.5, 0.01),
    "normal, 0.5 ± 0.002": _normal(0.5, 0.002),
    "uniform": _beta(1.0, 1.0),
    "beta 2, 20 (skewed)": _beta(2.0, 20.0),
    "beta 50, 1 (near 1)": _beta(50.0, 1.0),
    "beta 0.2, 0.8 (mostly 0 or 1)": _beta(0.2, 0.8),
    "beta 0.1, 0.1 (nearly 0/1)": _beta(0.1, 0.1),
    "beta 0.05, 0.95 (rarely above 0)": _beta(0.05, 0.95),
    "half ties at 0": _normal(0.0, 0.2),
    "0/1, 50 %": _yes(0.5),
    "0/1, 25 %": _yes(0.25),
    "0/1, 10 %": _yes(0.1),
    "0/1, 3 %": _yes(0.03),
    "soft judge": _sure(1.0, 2.0),
    "sharp judge": _sure(3.0, 3.0),
    "sharp judge, 98 % wins": _sure(9.5, 3.2),
    "position, soft": _position(2.0, 0.1),
    "position, sharp": _position(8.0, 0.2),
    "position, very sharp": _position(30.0, 0.05),
    "flips, 30 %": _flips(0.3, 0.6),
    "flips, 10 %": _flips(0.1, 0.6),
    "flips, 3 %, one way": _flips(0.03, 1.0),
    "0.5 ± 0.005, but for 5 %": _mostly_equal,
}
CLUSTERED = ("normal, 0.5 ± 0.15", "0/1, 25 %", "soft judge")
"""Worlds that are also drawn with 1 to 5 values a prompt, of which half are the prompt's first."""


def studies(
    name: str, n_prompts: int, n_simulations: int, rng: np.random.Generator, *, largest: int = 1
) -> tuple[Floats, Floats]:
    """Sums and counts of values, shape (n_prompts, n_simulations), up to `largest` a prompt."""
    draw = WORLDS[name]
    shape = (n_prompts, n_simulations)
    own = draw(rng, *shape)
    counts = rng.integers(1, largest + 1, size=shape).astype(np.float64)
    sums = own.copy()
    for i in range(1, largest):
        more = np.where(rng.random(shape) < 0.5, own, draw(rng, *shape))
        sums += np.where(counts > i, more, 0.0)
    return sums, counts


def truth(name: str) -> float:
    """Mean over a very large number of prompts."""
    return float(WORLDS[name](np.random.default_rng(0), POPULATION, 1).mean())


def coverage(
    name: str, n_prompts: int, n_simulations: int, *, seed: int = 0, largest: int = 1
) -> tuple[float, float]:
    """Share of intervals that hold the truth, and their mean half width."""
    rng = np.random.default_rng([seed, list(WORLDS).index(name), n_prompts, largest])
    true = truth(name)
    sums, counts = studies(name, n_prompts, n_simulations, rng, largest=largest)
    found = clustered_shares(sums, counts, LEVEL)
    held = (found.low <= true) & (true <= found.high)
    return float(held.mean()), float((found.high - found.low).mean() / 2)


def power(
    bias: float, spread: float, n_prompts: int, n_simulations: int, *, seed: int = 0
) -> tuple[float, float]:
    """Share of studies that see a mean apart from one half: our interval, and Student's."""
    rng = np.random.default_rng([seed, n_prompts])
    values = np.clip(rng.normal(0.5 + bias, spread, size=(n_prompts, n_simulations)), 0.0, 1.0)
    found = clustered_shares(values, np.ones_like(values), LEVEL)
    t = scipy.special.stdtrit(n_prompts - 1, 0.5 + 0.5 * LEVEL)
    half = t * values.std(axis=0, ddof=1) / np.sqrt(n_prompts)
    by_t = np.abs(values.mean(axis=0) - 0.5) > half
    return float(((found.low > 0.5) | (found.high < 0.5)).mean()), float(by_t.mean())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("| values of a prompt | " + " | ".join(f"{n} prompts" for n in PROMPTS) + " |")
    print("|---" * (1 + len(PROMPTS)) + "|")
    rows = [(name, 1) for name in WORLDS] + [(name, 5) for name in CLUSTERED]
    for name, largest in rows:
        cells = []
        for n in PROMPTS:
            share, half = coverage(name, n, options.simulations, seed=options.seed, largest=largest)
            cells.append(f"{100 * share:.1f} (±{100 * half:.2g})")
        words = name if largest == 1 else f"{name}, 1 to {largest} a prompt"
        print(f"| {words} | {' | '.join(cells)} |", flush=True)
    print("\n| bias, points | spread | prompts | detected, % | by Student's t, % |")
    print("|---|---|---|---|---|")
    for bias, spread in ((0.02, 0.039), (0.02, 0.05), (0.02, 0.1), (0.05, 0.1), (0.0, 0.039)):
        for n in (20, 40, 100):
            ours, by_t = power(bias, spread, n, options.simulations, seed=options.seed)
            print(f"| {100 * bias:g} | {spread:g} | {n} | {100 * ours:.1f} | {100 * by_t:.1f} |")


if __name__ == "__main__":
    main()
