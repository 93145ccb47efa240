"""Simulate selective judging: how often its guarantee is broken, and how much it keeps.

    python -m benchmarks.selective --simulations 1000

A judge decides 3,000 verdicts, of which people label some at random; at most 10 % of what is kept
may be wrong, with 95 % confidence. Each verdict is its prompt's only one, or six belong to a prompt
and are wrong together (correlation about one half). Judges say how sure they are: as sure as they
are right (calibrated), too sure (three times the log-odds, so that a third of the margins are
equal), not sure enough (0.3 times), of nothing (the same sureness for right and wrong verdicts,
10.2 % of which are wrong, so that whatever is kept breaks the guarantee), and wrongly (the surest
tenth is wrong in 25 %). One more is calibrated and mostly right. Margins are rounded to two digits,
as coarse as judges are.

The first table is of the guarantee for new prompts, whose true error rate at each threshold is that
of 600,000 verdicts. The second is of that for the run alone, whose own verdicts are the truth. The
third is of the plain rule, which keeps the largest share whose labels are wrong in at most 10 %.
Cells: studies in % that keep too many wrong verdicts / verdicts that are kept, mean in %.

The last table is of power, for new prompts: studies in % that certify a share / that certify the
plain error rate, that of all verdicts, by the same test. The last column is the true rate of all.
"""

import argparse
import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.selective import Kept, certified, kept

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RISK: Final = 0.1
ERROR: Final = 0.05
JUDGES: Final = (
    "calibrated", "too sure", "not sure enough", "sure of nothing", "wrongly sure", "mostly right",
)  # fmt: skip
LABELS: Final = (50, 100, 200, 500, 1000)
RULES: Final = ("new prompts", "this run", "plain rule", "all verdicts")
_VERDICTS: Final = 3000
_POPULATION: Final = 600_000
_HEAT: Final = {"too sure": 3.0, "not sure enough": 0.3}
_FLAT: Final = 0.102
_SPREAD: Final = 4.0
"""Of log-odds; twice of the judge that is mostly right."""


class World(NamedTuple):
    """A judge, and how many verdicts each prompt has."""

    judge: str
    rows: int


class Done(NamedTuple):
    """Studies of a rule in percent: those that keep too many wrong verdicts, and that keep any.

    Attributes:
        share: Mean share of the verdicts that is kept.
    """

    broken: float
    share: float
    any_kept: float


class Drawn(NamedTuple):
    """Verdicts: their margins, 1 where wrong, and prompts; each of shape (n,)."""

    margin: Floats
    wrong: Floats
    prompts: Ints


def draw(world: World, n: int, rng: np.random.Generator) -> Drawn:
    """Draw verdicts of a judge."""
    prompts = np.arange(n) // world.rows
    alike = np.sqrt(0.5 if world.rows > 1 else 0.0)

    def noise() -> Floats:
        shared = rng.normal(size=int(prompts[-1]) + 1)[prompts]
        result: Floats = alike * shared + np.sqrt(1.0 - alike**2) * rng.normal(size=n)
        return result

    odds = np.abs(_SPREAD * (2.0 if world.judge == "mostly right" else 1.0) * noise())
    chance = scipy.special.expit(-odds)
    if world.judge == "sure of nothing":
        chance = np.full(n, _FLAT)
    elif world.judge == "wrongly sure":
        chance = np.where(odds > _SPREAD * scipy.special.ndtri(0.95), 0.25, chance)
    wrong = (scipy.special.ndtr(noise()) < chance).astype(np.float64)
    said = scipy.special.expit(_HEAT.get(world.judge, 1.0) * odds)
    return Drawn(np.round(2.0 * said - 1.0, 2), wrong, prompts)


