"""Orders of models: tests of a given one, and cycles of a judge that no order explains."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

import numpy as np
import scipy

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.bradley_terry import fit_bradley_terry
from orchestrator.statistics.means import clustered_share
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.resampling import (
    Resampling,
    jackknife_sums,
    prompt_weights,
    student_interval,
)
from orchestrator.statistics.results import Estimate, Interval, checked_level

METHOD: Final = "jackknife over prompts, t quantile, Bonferroni over pairs"

Verdict = Literal["right", "wrong", "open"]


@dataclass(frozen=True, slots=True)
class Ordering:
    """The order that a score gives to M models, against the true one.

    Attributes:
        order: Indices of the models, best first; those without a value are left out.
        means: Shape (M,); nan where a model has no value.
        share_right: Share of resamples of the prompts with exactly the true order; None where a
            model has no value.
        verdicts: For each pair (i, j), i truly better: whether the score says so with an interval
            that leaves out 0.
        n_prompts: Prompts.
    """

    order: tuple[int, ...]
    means: Floats
    share_right: float | None
    verdicts: dict[tuple[int, int], Verdict]
    n_prompts: int

    def count(self, verdict: Verdict) -> int:
        """Pairs with that verdict."""
        return sum(found == verdict for found in self.verdicts.values())


def ordering(
    sums: Floats,
    counts: Floats,
    truth: Sequence[int],
    *,
    confidence_level: float,
    n_resamples: int,
    rng: np.random.Generator,
) -> Ordering:
    """Compare the order of models by their mean score with the true order.

    `sums` and `counts`, shape (P, M), are of the score over a prompt's judgments; more is better.
    `truth` has indices of the models, best first; `confidence_level` is that of all pairs together.
    Prompts are drawn with all their judgments.

    Raises:
        StatisticsError: If the shapes differ, or `truth` is no order of the models.
    """
    checked_level(confidence_level)
    n_models = sums.shape[1]
    if sums.shape != counts.shape or sorted(truth) != list(range(n_models)):
        raise StatisticsError("sums, counts and the true order must be of the same models")
    means = _means(sums.sum(axis=0), counts.sum(axis=0))
    known = np.flatnonzero(np.isfinite(means))
    pairs = list(combinations(truth, 2))
    level = 1.0 - (1.0 - confidence_level) / max(1, len(pairs))
    verdicts = {(i, j): _verdict(sums, counts, i, j, level) for i, j in pairs}
    share = None
    if len(known) == n_models and len(sums):
        right = 0
        for weights in prompt_weights(len(sums), n_resamples, rng):
            drawn = _means(weights @ sums, weights @ counts)[:, list(truth)]
            # A tie is not the true order.
            right += int(np.all(drawn[:, :-1] > drawn[:, 1:], axis=1).sum())
        share = right / n_resamples
    order = tuple(int(i) for i in known[np.argsort(-means[known], kind="stable")])
    return Ordering(order, means, share, verdicts, len(sums))


def _means(sums: Floats, counts: Floats) -> Floats:
    return np.where(counts > 0, sums / np.where(counts > 0, counts, 1.0), np.nan)


def _verdict(sums: Floats, counts: Floats, better: int, worse: int, level: float) -> Verdict:
    parts = np.stack(
        (sums[:, better], counts[:, better], sums[:, worse], counts[:, worse]), axis=-1
    )
    parts = parts[(parts[:, 1] > 0) | (parts[:, 3] > 0)]
    if not len(parts):
        return "open"

    def gap(total: Floats) -> Floats:
        return _means(total[:, 0], total[:, 1]) - _means(total[:, 2], total[:, 3])

    found = jackknife_sums(parts, gap)
    if math.isnan(found.value):
        return "open"
    sizes = parts[:, 1] + parts[:, 3]
    interval = student_interval(found.value, found.standard_error, len(parts), level, sizes=sizes)
    if isinstance(interval, str) or interval.contains(0.0):
        return "open"
    return "right" if found.value > 0 else "wrong"


# Cycles of a judge: A over B, B over C and C over A on one item, and how many chance explains.
#
# Kendall and Babington Smith 1940 (doi:10.1093/biomet/31.3-4.324) count circular triads. A judge
# that draws each verdict by a Bradley-Terry model has some too: for models of equal strength one
# triple in four. What is above that is inconsistency of another kind.


_BOOTSTRAPPED: Final = "percentile bootstrap over prompts, the model fitted to each draw"
_ADDED: Final = 0.5
"""Wins added to each side of each pair that was compared, so that there is always a fit."""


@dataclass(frozen=True, slots=True)
class Verdicts(Pairs):
    """Decisions between models.

    Attributes:
        items: Shape (n,), what was judged as a whole (an item and turn), from 0 on.
        decisions: Shape (n,), 1 for the first, -1 for the second, 0 for a tie.
    """

    items: Ints
    decisions: Floats


@dataclass(frozen=True, slots=True)
class Cycles:
    """Share of cycles among triples of models on an item without a tie among them.

    Attributes:
        n_triples: Such triples.
        share: Of cycles, over prompts.
        expected: Share if the judge drew each of its verdicts by its Bradley-Terry model.
        excess: `share` minus `expected`.
    """

    n_triples: int
    share: Estimate
    expected: float
    excess: Estimate


def count_cycles(verdicts: Verdicts, resampling: Resampling) -> Cycles:
    """Return the share of cycles, and what a Bradley-Terry model of the same verdicts would have.

    The model is fitted to the verdicts that are no ties, and half a win for each side of each pair:
    of a judge that never contradicts itself there is no fit otherwise. The interval of the excess
    is no narrower than that of the share.
    """
    n_prompts = int(verdicts.prompts.max(initial=-1)) + 1
    cycles, triples, members = _by_prompt(verdicts, n_prompts)
    counts = triples.sum(axis=1)
    share = clustered_share(cycles, counts, resampling.confidence_level)
    n = int(counts.sum())
    if not n:
        none = Estimate(np.nan, None, 0, _BOOTSTRAPPED, "no triple of models without a tie")
        return Cycles(0, none, np.nan, none)
    wins = _wins(verdicts, n_prompts)
    expected = float(_expected(wins.sum(axis=0)[None], triples.sum(axis=0)[None], members)[0])
    value = float(cycles.sum() / n) - expected
    drawn = []
    row_bytes = 8 * (12 * verdicts.n_models**2 + 2 * len(members))
    for weights in prompt_weights(
        n_prompts, resampling.n_resamples, resampling.rng, row_bytes=row_bytes
    ):
        sizes = weights @ triples
        total = sizes.sum(axis=1)
        flat = (weights @ wins.reshape(n_prompts, -1)).reshape(-1, *wins.shape[1:])
        chance = _expected(flat, sizes, members)
        drawn.append(weights @ cycles / np.where(total > 0, total, np.nan) - chance)
    tail = 0.5 * (1.0 - resampling.confidence_level)
    low, high = np.quantile(np.concatenate(drawn), [tail, 1.0 - tail])
    n_with = int((counts > 0).sum())
    if n_with < 2 or np.isnan(low + high):
        why = "too few prompts with triples for an interval"
        return Cycles(n, share, expected, Estimate(value, None, n_with, _BOOTSTRAPPED, why))
    known = share.interval
    if known is not None:
        # Draws of a judge that was never seen to go round have no cycle either.
        low, high = min(low, known.low - expected), max(high, known.high - expected)
    interval = Interval(float(low), float(high), resampling.confidence_level)
    return Cycles(n, share, expected, Estimate(value, interval, n_with, _BOOTSTRAPPED))


def _by_prompt(verdicts: Verdicts, n_prompts: int) -> tuple[Floats, Floats, Ints]:
    """Count cycles (P,) and triples without a tie (P, T) by prompt; list each triple's models."""
    m = verdicts.n_models
    n_items = int(verdicts.items.max(initial=-1)) + 1
    sides = np.zeros((n_items, m, m))
    sides[verdicts.items, verdicts.first, verdicts.second] = verdicts.decisions
    sides[verdicts.items, verdicts.second, verdicts.first] = -verdicts.decisions
    prompt_of = np.zeros(n_items, dtype=np.int64)
    prompt_of[verdicts.items] = verdicts.prompts
    members = np.array(list(combinations(range(m), 3)), dtype=np.int64).reshape(-1, 3)
    cycles, triples = np.zeros(n_prompts), np.zeros((n_prompts, len(members)))
    for at, (i, j, k) in enumerate(members):
        around = np.stack([sides[:, i, j], sides[:, j, k], sides[:, k, i]])
        decided = (around != 0.0).all(axis=0)
        circular = decided & (np.abs(around.sum(axis=0)) == 3.0)
        triples[:, at] = np.bincount(prompt_of, decided, minlength=n_prompts)
        cycles += np.bincount(prompt_of, circular, minlength=n_prompts)
    return cycles, triples, members


