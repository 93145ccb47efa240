"""Bradley-Terry strengths from soft wins: P(i beats j) = sigmoid(strength_i - strength_j).

The maximum likelihood estimate exists only where the win graph is strongly connected (Ford 1957,
doi:10.2307/2308513; Hunter 2004, doi:10.1214/aos/1079120141). Elsewhere this says who is out of
reach instead of returning a large number that depends on when the iteration stopped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ELO_SCALE: Final = 400.0 / math.log(10.0)
ELO_MEAN: Final = 1000.0

NEGLIGIBLE_SHARE: Final = 1e-6
"""Share of a pair's comparisons under which a soft win is none: 2,400 points of rating."""

_MAX_STEP: Final = 2.0
_MAX_ITERATIONS: Final = 100
_TOLERANCE: Final = 1e-8
# Longest last step, natural log; the error that remains is about its square. Where the likelihood
# is flat (a nearly certain winner, one comparison between two large groups), strengths are still
# far off when the residual is small: a gap of 6.9 was fitted as 5.1.
_SETTLED: Final = 1e-6


@dataclass(frozen=True, slots=True)
class BradleyTerryFits:
    """Fits of B win matrices of M models.

    Attributes:
        strengths: Shape (B, M), natural log; +inf (-inf): above (below) every model that the data
            can place; nan: not comparable with them.
        anchored: Shape (B, M), bool: in the largest group in which everyone can be placed.
            Finite strengths are exactly these, and have mean 0 (or that of the start).
        converged: Shape (B,), bool.
        residual: Shape (B,), largest |wins - expected wins| of a model, over its comparisons,
            before the last step.
        n_iterations: Newton steps taken by the slowest fit.
    """

    strengths: Floats
    anchored: Bools
    converged: Bools
    residual: Floats
    n_iterations: int

    @property
    def exists(self) -> Bools:
        """Shape (B,): whether the maximum likelihood estimate exists for all models."""
        result: Bools = np.asarray(self.anchored.all(axis=1))
        return result


def to_elo(strengths: Floats) -> Floats:
    """Strengths on the Elo scale: 400/ln(10) points a unit, mean 1000."""
    result: Floats = ELO_MEAN + ELO_SCALE * strengths
    return result


def fit_bradley_terry(wins: Floats, *, start: Floats | None = None) -> BradleyTerryFits:
    """Fits B win matrices at once by damped Newton steps.

    Args:
        wins: Shape (B, M, M): real-valued wins of row over column, a tie half to each.
        start: Shape (M,): strengths to start from. Where only some models of a matrix can be
            placed, these keep the mean they have here, so that fits of resamples compare.

    Raises:
        StatisticsError: If `wins` has another shape, or a negative or non-finite entry.
    """
    if wins.ndim != 3 or wins.shape[1] != wins.shape[2]:
        raise StatisticsError(f"win matrices need shape (B, M, M), got {wins.shape}")
    if not np.all(np.isfinite(wins)) or np.any(wins < 0):
        raise StatisticsError("wins must be finite and not negative")
    beats = wins > NEGLIGIBLE_SHARE * (wins + wins.transpose(0, 2, 1))
    anchored = np.ones(wins.shape[:2], dtype=np.bool_)
    outside = np.zeros(wins.shape[:2])
    complete = (beats | np.eye(wins.shape[1], dtype=np.bool_)).all(axis=(1, 2))
    hard = np.flatnonzero(~complete)
    if hard.size:
        anchored[hard], outside[hard] = _place(beats[hard])
    begin = np.zeros(wins.shape[1]) if start is None else np.where(np.isfinite(start), start, 0.0)
    within = np.where(anchored[:, :, None] & anchored[:, None, :], wins, 0.0)
    fitted, residual, n_iterations = _newton(within, anchored, begin)
    # Newton leaves the common shift free.
    n_anchored = np.maximum(anchored.sum(axis=1, keepdims=True), 1)
    fitted += np.where(anchored, begin - fitted, 0.0).sum(axis=1, keepdims=True) / n_anchored
    converged: Bools = np.asarray(residual <= _TOLERANCE)
    strengths = np.where(anchored, np.where(converged[:, None], fitted, np.nan), outside)
    return BradleyTerryFits(strengths, anchored, converged, residual, n_iterations)


