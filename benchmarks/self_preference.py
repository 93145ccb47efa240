"""Simulate the favour of judges for their own answers: coverage and false alarms.

    python -m benchmarks.self_preference --simulations 1000

Five models answer, three of them judge too, with discriminations of 1.6, 1 and 0.4. All judgments
of a prompt share what the prompt adds to each model, and each judge adds noise of its own. The
first model is the best one or an average one; its favour for itself is 0 or 0.5 in log-odds.
"Naive" is the difference of the judge's mean preference for its own answers and that of the other
judges, tested over prompts: it takes a sharper eye for favour.
"""

import argparse
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.judge_aware import JudgedPairs, fit_judge_aware
from orchestrator.statistics.student import interval_around

Floats = NDArray[np.float64]

LEVEL = 0.95
BEST = np.array([0.8, 0.4, 0.0, -0.4, -0.8])
SHARPNESS = np.array([1.6, 1.0, 0.4])
PROMPTS = (20, 50, 200)
POPULATION = 30_000


def draw(n_prompts: int, strengths: Floats, favour: float, rng: np.random.Generator) -> JudgedPairs:
    """All pairs of five models by three judges who are the first three models."""
    pairs = np.array(list(combinations(range(5), 2)))
    first, second = np.tile(pairs.T, n_prompts * 3)
    judge = np.tile(np.repeat(np.arange(3), len(pairs)), n_prompts)
    prompts = np.repeat(np.arange(n_prompts), 3 * len(pairs))
    seen = strengths + rng.normal(0.0, 0.5, (n_prompts, 5))
    odds = SHARPNESS[judge] * (seen[prompts, first] - seen[prompts, second])
    own = (first == judge).astype(float) - (second == judge)
    odds += favour * own + rng.normal(0.0, 0.5, len(odds))
    traits = np.zeros((3, 5, 1))
    traits[np.arange(3), np.arange(3), 0] = 1.0
    return JudgedPairs(prompts, first, second, 5, judge, scipy.special.expit(odds), traits)


def naive_alarm(pairs: JudgedPairs) -> bool:
    """Return True if the first judge's preference for itself differs from that of the others."""
    own = (pairs.first == 0) | (pairs.second == 0)
    mine = np.where(pairs.first == 0, pairs.preference, 1.0 - pairs.preference)
    n = int(pairs.prompts.max()) + 1
    mine_of, others = (
        np.bincount(pairs.prompts[own & who], mine[own & who], minlength=n)
        / np.bincount(pairs.prompts[own & who], minlength=n)
        for who in (pairs.judge == 0, pairs.judge != 0)
    )
    return bool(scipy.stats.ttest_rel(mine_of, others).pvalue < 1.0 - LEVEL)


def cell(n_prompts: int, strengths: Floats, n_simulations: int) -> str:
    """Coverage with a favour, and false alarms without, of the fit and of the naive test."""
    whole = fit_judge_aware(draw(POPULATION, strengths, 0.5, np.random.default_rng(1)))
    none = fit_judge_aware(draw(POPULATION, strengths, 0.0, np.random.default_rng(1)))
    if whole is None or none is None:
        raise RuntimeError("the population has no fit")
    rng = np.random.default_rng([2, n_prompts, int(10 * strengths[0])])
    covered, alarms, naive = [], [], []
    for _ in range(n_simulations):
        fit = fit_judge_aware(draw(n_prompts, strengths, 0.5, rng))
        pairs = draw(n_prompts, strengths, 0.0, rng)
        still = fit_judge_aware(pairs)
        if fit is None or still is None:
            raise RuntimeError("a simulated study has no fit")
        value, error = float(fit.favours[0, 0]), float(fit.favour_errors[0, 0])
        interval = interval_around(value, error, fit.dof, LEVEL)
        covered.append(interval is not None and interval.contains(float(whole.favours[0, 0])))
        alarms.append(still.p_value(0, 0) < 1.0 - LEVEL)
        naive.append(naive_alarm(pairs))
    shares = " | ".join(f"{100 * np.mean(hits):.1f}" for hits in (covered, alarms, naive))
    return f"{shares} | {whole.favours[0, 0]:.2f} | {none.favours[0, 0]:+.3f}"


def table(n_simulations: int) -> Iterator[str]:
    """The table, line by line."""
    yield "| judge is | prompts | coverage | false alarms | naive | favour 0.5 | favour 0 |"
    yield "|---|---|---|---|---|---|---|"
    for name, strengths in (("the best", BEST), ("average", np.roll(BEST, -2))):
        for n_prompts in PROMPTS:
            yield f"| {name} | {n_prompts} | {cell(n_prompts, strengths, n_simulations)} |"


def main() -> None:
    """Print coverage and false alarms in percent, and what the fit tends to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--simulations", type=int, default=1000, help="studies of each cell")
    for line in table(parser.parse_args().simulations):
        print(line, flush=True)


if __name__ == "__main__":
    main()
