"""Simulate the audit of judges with known faults: coverage of its intervals and false alarms.

    python -m benchmarks.judge_audit --simulations 1000

Three models answer, the better ones at greater length. An honest judge sees their skill on each
prompt, with noise of its own in each order. The others add a preference for the answer shown first,
for the longer answer, or go round in circles on some of the prompts. "Found" is the share of
studies whose 95 % interval leaves out no fault: false alarms where there is none.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.bradley_terry import StyledPairs, fit_style
from orchestrator.statistics.judgments import Orders, decisions, position_effects
from orchestrator.statistics.orders import Verdicts, count_cycles
from orchestrator.statistics.resampling import Resampling
from orchestrator.statistics.results import Estimate, Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVEL: Final = 0.95
STRENGTHS: Final = np.array([0.5, 0.0, -0.5])
PAIRS: Final = np.array(list(combinations(range(3), 2)))
PROMPTS: Final = (20, 50, 200)
POPULATION: Final = 20_000
COVERED: Final = ("order", "length", "cycles", "excess")
FAULTS: Final = ("order", "length", "excess")


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge with known faults.

    Attributes:
        order: Log-odds for the answer shown first.
        length: Log-odds for a difference of one spread in length.
        circles: Share of prompts on which it goes round in circles.
    """

    order: float = 0.0
    length: float = 0.0
    circles: float = 0.0


JUDGES: Final = {
    "honest": Judge(),
    "first answer": Judge(order=0.3),
    "longer answer": Judge(length=0.4),
    "circles": Judge(circles=0.5),
    "all three": Judge(0.3, 0.4, 0.5),
}


@dataclass(frozen=True, slots=True)
class Study:
    """Judgments of all pairs on each prompt, in both orders; n in all.

    Attributes:
        prompts: Shape (n,).
        first: Shape (n,), index of a model.
        second: Shape (n,), index of the other.
        shown_first: Shape (n,), preference for the first model where it is shown first.
        shown_second: Shape (n,), the same where it is shown second.
        lengths: Shape (n, 1), difference of lengths as a feature.
    """

    prompts: Ints
    first: Ints
    second: Ints
    shown_first: Floats
    shown_second: Floats
    lengths: Floats


def draw(n_prompts: int, judge: Judge, rng: np.random.Generator) -> Study:
    """Judgments of one judge on fresh prompts."""
    first, second = np.tile(PAIRS.T, n_prompts)
    prompts = np.repeat(np.arange(n_prompts), len(PAIRS))
    skill = STRENGTHS + rng.normal(0.0, 0.5, (n_prompts, 3))
    characters = np.exp(6.0 + 0.3 * STRENGTHS + rng.normal(0.0, 0.4, (n_prompts, 3)))
    a, b = characters[prompts, first], characters[prompts, second]
    lengths = (a - b) / (a + b + 1.0)
    odds = skill[prompts, first] - skill[prompts, second]
    odds += judge.length * lengths / np.sqrt((lengths**2).mean())
    circular = (rng.uniform(size=n_prompts) < judge.circles)[prompts]
    odds = np.where(circular, np.where(second - first == 1, 2.0, -2.0), odds)
    ab, ba = (
        scipy.special.expit(odds + sign * judge.order + rng.normal(0.0, 0.5, len(odds)))
        for sign in (1.0, -1.0)
    )
    return Study(prompts, first, second, ab, ba, lengths[:, None])


def estimates(study: Study, resampling: Resampling) -> dict[str, tuple[float, Interval | None]]:
    """The order bias, the effect of length, and the share and the excess of cycles."""
    n_prompts = int(study.prompts.max()) + 1
    preference = 0.5 * (study.shown_first + study.shown_second)
    nothing = np.zeros_like(preference)
    seen = (study.shown_first, study.shown_second)
    one, two = (decisions(shown, nothing, 1.0 - shown) for shown in seen)
    orders = Orders(study.prompts, *seen, one, two, np.ones(len(nothing), bool))
    bias = position_effects(orders, n_prompts, LEVEL).bias
    pairs = StyledPairs(study.prompts, study.first, study.second, 3, preference, study.lengths)
    fit = fit_style(pairs)
    if fit is None:
        raise RuntimeError("a simulated study has no fit")
    sides = np.sign(preference - 0.5)
    verdicts = Verdicts(study.prompts, study.first, study.second, 3, study.prompts, sides)
    cycles = count_cycles(verdicts, resampling)

    def told(found: Estimate) -> tuple[float, Interval | None]:
        return found.value, found.interval

    return {
        "order": told(bias),
        "length": (float(fit.effects[0]), fit.interval(3, LEVEL)),
        "cycles": told(cycles.share),
        "excess": told(cycles.excess),
    }


def faults(n_prompts: int, name: str, n_simulations: int) -> str:
    """Coverage and detection of each fault in studies of one judge, as cells of a line."""
    judge = JUDGES[name]
    whole = Resampling(10, np.random.default_rng(1), LEVEL)
    truth = {
        key: value
        for key, (value, _) in estimates(
            draw(POPULATION, judge, np.random.default_rng(1)), whole
        ).items()
    }
    rng = np.random.default_rng([2, n_prompts, list(JUDGES).index(name)])
    covered: dict[str, list[bool]] = {key: [] for key in truth}
    found: dict[str, list[bool]] = {key: [] for key in truth}
    for _ in range(n_simulations):
        study = draw(n_prompts, judge, rng)
        for key, (_, interval) in estimates(study, Resampling(1000, rng, LEVEL)).items():
            if interval is None:
                continue
            covered[key].append(interval.contains(truth[key]))
            found[key].append(interval.low > 0.0 or (key != "excess" and interval.high < 0.0))
    cells = [f"{100 * np.mean(covered[key]):.1f}" for key in COVERED]
    cells += [f"{100 * np.mean(found[key]):.1f}" for key in FAULTS]
    return " | ".join(cells)


def header(*names: str) -> str:
    """The first two lines of a table."""
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def tables(n_simulations: int) -> Iterator[str]:
    """The table, line by line."""
    yield header("fault of the judge", "prompts", *COVERED, *(f"{fault} found" for fault in FAULTS))
    for name in JUDGES:
        for n_prompts in PROMPTS:
            yield f"| {name} | {n_prompts} | {faults(n_prompts, name, n_simulations)} |"


def main() -> None:
    """Print coverage and detection in percent."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--simulations", type=int, default=1000, help="studies of each line")
    options = parser.parse_args()
    for line in tables(options.simulations):
        print(line, flush=True)


if __name__ == "__main__":
    main()
