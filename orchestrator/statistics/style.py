"""Bradley-Terry strengths at equal style: features of the two answers in the same regression.

    logit P(first beats second) = strength_first - strength_second + sum_k effect_k z_k

z_k is the difference of a feature of the two answers. Source: Li, Angelopoulos and Chiang 2024,
"Does style matter? Disentangling style and substance in Chatbot Arena" (LMSYS), and
Arena-Hard-Auto. Unlike theirs, the fit has no ridge penalty, preferences are soft, z is not centred
(which side an answer is on has no meaning), and errors are over prompts instead of battles.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.statistics import student
from orchestrator.statistics.degrees import degrees_of_freedom, variance_factor
from orchestrator.statistics.results import Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_OWN: Final = 1e-6
"""Share of a feature's variance of its own, under which its effect can't be told from the rest."""

LEAST_PROMPTS: Final = 5
"""Prompts on which answers must differ in a feature for its effect to be fitted."""

_MAX_STEP: Final = 2.0
_MAX_STEPS: Final = 60
_SETTLED_WITH_STYLE: Final = 1e-10
# Log-odds of a judged pair beyond which the fit runs away: some combination of models and style
# decides every pair.
_RUNAWAY: Final = 40.0


@dataclass(frozen=True, slots=True)
class StyledPairs:
    """n judged pairs of answers of M models.

    Attributes:
        prompts: Shape (n,), prompt or cluster of prompts of each pair, from 0 on.
        first: Shape (n,), index of one model.
        second: Shape (n,), index of the other.
        preference: Shape (n,), P(first is better) in [0, 1], a tie as 0.5.
        features: Shape (n, K), differences of K features, first minus second in some form.
        n_models: M.
    """

    prompts: Ints
    first: Ints
    second: Ints
    preference: Floats
    features: Floats
    n_models: int

    def __post_init__(self) -> None:
        if not np.all((self.preference >= 0.0) & (self.preference <= 1.0)):
            raise StatisticsError("preferences must be in [0, 1]; drop failed judgments")
        if not np.isfinite(self.features).all():
            raise StatisticsError("features must be finite; drop pairs without them")

    def spreads(self) -> Floats:
        """Root mean squares of the features, shape (K,); the unit of their effects."""
        result: Floats = np.sqrt((self.features**2).mean(axis=0))
        return result

    def n_prompts_differing(self) -> Ints:
        """Prompts with a pair that differs in each feature, shape (K,)."""
        differ = self.features != 0.0
        found = [np.unique(self.prompts[column]).size for column in differ.T]
        return np.array(found, dtype=np.int64)

    def own_shares(self) -> Floats:
        """Share of each feature's mean square that nothing else explains, shape (K,).

        Explained is what is the same in all pairs of the same two models, and what the other
        features explain of the rest. Near 0 the effect can't be told from theirs.
        """
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        pair = low * self.n_models + high
        signed = self.features * np.where(self.first == low, 1.0, -1.0)[:, None]
        n = np.bincount(pair)
        means = np.array([np.bincount(pair, column) for column in signed.T]) / np.maximum(n, 1)
        left = signed - means.T[pair]
        shares = np.zeros(signed.shape[1])
        for k, column in enumerate(left.T):
            total = float((self.features[:, k] ** 2).sum())
            others = np.delete(left, k, axis=1)
            rest = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
            shares[k] = float((rest**2).sum()) / total if total else 0.0
        return shares


@dataclass(frozen=True, slots=True)
class StyleFit:
    """Strengths and effects fitted together.

    Attributes:
        strengths: Shape (M,), natural log, mean 0.
        effects: Shape (K,), log-odds for a difference of one spread (root mean square).
        moves: Shape (n_prompts, M + K): by how much each prompt moves the strengths and effects;
            the root of a column's sum of squares is its standard error.
        dof: Shape (M + K,), degrees of freedom of the errors; 0 where there is none.
    """

    strengths: Floats
    effects: Floats
    moves: Floats
    dof: Floats

    def errors(self) -> Floats:
        """Standard errors of strengths and effects over prompts, shape (M + K,); nan for none."""
        return _errors(self.moves, self.dof)

    def interval(self, at: int, level: float) -> Interval | None:
        """The interval of a strength (`at` below M) or of an effect; None for fewer than 2 prompts.

        Prompt-clustered sandwich error and Student's t.
        """
        value = np.concatenate([self.strengths, self.effects])[at]
        error, dof = float(self.errors()[at]), float(self.dof[at])
        return student.interval_around(float(value), error, dof, level)

    def p_value(self, effect: int) -> float:
        """Two-sided, of no effect of a feature; nan for fewer than 2 prompts."""
        at = len(self.strengths) + effect
        error, dof = float(self.errors()[at]), float(self.dof[at])
        return student.p_value(float(self.effects[effect]), error, dof)

    def change_from(
        self, plain: "StyleFit", model: int, level: float
    ) -> tuple[float, Interval | None]:
        """This strength minus the one fitted without features, and the interval of the change."""
        gap = float(self.strengths[model] - plain.strengths[model])
        moves = (self.moves[:, model] - plain.moves[:, model])[:, None]
        dof = self.dof[model : model + 1]
        error = float(_errors(moves, dof)[0])
        return gap, student.interval_around(gap, error, float(dof[0]), level)


def fit_style(pairs: StyledPairs) -> StyleFit | None:
    """Return strengths and effects of greatest likelihood; None where there is none.

    There is none without models, where models are not connected by wins and losses, or where
    models and style together decide every pair. Features must vary of their own
    (`StyledPairs.own_shares`).
    """
    n_models = pairs.n_models
    if not n_models:
        return None
    scaled = pairs.features / pairs.spreads() if pairs.features.shape[1] else pairs.features
    found = np.zeros(n_models + scaled.shape[1])
    for _ in range(_MAX_STEPS):
        chance = scipy.special.expit(_log_odds(pairs, scaled, found))
        surplus = pairs.preference - chance
        information = _grounded(_information(pairs, scaled, chance * (1.0 - chance)), n_models)
        slope = _by_parameter(pairs, scaled, surplus)
        try:
            step = np.linalg.solve(information, slope)
        except np.linalg.LinAlgError:
            return None
        size = float(np.abs(step).max(initial=0.0))
        found += step * min(1.0, _MAX_STEP / max(size, _MAX_STEP))
        if not np.abs(_log_odds(pairs, scaled, found)).max(initial=0.0) < _RUNAWAY:
            return None
        if size <= _SETTLED_WITH_STYLE:
            return _with_errors(pairs, scaled, found)
    return None


def _with_errors(pairs: StyledPairs, scaled: Floats, found: Floats) -> StyleFit:
    n_models, n_prompts = pairs.n_models, int(pairs.prompts.max(initial=-1)) + 1
    chance = scipy.special.expit(_log_odds(pairs, scaled, found))
    bread = np.linalg.inv(_grounded(_information(pairs, scaled, chance * (1.0 - chance)), n_models))
    surplus = pairs.preference - chance
    models = _by_prompt_and_model(pairs, surplus, -surplus, n_prompts)
    moves = np.hstack([models, _by_prompt(pairs, surplus[:, None] * scaled, n_prompts)]) @ bread
    sizes = np.bincount(pairs.prompts, minlength=n_prompts).astype(np.float64)[:, None]
    # A prompt says of an effect as much as its pairs differ in the feature.
    says = _by_prompt(pairs, scaled**2, n_prompts)
    factors = np.concatenate([np.tile(variance_factor(sizes), n_models), variance_factor(says)])
    ones = np.ones(len(surplus))
    counts = _by_prompt_and_model(pairs, ones, ones, n_prompts)
    dof = degrees_of_freedom(np.hstack([counts, says]))
    strengths = found[:n_models] - found[:n_models].mean()
    return StyleFit(strengths, found[n_models:], moves * np.sqrt(factors), dof)


def _errors(moves: Floats, dof: Floats) -> Floats:
    result: Floats = np.where(dof > 0, np.linalg.norm(moves, axis=0), np.nan)
    return result


def _log_odds(pairs: StyledPairs, scaled: Floats, found: Floats) -> Floats:
    strengths, effects = found[: pairs.n_models], found[pairs.n_models :]
    result: Floats = strengths[pairs.first] - strengths[pairs.second] + scaled @ effects
    return result


def _by_parameter(pairs: StyledPairs, scaled: Floats, values: Floats) -> Floats:
    """Sums of a value of each pair times its signs of models and its features, shape (M + K,)."""
    return np.concatenate([_by_model(pairs, values), values @ scaled])


def _by_model(pairs: StyledPairs, values: Floats) -> Floats:
    won = np.bincount(pairs.first, values, minlength=pairs.n_models)
    return (won - np.bincount(pairs.second, values, minlength=pairs.n_models)).astype(np.float64)


def _information(pairs: StyledPairs, scaled: Floats, weights: Floats) -> Floats:
    """Weighted products of the columns of models and features, shape (M + K, M + K)."""
    n_models, n_features = pairs.n_models, scaled.shape[1]
    result = np.zeros((n_models + n_features, n_models + n_features))
    met = np.bincount(
        pairs.first * n_models + pairs.second, weights, minlength=n_models**2
    ).reshape(n_models, n_models)
    met = met + met.T
    result[:n_models, :n_models] = np.diag(met.sum(axis=1)) - met
    for k in range(n_features):
        weighted = weights * scaled[:, k]
        result[n_models + k] = _by_parameter(pairs, scaled, weighted)
        result[:n_models, n_models + k] = result[n_models + k, :n_models]
    return result


def _grounded(information: Floats, n_models: int) -> Floats:
    """The matrix with the common shift of the strengths fixed at 0."""
    result = information.copy()
    scale = np.trace(information[:n_models, :n_models]) / n_models**2
    result[:n_models, :n_models] += scale
    return result


def _by_prompt(pairs: StyledPairs, values: Floats, n_prompts: int) -> Floats:
    """Columns of values of the pairs added up by prompt, shape (n_prompts, columns)."""
    sums = [np.bincount(pairs.prompts, column, minlength=n_prompts) for column in values.T]
    return np.array(sums, dtype=np.float64).reshape(len(sums), n_prompts).T


def _by_prompt_and_model(
    pairs: StyledPairs, of_first: Floats, of_second: Floats, n_prompts: int
) -> Floats:
    size, begin = n_prompts * pairs.n_models, pairs.prompts * pairs.n_models
    result = np.bincount(begin + pairs.first, of_first, minlength=size)
    result += np.bincount(begin + pairs.second, of_second, minlength=size)
    return result.reshape(n_prompts, pairs.n_models).astype(np.float64)
