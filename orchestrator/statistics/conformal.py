"""Conformal intervals for ratings: where gold of an answer lies, given a judge's score of it.

Split conformal prediction (Lei et al. 2018, arXiv 1604.04173): of n calibration errors the
ceil((n + 1) coverage)-th smallest is how far the interval reaches. The interval of a new answer
holds its gold with probability `coverage` or more, whatever the judge is worth, if answers are
exchangeable: on average over answers, not for each. For judges: Sheng et al. 2025, arXiv
2509.18658.

Answers of one prompt depend on each other, prompts do not. So a prompt's answers share one weight
(hierarchical conformal prediction; Lee, Barber and Willett 2023, arXiv 2306.06342): coverage is for
an answer to a new prompt. With one answer a prompt it is the rule above.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.resampling import folds_of

Kind = Literal["score", "distribution", "line"]
"""Kinds of interval; see `predict`."""

_ROUNDING: Final = 1e-9
# Of the range of errors: a quantile is then known up to errors that differ by rounding.
_HALVINGS: Final = 52


@dataclass(frozen=True, slots=True)
class Ratings:
    """n ratings by a judge, some with gold.

    Attributes:
        score: Shape (n,).
        low: Shape (n,), lower quantile of the judge's own distribution; nan without one.
        high: Shape (n,), the upper one.
        gold: Shape (n,); nan where it is not known.
        prompts: Shape (n,), the prompt (or cluster) of each, any whole numbers.
    """

    score: Floats
    low: Floats
    high: Floats
    gold: Floats
    prompts: Ints

    def __post_init__(self) -> None:
        if not np.isfinite(self.score).all():
            raise StatisticsError("scores must be finite; drop failed ratings")

    @property
    def known(self) -> NDArray[np.bool_]:
        """Those with gold, shape (n,)."""
        return ~np.isnan(self.gold)

    def of(self, kept: NDArray[np.bool_]) -> "Ratings":
        """Return the intervals of the selected cases."""
        return Ratings(
            self.score[kept], self.low[kept], self.high[kept], self.gold[kept], self.prompts[kept]
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Intervals of n answers; both ends are nan where there are too few prompts for the coverage.

    Attributes:
        low: Shape (n,).
        high: Shape (n,).
    """

    low: Floats
    high: Floats

    def hold(self, gold: Floats) -> Floats:
        """Return 1 where an interval holds gold, else 0; nan without one of them. Shape (n,)."""
        inside = (self.low - _ROUNDING <= gold) & (gold <= self.high + _ROUNDING)
        return np.where(np.isnan(self.low) | np.isnan(gold), np.nan, inside)

    def within(self, labels: Floats) -> "Bounds":
        """Narrow the intervals to the first and last label that they hold.

        One that lies between two labels becomes the nearest label. Labels have shape (m,),
        ascending, m at least 1.
        """
        first = np.searchsorted(labels, self.low - _ROUNDING)
        last = np.searchsorted(labels, self.high + _ROUNDING, side="right") - 1
        middle = 0.5 * (self.low + self.high)
        nearest = np.abs(labels[None, :] - middle[:, None]).argmin(axis=1)
        empty = first > last
        undefined = np.isnan(self.low)
        low, high = (
            np.where(undefined, np.nan, labels[np.where(empty | undefined, nearest, at)])
            for at in (first, last)
        )
        return Bounds(low, high)

    def clipped(self, least: float, most: float) -> "Bounds":
        """Return the intervals cut to a scale."""
        return Bounds(np.clip(self.low, least, most), np.clip(self.high, least, most))


def least_prompts(coverage: float) -> int:
    """Return the fewest prompts with gold that give an interval: n / (n + 1) reaches coverage."""
    return int(np.ceil(coverage / (1.0 - coverage) - _ROUNDING))


def quantile_of(errors: Floats, prompts: Ints, coverage: float) -> float:
    """Return the error that intervals of a coverage reach, with one more prompt at infinity.

    Errors and their prompts have shape (n,). Returns nan where there are fewer than
    `least_prompts`.
    """
    if len(np.unique(prompts)) < least_prompts(coverage):
        return float("nan")
    weights, order = _weights(prompts), np.argsort(errors, kind="stable")
    is_reached = np.cumsum(weights[order]) >= coverage - _ROUNDING
    return float(errors[order[is_reached.argmax() if is_reached.any() else -1]])


def _weights(prompts: Ints) -> Floats:
    """Return the weights of answers: those of a prompt share one, and one more is at infinity."""
    _, code, counts = np.unique(prompts, return_inverse=True, return_counts=True)
    return 1.0 / ((len(counts) + 1) * counts[code])