class Truth:
    """Error rates of all verdicts of a draw from a margin on, sorted once."""

    def __init__(self, drawn: Drawn) -> None:
        order = np.argsort(-drawn.margin, kind="stable")
        self._descending = -drawn.margin[order]
        self._wrong = np.cumsum(drawn.wrong[order])

    def rates(self, least: Floats) -> Floats:
        """Return the error rates of the verdicts from each margin on, shape (k,)."""
        n = np.searchsorted(self._descending, -least, side="right")
        result: Floats = self._wrong[n - 1] / n
        return result


def chosen(rule: str, found: Kept) -> int | None:
    """Return the place of the share that a rule keeps."""
    if rule == "all verdicts":
        return found.shares.size - 1 if found.p_values(RISK)[-1] <= ERROR else None
    if rule != "plain rule":
        place, is_certified = certified(found, RISK, ERROR)
        return place if is_certified else None
    fitting = np.flatnonzero(found.rates <= RISK)
    return int(fitting[-1]) if fitting.size else None


def simulate(world: World, n_labels: int, n_simulations: int, seed: int = 0) -> dict[str, Done]:
    """Return what became of the studies by each rule."""
    rng = np.random.default_rng([seed, JUDGES.index(world.judge), world.rows, n_labels])
    population = Truth(draw(world, _POPULATION, np.random.default_rng(1)))
    found = {rule: np.zeros((n_simulations, 3)) for rule in RULES}
    for study in range(n_simulations):
        run = draw(world, _VERDICTS, rng)
        told = np.full(_VERDICTS, np.nan)
        at = rng.permutation(_VERDICTS)[:n_labels]
        told[at] = run.wrong[at]
        for rule in RULES:
            own = np.arange(_VERDICTS) if rule == "this run" else run.prompts
            shares = kept(run.margin, told, own)
            place = chosen(rule, shares)
            if place is not None:
                truth = Truth(run) if rule == "this run" else population
                rate = truth.rates(shares.least)[place]
                found[rule][study] = rate > RISK, shares.shares[place], 1.0
    return {rule: Done(*map(float, 100.0 * of.mean(axis=0))) for rule, of in found.items()}


def most(world: World) -> float:
    """Return the largest share in percent that could be kept if the truth were known."""
    drawn = draw(world, _POPULATION, np.random.default_rng(1))
    least = np.unique(drawn.margin)
    shares = np.array([(drawn.margin >= one).mean() for one in least])
    return 100.0 * float(shares[Truth(drawn).rates(least) <= RISK].max(initial=0.0))


def tables(n_simulations: int) -> Iterator[str]:
    """A table of each rule, line by line."""
    worlds = [World(*one) for one in itertools.product(JUDGES, (1, 6))]
    found = {(world, n): simulate(world, n, n_simulations) for world in worlds for n in LABELS}
    sizes = " | ".join(f"{n:,} labels" for n in LABELS)
    head = f"| judge | verdicts a prompt | {sizes} | "
    line = f"|{'---|' * (3 + len(LABELS))}"
    for rule in RULES[:3]:
        yield f"{rule}:\n"
        yield f"{head}could be kept |"
        yield line
        for world in worlds:
            cells = (found[world, n][rule] for n in LABELS)
            shown = " | ".join(f"{one.broken:.1f} / {one.share:.0f}" for one in cells)
            yield f"| {world.judge} | {world.rows} | {shown} | {most(world):.0f} |"
        yield ""
    yield "power:\n"
    yield f"{head}all are wrong in |"
    yield line
    for world in worlds:
        pairs = ([found[world, n][rule].any_kept for rule in RULES[::3]] for n in LABELS)
        shown = " | ".join(f"{some:.0f} / {all_of_them:.0f}" for some, all_of_them in pairs)
        rate = draw(world, _POPULATION, np.random.default_rng(1)).wrong.mean()
        yield f"| {world.judge} | {world.rows} | {shown} | {100.0 * rate:.1f} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--simulations", type=int, default=1000)
    for line in tables(parser.parse_args().simulations):
        print(line, flush=True)


if __name__ == "__main__":
    main()
