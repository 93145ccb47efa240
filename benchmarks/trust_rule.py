"""Simulate the verdicts on judges: false alarms and power of the rule on flips.

    python benchmarks/trust_rule.py --simulations 4000 > trust.md

Every row is a judge that flips in a share of the pairs that it decides in both orders; every column
a number of such pairs, one a prompt. In the last rows the pairs come in threes, as three models on
a prompt give them, and in half of the prompts all three flip or none.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.trust import Judgments, Verdict, assess

PAIRS = (6, 12, 30, 60, 240)
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
_EACH = 3


def verdict(flips: NDArray[np.bool_], clusters: NDArray[np.int64]) -> Verdict:
    """Return the verdict on a judge of full coverage with these flips, shape (n,)."""
    n = len(flips)
    judgments = Judgments(
        masses=np.ones((n, 2)),
        decision_ab=np.ones(n),
        decision_ba=np.where(flips, -1.0, 1.0),
        clusters=clusters,
        n_units=n,
        n_missing=0,
    )
    return assess("judge", judgments).verdict


def draw(
    share: float, n: int, rng: np.random.Generator, *, in_threes: bool
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return flips and clusters of n pairs, shape (n,) each."""
    if not in_threes:
        return rng.random(n) < share, np.arange(n)
    clusters = np.repeat(np.arange(n // _EACH), _EACH)
    alike = (rng.random(n // _EACH) < 0.5)[clusters]
    together = (rng.random(n // _EACH) < share)[clusters]
    return np.where(alike, together, rng.random(n) < share), clusters


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    n_runs = parser.parse_args().simulations
    rng = np.random.default_rng(20261123)
    print("| flips | " + " | ".join(f"{n} pairs" for n in PAIRS) + " |")
    print("| :--- |" + " ---: |" * len(PAIRS))
    for in_threes in (False, True):
        for share in SHARES:
            cells = []
            for n in PAIRS:
                found = [verdict(*draw(share, n, rng, in_threes=in_threes)) for _ in range(n_runs)]
                yes, no = (100 * found.count(one) / n_runs for one in ("trusted", "not trusted"))
                cells.append(f"{yes:.1f} / {no:.1f}")
            name = f"{100 * share:g} %" + (", in threes" if in_threes else "")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
