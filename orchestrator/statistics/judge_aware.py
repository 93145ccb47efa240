"""Bradley-Terry for several judges, each of its own sharpness, who may favour some models.

    logit P_j(first beats second) = a_j (strength_first - strength_second) + sum_k g_jk z_k

a_j is judge j's discrimination, with mean 1 over the judges. z_k is 1 where the first answer has a
trait for the judge (it is the judge's own, or of its family) and the second has not, -1 the other
way round, else 0; g_jk is the judge's favour in log-odds. The favour of a judge that is also a
candidate is identified by the other judges' view of the same models. Sources: Xu, Tan, Wu and Zhou
2026 (arXiv 2601.21817) for the discriminations, which they scale to a product of 1; Panickssery,
Bowman and Feng 2024 (arXiv 2404.13076) for self-preference.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics import student
from orchestrator.statistics.bradley_terry import fit_bradley_terry
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.student import degrees_of_freedom, variance_factor

_MAX_STEPS: Final = 200
_MAX_HALVINGS: Final = 30
_SETTLED: Final = 1e-9
_ROUNDING: Final = 1e-13
_RUNAWAY: Final = 40.0
_MAX_STEP: Final = 2.0


@dataclass(frozen=True, slots=True)
class JudgedPairs(Pairs):
    """n judgments of M models by J judges.

    Attributes:
        judge: Shape (n,), index of the judge.
        preference: Shape (n,), P(first is better) in [0, 1], a tie as 0.5.
        traits: Shape (J, M, K), 1 where a model has trait k in the eyes of a judge, else 0.
    """

    judge: Ints
    preference: Floats
    traits: Floats

    def __post_init__(self) -> None:
        if not np.all((self.preference >= 0.0) & (self.preference <= 1.0)):
            raise StatisticsError("preferences must be in [0, 1]; drop failed judgments")


@dataclass(frozen=True, slots=True)
class JudgeAwareFit:
    """Strengths, discriminations and favours of greatest likelihood.

    Attributes:
        strengths: Shape (M,), natural log, mean 0.
        discriminations: Shape (J,), mean 1.
        favours: Shape (J, K), log-odds; nan where a judge has no pair in which a trait differs.
        strength_errors: Shape (M,), standard errors over prompts.
        discrimination_errors: Shape (J,).
        favour_errors: Shape (J, K).
        dof: Degrees of freedom of the errors; 0 for fewer than two prompts.
    """

    strengths: Floats
    discriminations: Floats
    favours: Floats
    strength_errors: Floats
    discrimination_errors: Floats
    favour_errors: Floats
    dof: float

    def p_value(self, judge: int, trait: int) -> float:
        """Two-sided, of no favour; nan where there is none."""
        value, error = float(self.favours[judge, trait]), float(self.favour_errors[judge, trait])
        return student.p_value(value, error, self.dof)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Judgments summed by judge and pair of models: the log-odds are the same within a cell.

    Attributes:
        judge, first, second: Shape (C,).
        wins, counts: Shape (C,).
        traits: Shape (C, F), columns of the favours that are fitted.
        n_models: M.
        n_judges: J.
    """

    judge: Ints
    first: Ints
    second: Ints
    wins: Floats
    counts: Floats
    traits: Floats
    n_models: int
    n_judges: int

    def log_odds(self, at: Floats) -> Floats:
        """Shape (C,), at strengths, discriminations and favours."""
        m, j = self.n_models, self.n_judges
        gaps = at[self.first] - at[self.second]
        return at[m : m + j][self.judge] * gaps + self.traits @ at[m + j :]

    def slopes(self, at: Floats) -> Floats:
        """Derivatives of the log-odds by all parameters, shape (C, M + J + F)."""
        m, j, rows = self.n_models, self.n_judges, np.arange(len(self.judge))
        result = np.zeros((len(rows), m + j))
        sharp = at[m : m + j][self.judge]
        result[rows, self.first] = sharp
        result[rows, self.second] = -sharp
        result[rows, m + self.judge] = at[self.first] - at[self.second]
        return np.hstack([result, self.traits])

    def loss(self, at: Floats) -> float:
        """Negative log-likelihood."""
        odds = self.log_odds(at)
        return float((self.counts * np.logaddexp(0.0, odds) - self.wins * odds).sum())

    def informed(self, at: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return P(first wins) of each cell, slopes, and Fisher's and the observed information.

        In both the shift of the strengths and the scale of the judges are fixed.
        """
        m, j = self.n_models, self.n_judges
        chance, slopes = scipy.special.expit(self.log_odds(at)), self.slopes(at)
        weights = self.counts * chance * (1.0 - chance)
        expected: Floats = slopes.T @ (weights[:, None] * slopes)
        scale = max(float(np.trace(expected)) / len(expected), 1e-300)
        expected[:m, :m] += scale / m
        expected[m : m + j, m : m + j] += scale / j
        # The part that comes from second derivatives of the log-odds
        curved, surplus = np.zeros_like(expected), self.wins - self.counts * chance
        np.add.at(curved, (self.first, m + self.judge), surplus)
        np.add.at(curved, (self.second, m + self.judge), -surplus)
        return chance, slopes, expected, expected - (curved + curved.T)


def fit_judge_aware(pairs: JudgedPairs) -> JudgeAwareFit | None:
    """Return the fit of greatest likelihood; None where there is none.

    There is none for fewer than two judges, where models are not connected by wins and losses,
    where there are too few models and judges to tell favour from quality (J (M - 1) differences for
    M - 1 strengths, J - 1 discriminations and the favours), or where these decide every pair.
    """
    n_judges, n_models, n_traits = pairs.traits.shape
    seen = np.unique(pairs.judge)
    if len(seen) < 2:
        return None
    cells, cell_of, fitted = _cells(pairs)
    wins = np.zeros((n_models, n_models))
    np.add.at(wins, (cells.first, cells.second), cells.wins)
    np.add.at(wins, (cells.second, cells.first), cells.counts - cells.wins)
    pooled = fit_bradley_terry(wins)
    if not pooled.anchored.all():
        return None
    start = np.concatenate([pooled.strengths, np.ones(n_judges), np.zeros(len(fitted))])
    # All but the shift of the strengths and the scale of the judges must be told by the data: each
    # judge gives M - 1 differences, for strengths, discriminations and favours together.
    if np.linalg.matrix_rank(cells.slopes(start)) < len(start) - 2:
        return None
    found = _maximum(cells, start)
    if found is None:
        return None
    errors, dof = _errors(pairs, cells, cell_of, found)
    begin = n_models + n_judges
    favours, favour_errors = np.full((2, n_judges, n_traits), np.nan)
    for place, (judge, trait) in enumerate(fitted):
        favours[judge, trait] = found[begin + place]
        favour_errors[judge, trait] = errors[begin + place]
    return JudgeAwareFit(
        found[:n_models] - found[:n_models].mean(),
        found[n_models:begin],
        favours,
        errors[:n_models],
        errors[n_models:begin],
        favour_errors,
        dof,
    )


def _cells(pairs: JudgedPairs) -> tuple[_Cells, Ints, list[tuple[int, int]]]:
    """Sums by judge and pair, the cell of each judgment, and the favours that are fitted."""
    n_judges, n_models, n_traits = pairs.traits.shape
    swap = pairs.first > pairs.second
    low, high = np.where(swap, (pairs.second, pairs.first), (pairs.first, pairs.second))
    code = (pairs.judge * n_models + low) * n_models + high
    known, cell_of = np.unique(code, return_inverse=True)
    judge, both = np.divmod(known, n_models**2)
    first, second = np.divmod(both, n_models)
    won = np.where(swap, 1.0 - pairs.preference, pairs.preference)
    wins = np.bincount(cell_of, won).astype(np.float64)
    counts = np.bincount(cell_of).astype(np.float64)
    columns, fitted = [], []
    for who in range(n_judges):
        for trait in range(n_traits):
            has = pairs.traits[who, :, trait]
            column = np.where(judge == who, has[first] - has[second], 0.0)
            if column.any():
                columns.append(column)
                fitted.append((who, trait))
    traits = np.column_stack(columns) if columns else np.empty((len(known), 0))
    cells = _Cells(judge, first, second, wins, counts, traits, n_models, n_judges)
    return cells, cell_of.astype(np.int64), fitted


def _maximum(cells: _Cells, start: Floats) -> Floats | None:
    """Newton's steps, halved where needed, from a start; None where they do not settle.

    Away from the maximum, where the observed information may be indefinite, Fisher's takes its
    place.
    """
    at = start
    for _ in range(_MAX_STEPS):
        chance, slopes, expected, observed = cells.informed(at)
        slope = (cells.wins - cells.counts * chance) @ slopes
        is_bowl = bool(np.linalg.eigvalsh(observed)[0] > 0.0)
        try:
            step = np.linalg.solve(observed if is_bowl else expected, slope)
        except np.linalg.LinAlgError:
            return None
        size = float(np.abs(step).max())
        step *= min(1.0, _MAX_STEP / max(size, _MAX_STEP))
        # Near the optimum a step gains less than sums of so many numbers can tell.
        allowed, length = cells.loss(at) * (1.0 + _ROUNDING), 1.0
        for _ in range(_MAX_HALVINGS):
            if cells.loss(at + length * step) <= allowed:
                break
            length *= 0.5
        at = at + length * step
        m, j = cells.n_models, cells.n_judges
        mean = float(at[m : m + j].mean())
        if not mean > 0.0:
            return None
        # The same log-odds with discriminations of mean 1
        at = np.concatenate([at[:m] * mean, at[m : m + j] / mean, at[m + j :]])
        if not np.abs(cells.log_odds(at)).max() < _RUNAWAY:
            return None
        if size <= _SETTLED:
            return at
    return None


def _errors(pairs: JudgedPairs, cells: _Cells, cell_of: Ints, at: Floats) -> tuple[Floats, float]:
    """Prompt-clustered sandwich errors, and their degrees of freedom."""
    chance, slopes, _, observed = cells.informed(at)
    bread = np.linalg.inv(observed)
    swap = pairs.first > pairs.second
    won = np.where(swap, 1.0 - pairs.preference, pairs.preference)
    n_prompts, n_cells = int(pairs.prompts.max()) + 1, len(cells.judge)
    place = pairs.prompts * n_cells + cell_of
    surplus = np.bincount(place, won - chance[cell_of], minlength=n_prompts * n_cells)
    moves = surplus.reshape(n_prompts, n_cells) @ slopes @ bread
    sizes = np.bincount(pairs.prompts, minlength=n_prompts).astype(np.float64)[:, None]
    dof = float(degrees_of_freedom(sizes)[0])
    errors = np.linalg.norm(moves, axis=0) * math.sqrt(float(variance_factor(sizes)[0]))
    return np.where(dof > 0, errors, np.nan), dof