def describe_gaps(wins: Floats, strengths: Floats, models: Sequence[str]) -> tuple[str, ...]:
    """Plain sentences on models that have no finite rating, from one matrix and its strengths.

    Args:
        wins: Shape (M, M).
        strengths: Shape (M,), as fitted to `wins`.
        models: M names.
    """
    compared = wins + wins.T > 0
    names = np.asarray(list(models), dtype=object)
    alone = ~compared.any(axis=1)
    sentences = [f"{name} has no comparison" for name in names[alone]]
    n_groups, group = scipy.sparse.csgraph.connected_components(
        compared[np.ix_(~alone, ~alone)], directed=False
    )
    if n_groups > 1:
        listed = [", ".join(names[~alone][group == i]) for i in range(n_groups)]
        sentences.append(
            "not compared with each other, directly or through others: " + " | ".join(listed)
        )
    for sign, verb, side in ((1, "won", "upper"), (-1, "lost", "lower")):
        beyond = np.isinf(strengths) & (np.sign(strengths) == sign)
        if beyond.any():
            listed = [", ".join(names[beyond])]
            sentences.append(
                f"{listed[0]} {verb} every comparison with the others: the rating has no {side} "
                f"bound"
            )
    open_ends = np.isnan(strengths) & ~alone
    if open_ends.any() and n_groups <= 1:
        listed = [", ".join(names[open_ends])]
        sentences.append(
            f"{listed[0]}: no rating, as they lost everything to models above them and won "
            f"everything against models below"
        )
    return tuple(sentences)


def _place(beats: Bools) -> tuple[Bools, Floats]:
    """Find the models with a finite strength, shape (B, M); give +inf, -inf or nan for others."""
    reach = _closure(beats)
    same = reach & reach.transpose(0, 2, 1)
    sizes = same.sum(axis=2)
    largest = sizes.max(axis=1, keepdims=True)
    anchor = sizes.argmax(axis=1)
    # Two groups of the same size: neither is the one by which the other is measured.
    unique = (sizes == largest).sum(axis=1, keepdims=True) == largest
    rows = np.arange(len(beats))
    above = np.where(unique, reach[rows, :, anchor], reach.all(axis=2))
    below = np.where(unique, reach[rows, anchor, :], reach.all(axis=1))
    anchored = above & below & unique
    outside = np.full(anchored.shape, np.nan)
    outside[above & ~below] = np.inf
    outside[below & ~above] = -np.inf
    return anchored, outside


def _closure(beats: Bools) -> Bools:
    """Return the pairs (i, j) with a path of wins from i to j, i = j included; shape (B, M, M)."""
    n_models = beats.shape[1]
    reach = beats | np.eye(n_models, dtype=np.bool_)
    for _ in range(max(1, math.ceil(math.log2(max(n_models, 2))))):
        steps = reach.astype(np.float32)
        reach = steps @ steps > 0
    return reach


def _newton(wins: Floats, anchored: Bools, begin: Floats) -> tuple[Floats, Floats, int]:
    """Strengths (B, M) up to a shift, residuals (B,), and the steps taken."""
    theta = np.where(anchored, begin, 0.0)
    residual = np.zeros(len(wins))
    active = np.flatnonzero(anchored.sum(axis=1) > 1)
    step = 0
    while active.size and step < _MAX_ITERATIONS:
        step += 1
        gradient, laplacian = _derivatives(wins[active], theta[active])
        played = np.maximum(wins[active].sum(axis=2) + wins[active].sum(axis=1), 1e-300)
        residual[active] = (np.abs(gradient) / played).max(axis=1)
        # Near the solution a step squares the error, so the residual is not checked after the last.
        placed = anchored[active]
        change = np.linalg.solve(grounded(laplacian, placed), gradient[..., None])[..., 0]
        change = np.where(placed, change, 0.0)
        size = np.abs(change).max(axis=1, keepdims=True)
        change *= np.minimum(1.0, _MAX_STEP / np.maximum(size, _MAX_STEP))
        theta[active] += change
        is_settled = np.abs(change).max(axis=1) <= _SETTLED
        active = active[~is_settled | (residual[active] > _TOLERANCE)]
    return theta, residual, step


def _derivatives(wins: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """Gradient (B, M) and negative Hessian (B, M, M) of the log-likelihood."""
    totals = wins + wins.transpose(0, 2, 1)
    expected = 1.0 / (1.0 + np.exp(theta[:, None, :] - theta[:, :, None]))
    gradient = (wins - totals * expected).sum(axis=2)
    laplacian = -totals * expected * (1.0 - expected)
    diagonal = np.arange(wins.shape[1])
    laplacian[:, diagonal, diagonal] = 0.0
    laplacian[:, diagonal, diagonal] = -laplacian.sum(axis=2)
    return gradient, laplacian


def grounded(laplacian: Floats, anchored: Bools) -> Floats:
    """The Laplacians (B, M, M) made invertible: the shift is fixed, models outside are cut off."""
    inside = anchored.astype(np.float64)
    trace = np.trace(laplacian, axis1=1, axis2=2)
    scale = np.maximum(trace / np.maximum(inside.sum(axis=1), 1.0) ** 2, 1e-300)
    ground = inside[:, :, None] * inside[:, None, :] * scale[:, None, None]
    cut = np.eye(laplacian.shape[1]) * (1.0 - inside)[:, :, None]
    result: Floats = laplacian + ground + cut
    return result
