"""Logistic regressions with soft labels and an L1 penalty, many of few coefficients at once.

Proximal Newton steps: the loss is replaced by its second-order expansion, the penalised expansion
is minimised by coordinate descent and solved on the signs that this finds, and a step that does not
lower the objective is halved (Lee, Sun and Saunders 2014, doi:10.1137/130921428). Cross-validation
and resampling fit the same rows with other weights, so all of their problems share each matrix
product.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Slope of the loss, as a share of the penalty's, up to which a coefficient is at its optimum.
_FLAT: Final = 1e-7
_MAX_STEPS: Final = 100
_MAX_HALVINGS: Final = 40
_MAX_SWEEPS: Final = 10
_SETTLED: Final = 1e-10
_DECREASE: Final = 1e-4
_RIDGE: Final = 1e-12
_ROUNDING: Final = 1e-14


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Rows that B problems weigh differently.

    Attributes:
        features: Shape (n, K); there is no intercept.
        target: Shape (n,), soft labels in [0, 1].
    """

    features: Floats
    target: Floats


def fit_penalised(
    rows: SharedRows, weights: Floats, penalties: Floats, start: Floats | None = None
) -> Floats:
    """Coefficients minimising sum |b| + C sum weight * log-loss, shape (B, K).

    Args:
        rows: Features and labels.
        weights: Shape (B, n); 0 leaves a row out.
        penalties: Shape (B,), each problem's C: the larger, the less is penalised.
        start: Shape (K,), where the search begins; 0 where left out.
    """
    k = rows.features.shape[1]
    found = np.zeros((len(weights), k)) if start is None else np.tile(start, (len(weights), 1))
    slack = 1.0 / penalties
    products = (rows.features[:, :, None] * rows.features[:, None, :]).reshape(-1, k * k)
    open_ = np.arange(len(weights))
    for _ in range(_MAX_STEPS):
        at, weight, pull = found[open_], weights[open_], slack[open_]
        logit = at @ rows.features.T
        p = scipy.special.expit(logit)
        slope = (weight * (p - rows.target)) @ rows.features
        # The largest violation of the conditions of an optimum.
        away = np.abs(slope + pull[:, None] * np.sign(at))
        inside = np.maximum(np.abs(slope) - pull[:, None], 0.0)
        unmet = np.where(at != 0.0, away, inside).max(axis=1) > _FLAT * pull
        if not unmet.any():
            break
        open_, at, weight, pull = open_[unmet], at[unmet], weight[unmet], pull[unmet]
        logit, p, slope = logit[unmet], p[unmet], slope[unmet]
        curvature = ((weight * p * (1.0 - p)) @ products).reshape(-1, k, k)
        step = _direction(at, slope, curvature, pull)
        moved, is_lower = _descend(rows, (at, weight, pull, logit, slope), step)
        found[open_] = moved
        # Where not even a tiny step helps, the optimum is reached as far as numbers can tell.
        open_ = open_[is_lower]
        if not open_.size:
            break
    return found


def log_losses(rows: SharedRows, weights: Floats, coefficients: Floats) -> Floats:
    """Weighted sums of the log-loss of each problem, shape (B,); weights have shape (B, n)."""
    return _losses(weights, coefficients @ rows.features.T, rows.target)


def _losses(weights: Floats, logit: Floats, target: Floats) -> Floats:
    result: Floats = (weights * (np.logaddexp(0.0, logit) - target * logit)).sum(axis=1)
    return result


def _direction(at: Floats, slope: Floats, curvature: Floats, pull: Floats) -> Floats:
    """The step to the minimum of the penalised second-order expansion, shape (B, K)."""
    k = at.shape[1]
    diagonal = np.einsum("bkk->bk", curvature) + _RIDGE
    step = np.zeros_like(at)
    for _ in range(_MAX_SWEEPS):
        largest = 0.0
        for j in range(k):
            gradient = slope[:, j] + np.einsum("bk,bk->b", curvature[:, j], step)
            wanted = at[:, j] + step[:, j] - gradient / diagonal[:, j]
            reach = pull / diagonal[:, j]
            settled = np.sign(wanted) * np.maximum(np.abs(wanted) - reach, 0.0)
            change = settled - at[:, j] - step[:, j]
            step[:, j] += change
            largest = max(largest, float(np.abs(change).max()))
        if largest <= _SETTLED:
            break
    return _polished(at, slope, curvature, pull, step)


def _polished(at: Floats, slope: Floats, curvature: Floats, pull: Floats, step: Floats) -> Floats:
    """The exact minimum on the coefficients that the step leaves different from 0.

    Coordinate descent is slow where features are nearly dependent, but soon has the right signs.
    """
    k = at.shape[1]
    signs = np.sign(at + step)
    free = signs != 0.0
    gone = np.where(free, 0.0, -at)
    wanted = -(slope + pull[:, None] * signs + np.einsum("bjk,bk->bj", curvature, gone))
    both = free[:, :, None] & free[:, None, :]
    system = np.where(both, curvature, 0.0) + np.eye(k) * np.where(free, _RIDGE, 1.0)[:, None, :]
    exact = np.linalg.solve(system, np.where(free, wanted, 0.0)[:, :, None])[:, :, 0] + gone
    keeps = (np.sign(at + exact) == signs).all(axis=1) & np.isfinite(exact).all(axis=1)
    result: Floats = np.where(keeps[:, None], exact, step)
    return result


def _descend(
    rows: SharedRows, state: tuple[Floats, Floats, Floats, Floats, Floats], step: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Coefficients after a step that lowers each objective, and for which there was one."""
    at, weight, pull, logit, slope = state
    before = _losses(weight, logit, rows.target) + pull * np.abs(at).sum(axis=1)
    gain = (slope * step).sum(axis=1)
    gain += pull * (np.abs(at + step).sum(axis=1) - np.abs(at).sum(axis=1))
    along = step @ rows.features.T
    # Near the optimum a step gains less than sums of so many numbers can tell.
    allowed = before + _ROUNDING * np.abs(before)
    length = np.ones(len(at))
    moved, open_ = at.copy(), np.arange(len(at))
    for _ in range(_MAX_HALVINGS):
        reached = at[open_] + length[open_, None] * step[open_]
        there = logit[open_] + length[open_, None] * along[open_]
        after = _losses(weight[open_], there, rows.target)
        after += pull[open_] * np.abs(reached).sum(axis=1)
        enough = after <= allowed[open_] + _DECREASE * length[open_] * gain[open_]
        moved[open_[enough]] = reached[enough]
        open_ = open_[~enough]
        if not open_.size:
            break
        length[open_] *= 0.5
    is_lower = np.ones(len(at), dtype=np.bool_)
    is_lower[open_] = False
    return moved, is_lower