def _wins(verdicts: Verdicts, n_prompts: int) -> Floats:
    """Count decided verdicts by prompt, winner and loser: shape (P, M, M)."""
    result = np.zeros((n_prompts, verdicts.n_models, verdicts.n_models))
    for sign, winner, loser in (
        (1.0, verdicts.first, verdicts.second),
        (-1.0, verdicts.second, verdicts.first),
    ):
        won = verdicts.decisions == sign
        np.add.at(result, (verdicts.prompts[won], winner[won], loser[won]), 1.0)
    return result


def _expected(wins: Floats, triples: Floats, members: Ints) -> Floats:
    """Return the expected share of cycles, shape (B,), of wins (B, M, M) and triples (B, T)."""
    compared = (wins + wins.transpose(0, 2, 1)).sum(axis=0) > 0.0
    strengths = fit_bradley_terry(wins + _ADDED * compared).strengths
    one, two, three = (strengths[:, members[:, place]] for place in range(3))
    p, q, r = (scipy.special.expit(gap) for gap in (one - two, two - three, three - one))
    chance = p * q * r + (1.0 - p) * (1.0 - q) * (1.0 - r)
    total = triples.sum(axis=1)
    summed = np.where(triples > 0, triples * chance, 0.0).sum(axis=1)
    return np.where(total > 0, summed / np.where(total > 0, total, 1.0), np.nan)
