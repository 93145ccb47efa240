"""Simulate juries: accuracy of the consensus, and coverage of the reliability of judges.

    python -m benchmarks.juries --simulations 100

Four judges, right in 85, 70, 60 and 50 % of their verdicts, judge three pairs of answers a prompt
(A better 40 %, a tie 20 %, B better 40 %). Their votes are certain; or soft, such that a verdict
drawn from the vote is the judge's (Dirichlet); or vague: half the verdict, half noise, so that they
say less than the judge knows. Errors are independent; or the prompts differ in difficulty, which
all judges share; or the worst judge copies half of its verdicts from the second worst.
"Equal" is the side of the greatest mean share, "learned" that of the fit, "known" that of the
model with the true confusion matrices. Coverage is of the mean share on the true label.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.dawid_skene import (
    Uncertainty,
    Votes,
    dependence,
    fit_dawid_skene,
    uncertainty,
)
from orchestrator.statistics.resampling import Resampling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVEL: Final = 0.95
RIGHT: Final = np.array([0.85, 0.7, 0.6, 0.5])
PRIOR: Final = np.array([0.4, 0.2, 0.4])
MIRROR: Final = (2, 1, 0)
PAIRS: Final = 3
PROMPTS: Final = (50, 200)
RESAMPLES: Final = 200


@dataclass(frozen=True)
class Jury:
    """A kind of jury.

    Attributes:
        name: In the table.
        noise: Share of a vote that is a random distribution.
        width: Of the Dirichlet distribution of votes, beside 1 for the verdict; 0: certain votes.
        spread: Difference in the share of right verdicts between easy and hard prompts.
        copied: Share of the last judge's verdicts that are those of the one before.
    """

    name: str
    noise: float = 0.0
    width: float = 0.0
    spread: float = 0.0
    copied: float = 0.0


JURIES: Final = (
    Jury("independent, certain"),
    Jury("independent, soft", width=0.2),
    Jury("independent, vague", noise=0.5),
    Jury("prompts of unlike difficulty", spread=0.15),
    Jury("one copies half, certain", copied=0.5),
    Jury("one copies half, soft", width=0.2, copied=0.5),
)


def draw(jury: Jury, n_prompts: int, rng: np.random.Generator) -> tuple[Votes, Ints]:
    """Return votes, shape (n, 4, 3), and the true labels."""
    prompts = np.repeat(np.arange(n_prompts), PAIRS)
    n = len(prompts)
    truth = rng.choice(3, n, p=PRIOR)
    right = RIGHT + jury.spread * rng.choice([-1.0, 1.0], n_prompts)[prompts, None]
    # A wrong verdict is either of the other two labels.
    wrong = (truth[:, None] + rng.integers(1, 3, (n, 4))) % 3
    said = np.where(rng.random((n, 4)) < right, truth[:, None], wrong)
    said[:, 3] = np.where(rng.random(n) < jury.copied, said[:, 2], said[:, 3])
    shares = np.eye(3)[said]
    if jury.width:
        drawn = rng.gamma(jury.width + shares)
        shares = drawn / drawn.sum(axis=2, keepdims=True)
    if jury.noise:
        shares = (1.0 - jury.noise) * shares + jury.noise * rng.dirichlet(np.ones(3), (n, 4))
    return Votes(shares, prompts, MIRROR), truth


def known_labels(jury: Jury, votes: Votes) -> Ints:
    """The likeliest labels by the model with the true confusion matrices."""
    right = verdicts(jury)[:, None, None]
    confusion = right * np.eye(3) + (1.0 - right) * (1.0 - np.eye(3)) / 2.0
    shares = votes.shares if not jury.noise else np.eye(3)[votes.shares.argmax(axis=2)]
    evidence = np.einsum("njl,jkl->njk", shares, confusion)
    odds = np.log(PRIOR) + np.log(evidence).sum(axis=1)
    labels: Ints = odds.argmax(axis=1)
    return labels


def verdicts(jury: Jury) -> Floats:
    """Probability that each judge's verdict is right, shape (4,)."""
    right = RIGHT.copy()
    right[3] = jury.copied * right[2] + (1.0 - jury.copied) * right[3]
    return right


def share_on_truth(jury: Jury) -> Floats:
    """Expected share of each judge's vote on the true label, shape (4,)."""
    on_verdict = (1.0 + jury.width) / (1.0 + 3.0 * jury.width)
    right = verdicts(jury)
    shown = right * on_verdict + (1.0 - right) * (1.0 - on_verdict) / 2.0
    result: Floats = (1.0 - jury.noise) * shown + jury.noise / 3.0
    return result


def warned(found: Uncertainty) -> bool:
    """Return True if two judges err together beyond doubt, at one level for all six pairs."""
    return bool((np.triu(found.dependence[0], k=1) > 0.0).any())


def cell(jury: Jury, n_prompts: int, n_simulations: int) -> str:
    """Accuracies, coverage by judge, and how often dependence is seen."""
    rng = np.random.default_rng([3, n_prompts, JURIES.index(jury)])
    right, covered, warnings, pairs = [], [], [], []
    target = share_on_truth(jury)
    for _ in range(n_simulations):
        votes, truth = draw(jury, n_prompts, rng)
        fit = fit_dawid_skene(votes, rng)
        found = uncertainty(votes, fit, Resampling(RESAMPLES, rng, LEVEL))
        labels = (
            votes.shares.mean(axis=1).argmax(axis=1),
            fit.posterior.argmax(axis=1),
            known_labels(jury, votes),
        )
        right.append([(label == truth).mean() for label in labels])
        covered.append((found.accuracy[0] <= target) & (target <= found.accuracy[1]))
        warnings.append(warned(found))
        pairs.append(dependence(votes, fit)[2, 3])
    accuracies = " | ".join(f"{100 * share:.1f}" for share in np.mean(right, axis=0))
    coverage = " | ".join(f"{100 * share:.0f}" for share in np.mean(covered, axis=0))
    return f"{accuracies} | {coverage} | {np.mean(pairs):+.2f} | {100 * np.mean(warnings):.0f}"


def table(n_simulations: int) -> Iterator[str]:
    """The table, line by line."""
    yield "| jury | prompts | equal | learned | known | 85 % | 70 % | 60 % | 50 % | r | warned |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for jury in JURIES:
        for n_prompts in PROMPTS:
            yield f"| {jury.name} | {n_prompts} | {cell(jury, n_prompts, n_simulations)} |"


def main() -> None:
    """Print accuracies and coverage in percent."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--simulations", type=int, default=100, help="studies of each cell")
    for line in table(parser.parse_args().simulations):
        print(line, flush=True)


if __name__ == "__main__":
    main()
