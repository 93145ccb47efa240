"""Simulate judges that reason: how near each count of traces is to what the judge thinks.

    python -m benchmarks.traces --simulations 200

Of 100 pairs a study, the judge's log-odds for one answer are normal with a spread of 1.5, and ties
have Davidson's parameter 0.5; each trace is a draw of its own. Columns: mean squared distance of
P(better) - P(worse) from the truth, by the margin of the traces and by Davidson's model of them,
and the share of pairs on whose side the margin is, no side counting half.
"""

import argparse

import numpy as np

from orchestrator.statistics.judgments import davidson

TRACES = (1, 2, 4, 8, 16, 32)
PAIRS = 100
SPREAD, TIES = 1.5, 0.5


def study(n_traces: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Return squared distances of the margin and of the model, and the share of right sides."""
    gaps = rng.normal(0.0, SPREAD, PAIRS)
    shares = np.stack([np.exp(gaps / 2), np.full(PAIRS, TIES), np.exp(-gaps / 2)], axis=1)
    shares /= shares.sum(axis=1, keepdims=True)
    truth = shares[:, 0] - shares[:, 2]
    counts = rng.multinomial(n_traces, shares).astype(np.float64)
    margin = (counts[:, 0] - counts[:, 2]) / n_traces
    sides = 0.5 + 0.5 * np.sign(margin) * np.sign(truth)
    far = [float(np.mean((one - truth) ** 2)) for one in (margin, davidson(counts)[0])]
    return far[0], far[1], float(sides.mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=200)
    n_simulations = parser.parse_args().simulations
    print("| traces | margin | Davidson | right side, % |\n|---|---|---|---|")
    for n_traces in TRACES:
        rng = np.random.default_rng(n_traces)
        found = np.array([study(n_traces, rng) for _ in range(n_simulations)])
        margin, model, sides = found.mean(axis=0)
        print(f"| {n_traces} | {margin:.3f} | {model:.3f} | {100 * sides:.1f} |", flush=True)


if __name__ == "__main__":
    main()
