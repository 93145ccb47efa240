"""Votes of LLM-self-eval by the package `rouge` on its published answers, and ours of the same.

    git -C LLM-self-eval checkout b98c354~1
    pip install rouge==1.0.1
    python benchmarks/published/peer_votes.py LLM-self-eval/responses

The package takes two to three minutes, on one core. Votes are by precision (`-b 0`), a tie where
two differ by 1e-6 at most; then by the source's own formula, P R / R compared as floats are.
"""

import argparse
import importlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backends import rouge_l  # noqa: E402
from benchmarks.published.peers import joined  # noqa: E402
from orchestrator.judgment.similarity import peer_votes  # noqa: E402
from orchestrator.records import Floats  # noqa: E402

TIES_WITHIN = 1e-6


def by_package(texts: Sequence[str]) -> Floats:
    """P and R of all ordered pairs: shape (N, N) each, row the hypothesis; lines keep their end."""
    rouge = importlib.import_module("rouge").Rouge(metrics=["rouge-l"])
    found = np.ones((2, len(texts), len(texts)))
    for k, i in permutations(range(len(texts)), 2):
        (score,) = rouge.get_scores(f"{texts[k]}\n", f"{texts[i]}\n")
        found[:, k, i] = score["rouge-l"]["p"], score["rouge-l"]["r"]
    return found


def votes(scores: Iterable[Floats], ties_within: float) -> tuple[Floats, dict[int, int]]:
    """All votes on all items, with the wins of each model."""
    wins, all_votes = Counter[int](), list[float]()
    for one in scores:
        for first, second, _, cast in peer_votes(one, [True] * len(one), ties_within):
            wins[first] += cast.count(1.0)
            wins[second] += cast.count(0.0)
            all_votes += cast
    return np.array(all_votes), wins


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="responses/ of a clone")
    rows = joined(parser.parse_args().folder)
    names = [name for name in rows[0] if name != "key"]
    texts = [[row[name] for name in names] for row in rows]
    sys.setrecursionlimit(100_000)  # the package recurses once a word
    package = np.array([by_package(one) for one in texts])
    ours = {
        tokens: [rouge_l.compared(one, tokens) for one in texts]
        for tokens in ("sentences", "words")
    }
    for which, name in enumerate(("precision", "recall")):
        made = np.array([getattr(one, name) for one in ours["sentences"]])
        print(f"{name}: largest difference {np.abs(made - package[:, which]).max():.1g}")
    theirs, their_wins = votes(package[:, 0], TIES_WITHIN)
    for tokens, compared in ours.items():
        cast, wins = votes([one.precision.astype(float) for one in compared], TIES_WITHIN)
        print(f"\n{tokens}: {np.mean(cast != theirs):.1%} of {cast.size:,} votes differ")
        for k, name in enumerate(names):
            print(f"  {name:<18} {wins[k]:>6,} wins, by the package {their_wins[k]:>6,}")
    with np.errstate(invalid="ignore"):
        cast, _ = votes(package[:, 0] * package[:, 1] / package[:, 1], 0.0)
    gone, differ = np.isnan(cast), cast != theirs
    print(f"\nas the source compares: {gone.sum():,} votes vanish (0 / 0)")
    print(f"{(differ & ~gone).sum():,} are decided by rounding where they are a tie")


if __name__ == "__main__":
    main()
