"""Simulate the calibration of judges: measures, their intervals, win rates and ratings.

    python -m benchmarks.recalibration --simulations 400

Four models answer each prompt, and a judge compares all six pairs of answers. Answers differ in
quality by model (log-odds of 0.5 between neighbours) and by prompt (standard deviation 1); A is
better with probability sigmoid(difference of qualities). A judge reports sigmoid(heat · (difference
+ noise)): it is over-confident where heat is above 1, and errs where it sees the difference with
noise. Better answers are known of all pairs.

Measures: change of Brier score, log loss and ECE, in thousandths: expected on new prompts with the
map that is fitted to the whole study / cross-fitted in the study / with the map that has seen the
cases; and how often the 95 % intervals of the last two hold the first one, in percent (ECE has no
interval). Win rates
(percent) and ratings (points): root mean square error over models and studies, by the judge's own
probabilities and by calibrated ones.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.bradley_terry import ELO_SCALE, fit_bradley_terry
from orchestrator.statistics.calibration import EDGES, LEAST, Kind, changes, cross_fitted, fit_map
from orchestrator.statistics.prompt_sums import PromptSums, mean_preferences, sum_by_prompt

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVEL: Final = 0.95
STRENGTHS: Final = np.array([-0.75, -0.25, 0.25, 0.75])
PAIRS: Final = np.array(list(combinations(range(len(STRENGTHS)), 2)))
PROMPTS: Final = (30, 300)
KINDS: Final[tuple[Kind, ...]] = ("temperature", "platt", "isotonic")
MEASURES: Final = ("Brier score", "log loss", "ECE")
NEW_PROMPTS: Final = 5000


@dataclass(frozen=True)
class Judge:
    """A kind of judge.

    Attributes:
        name: In the table.
        heat: Factor of its log-odds.
        noise: Standard deviation of its error in the difference of two qualities.
    """

    name: str
    heat: float
    noise: float = 0.0


JUDGES: Final = (
    Judge("calibrated", 1.0),
    Judge("over-confident", 3.0),
    Judge("over-confident, noisy", 3.0, noise=1.5),
)


@dataclass(frozen=True)
class Cases:
    """Judged pairs of a study.

    Attributes:
        p: Shape (n,), the judge's probability that the first answer is better.
        chance: Shape (n,), the true one.
        truth: Shape (n,), 1 where it is better, else 0.
        prompts: Shape (n,).
        models: Shape (n, 2).
    """

    p: Floats
    chance: Floats
    truth: Floats
    prompts: Ints
    models: Ints

    def win_rates(self, preference: Floats) -> Floats:
        """Mean preference for each model, shape (M,)."""
        return mean_preferences(self._sums(preference), LEVEL).values

    def ratings(self, preference: Floats) -> Floats:
        """Bradley-Terry ratings, mean 0, shape (M,)."""
        wins = self._sums(preference).win_matrix
        result: Floats = ELO_SCALE * fit_bradley_terry(wins[None]).strengths[0]
        return result

    def _sums(self, preference: Floats) -> PromptSums:
        shape = (int(self.prompts.max()) + 1, len(STRENGTHS))
        return sum_by_prompt(self.prompts, *self.models.T, preference, shape=shape)


def draw(judge: Judge, n_prompts: int, rng: np.random.Generator) -> Cases:
    """Return the pairs of a study."""
    quality = STRENGTHS + rng.normal(0.0, 1.0, (n_prompts, len(STRENGTHS)))
    gap = (quality[:, PAIRS[:, 0]] - quality[:, PAIRS[:, 1]]).reshape(-1)
    seen = gap + rng.normal(0.0, judge.noise, gap.size)
    chance = scipy.special.expit(gap)
    return Cases(
        scipy.special.expit(judge.heat * seen),
        chance,
        (rng.random(gap.size) < chance).astype(np.float64),
        np.repeat(np.arange(n_prompts), len(PAIRS)),
        np.tile(PAIRS, (n_prompts, 1)),
    )


def expected(cases: Cases, p: Floats) -> Floats:
    """Brier score, log loss and ECE of probabilities if the true chances are known: shape (3,)."""
    q = cases.chance
    kept = np.clip(p, LEAST, 1.0 - LEAST)
    confidence, right = np.maximum(p, 1.0 - p), np.where(p > 0.5, q, 1.0 - q)
    which = np.clip(np.searchsorted(EDGES, confidence, side="right") - 1, 0, len(EDGES) - 2)
    return np.array(
        [
            (q * (1.0 - p) ** 2 + (1.0 - q) * p**2).mean(),
            -(q * np.log(kept) + (1.0 - q) * np.log1p(-kept)).mean(),
            np.abs(np.bincount(which, confidence - right)).sum() / p.size,
        ]
    )


@dataclass(frozen=True)
class Outcome:
    """One study and one map.

    Attributes:
        changes: Shape (3, 3): of each measure on new prompts, cross-fitted and in sample.
        covered: Shape (3, 2): whether the intervals of the last two hold the first one.
        errors: Shape (2, 2, M): of win rates and ratings, by own and by calibrated probabilities.
    """

    changes: Floats
    covered: Floats
    errors: Floats


def simulate(judge: Judge, kind: Kind, n_prompts: int, n_simulations: int) -> Iterator[Outcome]:
    """Yield studies of a judge; those of a judge and a size are the same for every map."""
    rng = np.random.default_rng([19, JUDGES.index(judge), n_prompts])
    new = draw(judge, NEW_PROMPTS, rng)
    before = expected(new, new.p)
    of: tuple[Callable[[Cases, Floats], Floats], ...] = (Cases.win_rates, Cases.ratings)
    true = [one(new, new.chance) for one in of]
    for _ in range(n_simulations):
        cases = draw(judge, n_prompts, rng)
        fitted = fit_map(kind, cases.p, cases.truth)
        after = cross_fitted(kind, cases.p, cases.truth, cases.prompts, rng)
        seen = fitted(cases.p)
        gain = expected(new, fitted(new.p)) - before
        found = [changes(cases.p, p, cases.truth, cases.prompts, LEVEL) for p in (after, seen)]
        values = [[one[name].difference for one in found] for name in MEASURES]
        yield Outcome(
            np.array([[g, *(v.value for v in two)] for g, two in zip(gain, values, strict=True)]),
            np.array(
                [
                    [v.interval is not None and v.interval.contains(float(g)) for v in two]
                    for g, two in zip(gain, values, strict=True)
                ],
                dtype=np.float64,
            ),
            np.array(
                [
                    [one(cases, p) - right for p in (cases.p, after)]
                    for one, right in zip(of, true, strict=True)
                ]
            ),
        )


def line(judge: Judge, kind: Kind, n_prompts: int, n_simulations: int) -> str:
    """One line of the table."""
    found = list(simulate(judge, kind, n_prompts, n_simulations))
    means = 1000.0 * np.mean([one.changes for one in found], axis=0)
    covered = 100.0 * np.mean([one.covered for one in found], axis=0)
    errors = np.sqrt(np.mean([one.errors**2 for one in found], axis=(0, 3)))
    cells = [judge.name, str(n_prompts), kind]
    for change, cover in zip(means, covered, strict=True):
        cells += [" / ".join(f"{value:+.0f}" for value in change)]
        cells += [" / ".join(f"{value:.0f}" for value in cover)]
    cells.pop()
    cells += [f"{100 * errors[0, 0]:.1f} → {100 * errors[0, 1]:.1f}"]
    cells += [f"{errors[1, 0]:.0f} → {errors[1, 1]:.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--simulations", type=int, default=400, help="studies of each line")
    n = parser.parse_args().simulations
    print("| judge | prompts | map | Brier | held | log loss | held | ECE | win rates | ratings |")
    print("|---" * 10 + "|")
    for judge in JUDGES:
        for n_prompts in PROMPTS:
            for kind in KINDS:
                print(line(judge, kind, n_prompts, n), flush=True)


if __name__ == "__main__":
    main()
