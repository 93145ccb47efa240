"""Does the demo find the true order? `orchestrator run` of its recipe over data seeds.

For each seed: the order found, exact match of the answers (the truth), and whether the intervals
of neighbours are disjoint. Exits 1 unless the order is the true one in all and the intervals are
disjoint in all but one at most.

    python benchmarks/ten_seeds.py [--seeds 10] [--items 300] [--write FILE]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRUE_ORDER = ["expert", "apprentice", "novice"]


def _run(folder: Path, seed: int, n_items: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "orchestrator", "run", "recipes/pairwise_ranking.yaml",
               "--run-dir", str(folder / str(seed)), "--display", "none", "--format", "json",
               "--set", f"dataset.seed={seed}", "--set", f"dataset.n={n_items}"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"seed {seed}: exit code {done.returncode}\n{done.stderr}")
    (ranking,) = json.loads(done.stdout)["rankings"]
    return dict(ranking)


def _line(seed: int, ranking: dict[str, Any], *, order: bool, disjoint: bool) -> str:
    models = ", ".join(
        f"{row['model']} {row['rating']:,.0f} [{row['low']:,.0f}, {row['high']:,.0f}]"
        for row in ranking["ratings"]
    )
    matches = ranking.get("exact_match") or {}
    exact = " / ".join(f"{matches[name]:.0%}" for name in TRUE_ORDER if name in matches)
    said = ["no", "yes"]
    return f"| {seed} | {models} | {exact} | {said[order]} | {said[disjoint]} |"


def main() -> None:
    """Run all seeds and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    started = time.monotonic()
    lines, n_order, n_disjoint = [], 0, 0
    with tempfile.TemporaryDirectory() as name:
        for seed in range(options.seeds):
            ranking = _run(Path(name), seed, options.items)
            rows = ranking["ratings"]
            order = [row["model"] for row in rows] == TRUE_ORDER
            bounds = all(row["low"] is not None and row["high"] is not None for row in rows)
            disjoint = bounds and all(
                better["low"] > worse["high"] for better, worse in pairwise(rows)
            )
            n_order += order
            n_disjoint += disjoint
            lines.append(_line(seed, ranking, order=order, disjoint=disjoint))
            print(lines[-1], flush=True)
    text = "\n".join(
        [
            f"True order in {n_order} of {options.seeds} data seeds, intervals of neighbours "
            f"disjoint in {n_disjoint}; {options.items} items each, "
            f"{(time.monotonic() - started) / options.seeds:.0f} s a seed.",
            "",
            "| seed | rating [95 % interval] | exact match (true order) | order | disjoint |",
            "| --: | --- | --- | --- | --- |",
            *lines,
            "",
            f"Command: `python benchmarks/ten_seeds.py --seeds {options.seeds} "
            f"--items {options.items}`",
        ]
    )
    print(text)
    if options.write:
        options.write.write_text(text + "\n", encoding="utf-8")
    sys.exit(0 if n_order == options.seeds and n_disjoint >= options.seeds - 1 else 1)


if __name__ == "__main__":
    main()
