"""ProbDiff's confidence: the share of prompts whose d reaches a threshold; and duels by d.

Source: Xia et al. 2024 (ProbDiff), Eq. 3 and 4. d at or above delta passes, by plain `>=` on
float64. The published code lets an undefined d fail; that is `published`, and beside it stands
the share over what the rewrite changed (an unchanged answer has d = 0 and
always passes where delta is not above 0). Intervals hold at 20 prompts, except where next to none
pass: for a share of 2 % they cover 91 % at 20 prompts for a level of 95 %, 97 % at 50.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.records import Bools, Floats, Ints
from orchestrator.statistics.means import share_over
from orchestrator.statistics.results import Estimate

TIE_THRESHOLD: Final = 0.05
"""Default tau of a duel, in nats per token; the papers print no formula."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Shares in [0, 1] at one threshold, with intervals over prompts.

    Attributes:
        delta: The threshold.
        published: Over all items, an undefined d failing; over items it is the micro average.
        changed: Over items with a d that the rewrite changed; None if that is not known.
        categories: Name and share (published convention) of each category, by name.
        macro: Unweighted mean of the categories' shares; None without categories.
    """

    delta: float
    published: Estimate
    changed: Estimate | None
    categories: tuple[tuple[str, Estimate], ...]
    macro: Estimate | None


def confidence(
    d: Floats,
    prompts: Ints,
    deltas: Sequence[float],
    confidence_level: float = 0.95,
    *,
    changed: Bools | None = None,
    categories: Sequence[str] | None = None,
) -> tuple[Confidence, ...]:
    """Confidence at each threshold, of ProbDiff's d of one model on n items.

    Args:
        d: Shape (n,), nats per token; nan where undefined.
        prompts: Shape (n,), the prompt that each item belongs to, any whole numbers.
        deltas: Thresholds, in nats per token; -0.05 as published.
        confidence_level: In (0, 1).
        changed: Shape (n,), whether the rewrite differs from the answer; None if not known.
        categories: n names, or None.

    Raises:
        StatisticsError: If the shapes differ.
    """
    columns = (changed, None if categories is None else np.asarray(categories, dtype=str))
    shapes = {d.shape, prompts.shape, *(one.shape for one in columns if one is not None)}
    if len(shapes) != 1 or d.ndim != 1:
        raise StatisticsError(f"items need columns of one shape (n,), got {shapes}")
    level, known = confidence_level, ~np.isnan(d)
    found = []
    for delta in map(float, deltas):
        passed = (d >= delta).astype(np.float64)
        of_changed = None
        if changed is not None:
            of_changed = share_over(np.where(changed & known, passed, np.nan), prompts, level)
        by_category: tuple[tuple[str, Estimate], ...] = ()
        macro = None
        if categories:
            names, codes = np.unique(np.asarray(categories, dtype=str), return_inverse=True)
            codes = codes.reshape(-1)
            by_category = tuple(
                (str(name), share_over(passed[codes == i], prompts[codes == i], level))
                for i, name in enumerate(names)
            )
            weights = 1.0 / np.bincount(codes)[codes] * codes.size / len(names)
            macro = share_over(passed, prompts, level, weights)
        published = share_over(passed, prompts, level)
        found.append(Confidence(delta, published, of_changed, by_category, macro))
    return tuple(found)


def duel(
    first: Floats,
    second: Floats,
    prompts: Ints,
    tau: float = TIE_THRESHOLD,
    confidence_level: float = 0.95,
) -> tuple[Estimate, Estimate, Estimate]:
    """Shares of items that the first of two models wins, ties and loses by d; they add up to 1.

    A side without d loses, and two without tie. d of both models has shape (n,), in nats per token,
    nan where undefined; a difference up to `tau` is a tie. `prompts`, shape (n,), are any whole
    numbers.

    Raises:
        StatisticsError: If tau is negative or nan.
    """
    if not tau >= 0.0:
        raise StatisticsError(f"tau must not be negative, got {tau}")
    with np.errstate(invalid="ignore"):
        gap = first - second
    by_d = (gap > tau).astype(np.float64) - (gap < -tau)
    decided = by_d + np.isnan(second) - np.isnan(first)
    win, tie, lose = (
        share_over((decided == sign).astype(np.float64), prompts, confidence_level)
        for sign in (1.0, 0.0, -1.0)
    )
    return win, tie, lose
