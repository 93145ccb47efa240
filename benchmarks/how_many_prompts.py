"""Prompts that tell two models apart in four of five runs, by the rule that reports decide by.

    python -m benchmarks.how_many_prompts

Preferences per prompt are drawn from beta distributions with a mean (the win rate) and a spread
(their standard deviation); each number is searched for, with 400 runs of each number of prompts.
"""

import numpy as np

from orchestrator.statistics.bounded_mean import p_values

RATES = (0.52, 0.55, 0.6, 0.7, 0.8)
SPREADS = (0.2, 0.3, 0.39)
PAIRS = (1, 10)
"""Two models, and five: the first of ten pairs to be told apart has a tenth of the error (Holm)."""
ERROR, POWER, RUNS = 0.05, 0.8, 400


def told(rate: float, spread: float, n: int, error: float) -> float:
    """Share of runs with n prompts in which two models are told apart."""
    rng = np.random.default_rng(0)
    size = rate * (1.0 - rate) / spread**2 - 1.0
    drawn = rng.beta(rate * size, (1.0 - rate) * size, (RUNS, n))
    return float((p_values(drawn, np.ones_like(drawn)) <= error).mean())


def needed(rate: float, spread: float, error: float) -> int:
    """The fewest prompts that do in a share `POWER` of runs, to about 3 %."""
    low, high = 4, 8
    while told(rate, spread, high, error) < POWER:
        low, high = high, 2 * high
    while high - low > max(1, low // 40):
        middle = (low + high) // 2
        if told(rate, spread, middle, error) < POWER:
            low = middle
        else:
            high = middle
    return high


def main() -> None:
    """Print the table as Markdown."""
    heads = [f"spread {spread}{', 5 models' if n > 1 else ''}" for n in PAIRS for spread in SPREADS]
    print(f"| win rate | {' | '.join(heads)} |")
    print(f"| ---: |{' ---: |' * len(heads)}")
    for rate in RATES:
        found = [needed(rate, spread, ERROR / n) for n in PAIRS for spread in SPREADS]
        print(f"| {100 * rate:.0f} % | {' | '.join(f'{n:,}' for n in found)} |")


if __name__ == "__main__":
    main()