def _shifted_quantiles(
    errors: Floats, fold: Ints, shifts: Floats, prompts: Ints, coverage: float
) -> Floats:
    """Return `quantile_of` of errors to which the shift of their fold is added, for m cases.

    The errors of a fold are sorted once, and each case looks for its quantile by bisection; sorting
    a matrix of m by n errors takes a hundred times as long where both are 10,000. Errors, their
    folds (0 to k - 1) and prompts have shape (n,), shifts (k, m). Returns shape (m,); nan where
    there are fewer than `least_prompts`.
    """
    if len(np.unique(prompts)) < least_prompts(coverage):
        return np.full(shifts.shape[1], np.nan)
    weights, order = _weights(prompts), np.argsort(errors, kind="stable")
    # Of each fold: its errors ascending, one at infinity, and the weight of the first so many.
    folds = []
    for one in range(len(shifts)):
        own = order[fold[order] == one]
        folds.append((np.append(errors[own], np.inf), np.append(0.0, np.cumsum(weights[own]))))

    def found(value: Floats) -> list[Ints]:
        """Count the errors of each fold that are at most a value, shape (m,) each."""
        return [
            np.searchsorted(own[:-1], value - shift, side="right")
            for (own, _), shift in zip(folds, shifts, strict=True)
        ]

    below = shifts.min(axis=0) + errors.min() - 1.0
    reached = shifts.max(axis=0) + errors.max()
    for _ in range(_HALVINGS):
        middle = 0.5 * (below + reached)
        total = sum(own[n] for (_, own), n in zip(folds, found(middle), strict=True))
        is_reached = total >= coverage - _ROUNDING
        below, reached = np.where(is_reached, below, middle), np.where(is_reached, middle, reached)
    following = [
        own[n] + shift for (own, _), n, shift in zip(folds, found(below), shifts, strict=True)
    ]
    result: Floats = np.min(following, axis=0)
    return result


def reach(kind: Literal["score", "distribution"], seen: Ratings, coverage: float) -> float:
    """Return how far intervals reach beyond the score, or beyond the judge's quantiles.

    Beyond quantiles (conformalised quantile regression; Romano, Patterson and Candès 2019, arXiv
    1905.03222) it is negative where the judge's own intervals are too long. nan where there are
    too few prompts.
    """
    if kind == "score":
        errors = np.abs(seen.gold - seen.score)
    else:
        errors = np.maximum(seen.low - seen.gold, seen.gold - seen.high)
    return quantile_of(errors, seen.prompts, coverage)


def predict(kind: Kind, seen: Ratings, fold: Ints, new: Ratings, coverage: float) -> Bounds:
    """Return intervals of new answers.

    Args:
        kind: "score": score ± reach. "distribution": quantiles of the judge's own distribution, by
            reach wider or narrower. "line": CV+ (Barber et al. 2021, arXiv 1905.02928) about a line
            that maps scores to gold, for judges with another scale than gold or a bias. The first
            two hold at `coverage`, since nothing but the reach is learned; CV+ holds in theory at
            2 coverage - 1 less at most sqrt(2 / prompts), in practice mostly near `coverage`.
        seen: Ratings with gold.
        fold: Shape (n,), the fold of each of these, for "line".
        new: Ratings to predict.
        coverage: In (0, 1).
    """
    if kind == "line":
        return _cv_plus(seen, fold, new, coverage)
    by = reach(kind, seen, coverage)
    if kind == "score":
        return Bounds(new.score - by, new.score + by)
    middle = 0.5 * (new.low + new.high)
    return Bounds(np.minimum(new.low - by, middle), np.maximum(new.high + by, middle))


def _cv_plus(seen: Ratings, fold: Ints, new: Ratings, coverage: float) -> Bounds:
    names, code = np.unique(fold, return_inverse=True)
    if len(names) < 2:
        none = np.full_like(new.score, np.nan)
        return Bounds(none, none)
    lines = np.array([_line(seen.of(fold != one)) for one in names])
    errors = np.abs(seen.gold - lines[code, 0] - lines[code, 1] * seen.score)
    centres = lines[:, :1] + lines[:, 1:] * new.score
    high = _shifted_quantiles(errors, code, centres, seen.prompts, coverage)
    low = -_shifted_quantiles(errors, code, -centres, seen.prompts, coverage)
    return Bounds(np.minimum(low, high), np.maximum(low, high))


def _line(seen: Ratings) -> tuple[float, float]:
    """Fit a line by least squares, prompts of one weight; slope 0 if all scores are equal."""
    _, code, counts = np.unique(seen.prompts, return_inverse=True, return_counts=True)
    weights = 1.0 / counts[code]
    centre, mean = (float(np.average(x, weights=weights)) for x in (seen.score, seen.gold))
    spread = float((weights * (seen.score - centre) ** 2).sum())
    slope = float((weights * (seen.score - centre) * seen.gold).sum()) / spread if spread else 0.0
    return mean - slope * centre, slope


def cross_conformal(
    kind: Kind, ratings: Ratings, coverage: float, rng: np.random.Generator
) -> Bounds:
    """Return an interval for each rating that rests on gold of other prompts alone.

    The prompts with gold are divided into ten folds, and an answer of one is predicted from the
    other nine; answers to prompts without gold are predicted from all. `kind` is as for `predict`;
    `rng` divides the prompts.
    """
    known = ratings.known
    fold = folds_of(ratings.prompts, known, rng)
    low, high = np.full_like(ratings.score, np.nan), np.full_like(ratings.score, np.nan)
    for one in np.unique(fold):
        seen, mine = known & (fold != one), fold == one
        if len(np.unique(ratings.prompts[seen])) < least_prompts(coverage):
            continue
        found = predict(kind, ratings.of(seen), fold[seen], ratings.of(mine), coverage)
        low[mine], high[mine] = found.low, found.high
    return Bounds(low, high)


def central_quantiles(p: Floats, scores: Floats, coverage: float) -> tuple[Floats, Floats]:
    """Return the quantiles between which a judge's own distribution has `coverage` or more.

    `p` has shape (n, k), the ascending `scores` (k,). Returns lower and upper ones, each of shape
    (n,).
    """
    tail = 0.5 * (1.0 - coverage)
    below = np.cumsum(p, axis=1)
    below /= below[:, -1:]
    low = (below > tail + _ROUNDING).argmax(axis=1)
    high = (below >= 1.0 - tail - _ROUNDING).argmax(axis=1)
    return scores[low], scores[high]
