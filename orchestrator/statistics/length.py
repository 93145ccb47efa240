"""AlpacaEval 2's win rates, as published and controlled for the lengths of answers.

Source: Dubois et al. 2024, arXiv 2404.04475, and `alpaca_eval` (`metrics/glm_winrate.py`,
`metrics/helpers.py`). Lengths are characters. Preferences are on AlpacaEval's scale: 1 is the
baseline (output 1), 2 the model (output 2).
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.resampling import Resampling, codes_of, prompt_weights
from orchestrator.statistics.results import Interval

# Logistic regressions with soft labels and an L1 penalty, many of few coefficients at once.
#
# Proximal Newton steps: the loss is replaced by its second-order expansion, the penalised expansion
# is minimised by coordinate descent and solved on the signs that this finds, and a step that does
# not lower the objective is halved (Lee, Sun and Saunders 2014, doi:10.1137/130921428).
# Cross-validation and resampling fit the same rows with other weights, so all of their problems
# share each matrix product.


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
class Rows:
    """Rows that B problems weigh differently.

    Attributes:
        features: Shape (n, K); there is no intercept.
        target: Shape (n,), soft labels in [0, 1].
        weight: Shape (n,), what the rows weigh where no problem weighs them differently.
    """

    features: Floats
    target: Floats
    weight: Floats


def fit_penalised(
    rows: Rows, weights: Floats, penalties: Floats, start: Floats | None = None
) -> Floats:
    """Coefficients minimising sum |b| + C sum weight * log-loss, shape (B, K).

    `weights` have shape (B, n), 0 leaving a row out; `penalties` (B,), each problem's C: the
    larger, the less is penalised; `start` (K,), 0 where left out.
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


def log_losses(weights: Floats, logit: Floats, target: Floats) -> Floats:
    """Weighted sums of the log-loss of B problems, shape (B,); weights and logits are (B, n)."""
    losses: Floats = (weights * (np.logaddexp(0.0, logit) - target * logit)).sum(axis=1)
    return losses


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
    return np.where(keeps[:, None], exact, step)


