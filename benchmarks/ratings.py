"""Bradley-Terry ratings with resampled prompts: `python benchmarks/ratings.py [--write]`.

30 models, a million comparisons (ten per cent ties) over 1,000 and over 100,000 prompts. What is
measured is the processor time, over all threads, of everything from judgments to ratings: sums by
prompt, the fit, its covariance, 1,000 resamples of whole prompts, intervals and ranks. The fit of
all comparisons is held against evalica's, whose bootstrap (of single comparisons) is extrapolated
from two sizes.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import evalica
import numpy as np
from numpy.typing import NDArray

from benchmarks._page import machine, publish, version
from orchestrator.statistics.bradley_terry import ELO_SCALE
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.ratings import rate

N_MODELS = 30
N_COMPARISONS = 1_000_000
N_RESAMPLES = 1000
PROMPTS = (1_000, 100_000)
TARGET_S = 1.5
EVALICA_RESAMPLES = (1, 3)

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def comparisons(n_prompts: int) -> Arrays:
    """Prompt, first model, second model and preference of each comparison."""
    rng = np.random.default_rng(0)
    strengths = rng.normal(0.0, 0.5, N_MODELS)
    prompts = np.repeat(np.arange(n_prompts), N_COMPARISONS // n_prompts)
    first = rng.integers(N_MODELS, size=N_COMPARISONS)
    second = (first + rng.integers(1, N_MODELS, size=N_COMPARISONS)) % N_MODELS
    chance = 1.0 / (1.0 + np.exp(strengths[second] - strengths[first]))
    preference = (rng.random(N_COMPARISONS) < chance).astype(np.float64)
    preference[rng.random(N_COMPARISONS) < 0.1] = 0.5
    return prompts, first, second, preference


def ours(n_prompts: int) -> dict[str, Any]:
    """Processor seconds, peak memory and ratings, measured in this process."""
    data = comparisons(n_prompts)
    before = time.process_time()
    sums = Pairs(*data[:-1], N_MODELS).summing()(data[-1])
    found = rate(
        sums,
        [str(i) for i in range(N_MODELS)],
        confidence_level=0.95,
    )
    spent = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_s": spent, "rss_mb": peak, "values": found.values.tolist()}


def theirs() -> dict[str, Any]:
    """Evalica's fit of the same comparisons, and what its bootstrap would take."""
    _, first, second, preference = comparisons(PROMPTS[0])
    kinds = np.array([evalica.Winner.Y, evalica.Winner.Draw, evalica.Winner.X], dtype=object)
    winners = kinds[(2 * preference).astype(np.int64)].tolist()
    sides = (first.tolist(), second.tolist(), winners)

    def resampled(n: int) -> None:
        evalica.bootstrap(
            evalica.bradley_terry, *sides, n_resamples=n, bootstrap_method="percentile",
            random_state=0,
        )  # fmt: skip

    fitted = evalica.bradley_terry(*sides, tolerance=1e-12, limit=10_000)
    few, many = EVALICA_RESAMPLES
    slope = (_cpu(lambda: resampled(many)) - _cpu(lambda: resampled(few))) / (many - few)
    scores = np.log(fitted.scores.sort_index().to_numpy())
    values = 1000.0 + ELO_SCALE * (scores - scores.mean())
    return {"cpu_s": slope * N_RESAMPLES, "values": values.tolist()}


def _cpu(work: Callable[[], None]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def _apart(*arguments: str) -> dict[str, Any]:
    """The same in a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def report(n_repeats: int) -> tuple[str, dict[str, float]]:
    """The section of the page, and its figures."""
    where, rows, point, figures = machine(), [], {}, {}
    for n_prompts in PROMPTS:
        runs = [_apart("--only", str(n_prompts)) for _ in range(n_repeats)]
        spent = sorted(run["cpu_s"] for run in runs)
        middle, peak = spent[n_repeats // 2], max(run["rss_mb"] for run in runs)
        figures[f"ratings_{n_prompts}_cpu_s"] = middle
        met = "met" if middle <= TARGET_S else "missed"
        span = f"({spent[0]:.2f}-{spent[-1]:.2f})"
        rows.append(f"| {n_prompts:,} | **{middle:.2f}** {span}, {met} | {peak:.0f} |")
        point[n_prompts] = np.array(runs[0]["values"])
    other = _apart("--evalica")
    apart = np.abs(point[PROMPTS[0]] - np.array(other["values"])).max()
    few, many = EVALICA_RESAMPLES
    lines = [
        "## Ratings",
        "",
        f"{N_MODELS} models, {N_COMPARISONS:,} comparisons, {N_RESAMPLES:,} resamples of whole",
        "prompts: from judgments to ratings, intervals and ranks. Processor time of all threads,",
        f"median of {n_repeats}; the target is {TARGET_S} s.",
        "",
        "| prompts | CPU s | peak RSS MB |",
        "| --: | --: | --: |",
        *rows,
        "",
        f"evalica {version('evalica')} on the same comparisons: {other['cpu_s']:,.0f} s for as",
        f"many resamples of single comparisons (extrapolated from {few} and {many}); its fit",
        f"differs by at most {apart:.1e} points of rating.",
        "",
        f"{where}; numpy {version('numpy')}, scipy {version('scipy')}.",
        "Command: `python benchmarks/ratings.py`",
    ]
    return "\n".join(lines), figures


def main() -> None:
    """Measure, print, and write the page where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--evalica", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(ours(options.only)))
    elif options.evalica:
        print(json.dumps(theirs()))
    else:
        text, figures = report(options.repeat)
        publish("ratings", text, figures, write=options.write)


if __name__ == "__main__":
    main()