def _descend(
    rows: Rows, state: tuple[Floats, Floats, Floats, Floats, Floats], step: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Coefficients after a step that lowers each objective, and for which there was one."""
    at, weight, pull, logit, slope = state
    before = log_losses(weight, logit, rows.target) + pull * np.abs(at).sum(axis=1)
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
        after = log_losses(weight[open_], there, rows.target)
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


PENALTIES: Final = tuple(float(c) for c in np.logspace(-4, 4, 10))
"""Inverse strengths C of the L1 penalty that cross-validation chooses from."""

N_FOLDS: Final = 5
GAMED_WEIGHT: Final = 0.2 / 2
"""Weight of a row of the gamed baselines: lambda 0.2, and there are two of them."""

_DRAW: Final = 1.5


@dataclass(frozen=True, slots=True)
class HeadToHead:
    """A model against a baseline, in percent; nan where nothing was judged.

    Attributes:
        win_rate: 100 times the mean of preference - 1.
        standard_error: 100 sd (ddof 1) / sqrt(n), as published.
        discrete_win_rate: The same of preferences rounded to {1, 2}, 1.5 staying a draw.
        n: Judgments.
    """

    win_rate: float
    standard_error: float
    discrete_win_rate: float
    n: int


@dataclass(frozen=True, slots=True)
class LengthControlled:
    """A win rate at equal length, in percent.

    Attributes:
        win_rate: 100 times the mean prediction at no difference in length.
        standard_error: 100 sd (ddof 1) / sqrt(n) of the predictions, as published: it knows of the
            instructions' difficulties, not of the fit.
        interval: Over prompts, in percent, with the fit made anew for each resample.
        length: Coefficient of tanh(standardised length difference, baseline minus model).
        difficulty: Coefficient of the instruction's difficulty.
        model: Coefficient of the model itself.
        penalty: Chosen C.
        n: Judgments.
    """

    win_rate: float
    standard_error: float
    interval: Interval
    length: float
    difficulty: float
    model: float
    penalty: float
    n: int


def head_to_head(preferences: Floats) -> HeadToHead:
    """Win rates of preferences in [1, 2], shape (n,); 0 is a draw too, nan is left out.

    Raises:
        StatisticsError: If a preference is neither 0 nor in [1, 2].
    """
    won = _credits(preferences)
    known = won[~np.isnan(won)]
    n = int(known.size)
    discrete = np.where(known == 0.5, 0.5, known > 0.5)
    return HeadToHead(
        win_rate=100.0 * float(known.mean()) if n else math.nan,
        standard_error=_standard_error(known),
        discrete_win_rate=100.0 * float(discrete.sum()) / n if n else math.nan,
        n=n,
    )


def standardised_length(baseline: Floats, model: Floats) -> Floats:
    """Baseline's minus model's length over its standard deviation (ddof 1), shape (n,).

    Raises:
        StatisticsError: If the difference does not vary: it has no standard deviation.
    """
    difference = baseline - model
    spread = float(difference.std(ddof=1)) if difference.size > 1 else 0.0
    if not spread > 0.0:
        raise StatisticsError("length differences do not vary: nothing to control for")
    return difference / spread


def length_controlled_win_rate(
    preferences: Floats,
    length: Floats,
    difficulties: Floats,
    *,
    gamed: Floats | None,
    prompts: Ints,
    resampling: Resampling,
) -> LengthControlled:
    """AlpacaEval 2's length-controlled win rate.

    P(model preferred) = sigmoid(model + length * tanh(length difference) + difficulty * d), with
    an L1 penalty on all three whose C is chosen by 5-fold cross-validated log-loss and the rows of
    `gamed` at weight 0.1, then predicted with no length difference. The published number needs
    AlpacaEval's own difficulties and gamed rows; without these it is the same formula on less.

    Deviations from liblinear, by which the reference fits: soft labels are fitted as such (there,
    by two weighted rows: the same objective); the optimum is found to 1e-7 (there, to a tolerance
    of 1e-4); rows go to folds in turn, where scikit-learn's GroupKFold leaves the order of equal
    groups open, so another C may be chosen where two are as good.

    Args:
        preferences: Shape (n,), in [1, 2]; 0 is a draw, nan is left out.
        length: Shape (n,), of `standardised_length`, over all rows as published.
        difficulties: Shape (n,), of the instructions.
        gamed: Shape (3, n), of rows on which AlpacaEval's fit is held near the baseline, its own
            outputs made long or short: standardised length difference, difficulty, preference in
            [0, 1], as in `df_gamed.csv`; None leaves them out.
        prompts: Shape (n,), any whole numbers: what is resampled.
        resampling: Gives the interval, percentiles at its level; C stays as chosen.

    Raises:
        StatisticsError: If fewer rows than folds are left, or a preference is out of range.
    """
    won = _credits(preferences)
    known = ~np.isnan(won)
    if int(known.sum()) < N_FOLDS:
        raise StatisticsError(f"needs at least {N_FOLDS} judgments, got {int(known.sum())}")
    own = _rows(length[known], difficulties[known], won[known], is_model=True)
    rows, n_gamed = own, 0
    if gamed is not None:
        extra, n_gamed = _rows(*gamed, is_model=False), gamed.shape[1]
        rows = Rows(
            np.concatenate((extra.features, own.features)),
            np.concatenate((extra.target, own.target)),
            np.concatenate((extra.weight, own.weight)),
        )
    penalty = _chosen_penalty(rows)
    fitted = fit_penalised(rows, rows.weight[None], np.array([penalty]))[0]
    predicted = scipy.special.expit(fitted[2] + fitted[1] * difficulties[known])
    return LengthControlled(
        win_rate=100.0 * float(predicted.mean()),
        standard_error=_standard_error(predicted),
        interval=_interval(rows, n_gamed, (penalty, fitted), prompts[known], resampling),
        length=float(fitted[0]),
        difficulty=float(fitted[1]),
        model=float(fitted[2]),
        penalty=penalty,
        n=int(known.sum()),
    )


def _credits(preferences: Floats) -> Floats:
    """Preferences in [0, 1], nan kept; 0 is AlpacaEval's older code of a draw."""
    known = preferences[~np.isnan(preferences)]
    if not np.all((known == 0.0) | ((known >= 1.0) & (known <= 2.0))):
        raise StatisticsError("preferences must be in [1, 2], or 0 for a draw")
    return np.where(preferences == 0.0, _DRAW, preferences) - 1.0


def _standard_error(values: Floats) -> float:
    if values.size < 2:
        return math.nan
    return 100.0 * float(values.std(ddof=1)) / math.sqrt(values.size)


def _rows(length: Floats, difficulty: Floats, target: Floats, *, is_model: bool) -> Rows:
    here = np.full(length.size, float(is_model))
    weight = np.full(length.size, 1.0 if is_model else GAMED_WEIGHT)
    return Rows(np.stack((np.tanh(length), difficulty, here), axis=1), target, weight)


def _chosen_penalty(rows: Rows) -> float:
    fold = np.arange(rows.target.size) % N_FOLDS
    held_out = (fold == np.arange(N_FOLDS)[:, None]).astype(np.float64)
    n_penalties = len(PENALTIES)
    penalties = np.repeat(np.array(PENALTIES), N_FOLDS)
    tested = np.tile(held_out, (n_penalties, 1)) * rows.weight
    fitted = fit_penalised(rows, rows.weight - tested, penalties)
    losses = log_losses(tested, fitted @ rows.features.T, rows.target)
    losses /= np.tile(held_out.sum(axis=1), n_penalties)
    return PENALTIES[int(np.argmin(losses.reshape(n_penalties, N_FOLDS).sum(axis=1)))]


def _interval(
    rows: Rows, n_gamed: int, at: tuple[float, Floats], prompts: Ints, resampling: Resampling
) -> Interval:
    """Return the interval over prompts of the rows behind the first, gamed ones."""
    penalty, fitted = at
    codes = codes_of(prompts)
    n_prompts = int(codes.max()) + 1
    rates = []
    # All resamples of a chunk are fitted at once; a chunk holds a few MB.
    for drawn in prompt_weights(
        n_prompts, resampling.n_resamples, resampling.rng, row_bytes=64 * rows.target.size
    ):
        times = drawn[:, codes]
        held = np.tile(rows.weight[:n_gamed], (len(times), 1))
        weights = np.concatenate((held, times), axis=1)
        penalties = np.full(len(times), penalty)
        again = fit_penalised(rows, weights, penalties, fitted)
        predicted = scipy.special.expit(again[:, 2:3] + again[:, 1:2] * rows.features[n_gamed:, 1])
        rates.append((times * predicted).sum(axis=1) / times.sum(axis=1))
    tail = 0.5 * (1.0 - resampling.confidence_level)
    low, high = np.quantile(100.0 * np.concatenate(rates), (tail, 1.0 - tail))
    return Interval(float(low), float(high), resampling.confidence_level)
