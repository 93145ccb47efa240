"""Bradley-Terry strengths from soft wins: P(i beats j) = sigmoid(s_i - s_j), and at equal style.

The maximum likelihood estimate exists only where the win graph is strongly connected (Ford 1957,
doi:10.2307/2308513; Hunter 2004, doi:10.1214/aos/1079120141). Elsewhere this says who is out of
reach instead of returning a large number that depends on when the iteration stopped.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from orchestrator.errors import StatisticsError
from orchestrator.records import Bools, Floats, Ints
from orchestrator.statistics import student
from orchestrator.statistics.prompt_sums import Pairs
from orchestrator.statistics.results import Interval
from orchestrator.statistics.student import degrees_of_freedom, variance_factor

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
class BradleyTerryFit:
    """Fit of a win matrix of M models.

    Attributes:
        strengths: Shape (M,), natural log; +inf (-inf): above (below) every model that the data
            can place; nan: not comparable with them.
        anchored: Shape (M,), bool: in the largest group in which everyone can be placed. Finite
            strengths are exactly these, and have mean 0; where it is all, the maximum likelihood
            estimate exists.
        converged: Whether the fit settled.
        n_iterations: Newton steps taken.
    """

    strengths: Floats
    anchored: Bools
    converged: bool
    n_iterations: int


def to_elo(strengths: Floats) -> Floats:
    """Strengths on the Elo scale: 400/ln(10) points a unit, mean 1000."""
    return ELO_MEAN + ELO_SCALE * strengths


def fit_bradley_terry(wins: Floats) -> BradleyTerryFit:
    """Fit a win matrix by damped Newton steps.

    `wins` have shape (M, M): real-valued wins of row over column, a tie half to each.

    Raises:
        StatisticsError: If `wins` has another shape, or a negative or non-finite entry.
    """
    if wins.ndim != 2 or wins.shape[0] != wins.shape[1]:
        raise StatisticsError(f"a win matrix needs shape (M, M), got {wins.shape}")
    if not np.all(np.isfinite(wins)) or np.any(wins < 0):
        raise StatisticsError("wins must be finite and not negative")
    anchored, outside = _place(wins > NEGLIGIBLE_SHARE * (wins + wins.T))
    within = np.where(anchored[:, None] & anchored, wins, 0.0)
    fitted, residual, n_iterations = _maximum(within, anchored)
    # Newton leaves the common shift free.
    fitted -= fitted[anchored].sum() / max(int(anchored.sum()), 1)
    converged = residual <= _TOLERANCE
    strengths = np.where(anchored, fitted if converged else np.nan, outside)
    return BradleyTerryFit(strengths, anchored, converged, n_iterations)


def describe_gaps(wins: Floats, strengths: Floats, models: Sequence[str]) -> tuple[str, ...]:
    """Plain sentences on models that have no finite rating, from one matrix and its strengths.

    `wins` have shape (M, M), `strengths` (M,), as fitted to them.
    """
    compared = wins + wins.T > 0
    names = np.asarray(list(models), dtype=object)
    alone = ~compared.any(axis=1)
    sentences = [f"{name} has no comparison" for name in names[alone]]
    # The first of the models that each is connected with, of those with a comparison.
    group = np.where(_reach(compared), np.arange(len(names)), len(names)).min(
        axis=1, initial=len(names)
    )
    groups = np.unique(group[~alone])
    if len(groups) > 1:
        listed = " | ".join(", ".join(names[group == first]) for first in groups)
        sentences.append(f"not compared with each other, directly or through others: {listed}")
    for end, verb, side in ((np.inf, "won", "upper"), (-np.inf, "lost", "lower")):
        if beyond := ", ".join(names[strengths == end]):
            sentences.append(
                f"{beyond} {verb} every comparison with the others: the rating has no {side} bound"
            )
    unplaced = ", ".join(names[np.isnan(strengths) & ~alone])
    if unplaced and len(groups) <= 1:
        sentences.append(
            f"{unplaced}: no rating, as they lost everything to models above them and won "
            f"everything against models below"
        )
    return tuple(sentences)


def _place(beats: Bools) -> tuple[Bools, Floats]:
    """Find the models with a finite strength, shape (M,); give +inf, -inf or nan for others."""
    reach = _reach(beats)
    sizes = (reach & reach.T).sum(axis=1)
    anchor = int(sizes.argmax()) if sizes.size else 0
    # Two groups of the same size: neither is the one by which the other is measured.
    is_unique = bool((sizes == sizes.max(initial=0)).sum() == sizes.max(initial=0)) and sizes.size
    above: Bools = np.asarray(reach[:, anchor] if is_unique else reach.all(axis=1))
    below: Bools = np.asarray(reach[anchor] if is_unique else reach.all(axis=0))
    outside = np.full(sizes.shape, np.nan)
    outside[above & ~below] = np.inf
    outside[below & ~above] = -np.inf
    return above & below if is_unique else np.zeros_like(above), outside


def _reach(edges: Bools) -> Bools:
    """Return the pairs (i, j) with a path of edges from i to j, i = j included; shape (M, M)."""
    reach: Bools = edges | np.eye(len(edges), dtype=np.bool_)
    for _ in range(max(1, math.ceil(math.log2(max(len(edges), 2))))):
        steps = reach.astype(np.float32)
        reach = steps @ steps > 0
    return reach


def _maximum(wins: Floats, anchored: Bools) -> tuple[Floats, float, int]:
    """Strengths (M,) up to a shift, the residual, and the steps taken.

    The residual is the largest |wins - expected wins| of a model, over its comparisons, before the
    last step.
    """
    theta = np.zeros(anchored.shape)
    if anchored.sum() < 2:
        return theta, 0.0, 0
    totals = wins + wins.T
    played = np.maximum(totals.sum(axis=1), 1e-300)
    residual = math.inf
    for step in range(1, _MAX_ITERATIONS + 1):
        expected = 1.0 / (1.0 + np.exp(theta - theta[:, None]))
        gradient = (wins - totals * expected).sum(axis=1)
        residual = float((np.abs(gradient) / played).max())
        laplacian = laplacian_of(totals * expected * (1.0 - expected))
        change = np.where(anchored, np.linalg.solve(grounded(laplacian, anchored), gradient), 0.0)
        change *= min(1.0, _MAX_STEP / max(float(np.abs(change).max()), _MAX_STEP))
        theta += change
        # Near the solution a step squares the error, so the residual is not checked after the last.
        if np.abs(change).max() <= _SETTLED and residual <= _TOLERANCE:
            return theta, residual, step
    return theta, residual, _MAX_ITERATIONS


def laplacian_of(weights: Floats) -> Floats:
    """The Laplacian of symmetric weights between models, shape (M, M) both."""
    result = -weights
    np.fill_diagonal(result, 0.0)
    np.fill_diagonal(result, -result.sum(axis=1))
    return result


def grounded(laplacian: Floats, anchored: Bools) -> Floats:
    """A Laplacian (M, M) made invertible: the shift is fixed, models outside are cut off."""
    inside = anchored.astype(np.float64)
    scale = max(float(np.trace(laplacian)) / max(inside.sum(), 1.0) ** 2, 1e-300)
    result: Floats = laplacian + scale * np.outer(inside, inside) + np.diag(1.0 - inside)
    return result


# Bradley-Terry strengths at equal style: features of the two answers in the same regression.
#
#     logit P(first beats second) = strength_first - strength_second + sum_k effect_k z_k
#
# z_k is the difference of a feature of the two answers. Source: Li, Angelopoulos and Chiang 2024,
# "Does style matter? Disentangling style and substance in Chatbot Arena" (LMSYS), and
# Arena-Hard-Auto. Unlike theirs, the fit has no ridge penalty, preferences are soft, z is not
# centred (which side an answer is on has no meaning), and errors are over prompts instead of
# battles.


LEAST_OWN: Final = 1e-6
"""Share of a feature's variance of its own, under which its effect can't be told from the rest."""

LEAST_PROMPTS: Final = 5
"""Prompts on which answers must differ in a feature for its effect to be fitted."""

_MAX_STEPS: Final = 60
_CHUNK_ROWS: Final = 2**15
_SETTLED_WITH_STYLE: Final = 1e-10
# Log-odds of a judged pair beyond which the fit runs away: some combination of models and style
# decides every pair.
_RUNAWAY: Final = 40.0


@dataclass(frozen=True, slots=True)
class StyledPairs(Pairs):
    """Judged pairs of answers.

    Attributes:
        preference: Shape (n,), P(first is better) in [0, 1], a tie as 0.5.
        features: Shape (n, K), differences of K features, first minus second in some form.
    """

    preference: Floats
    features: Floats

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
        pair = np.minimum(self.first, self.second) * self.n_models
        pair += np.maximum(self.first, self.second)
        n, sign = np.maximum(np.bincount(pair), 1), np.where(self.first <= self.second, 1.0, -1.0)
        means = np.stack([np.bincount(pair, column * sign) / n for column in self.features.T], -1)
        # The triangle of a QR decomposition has the same sums of products as all its rows: they go
        # into it some thousand at a time.
        left = np.zeros((0, self.features.shape[1]))
        for begin in range(0, len(pair), _CHUNK_ROWS):
            part = slice(begin, begin + _CHUNK_ROWS)
            rows = self.features[part] * sign[part, None] - means[pair[part]]
            left = np.asarray(np.linalg.qr(np.concatenate([left, rows]), mode="r"))
        shares = np.zeros(left.shape[1])
        # What rounding of so many rows leaves is no rank.
        nothing = float(np.finfo(np.float64).eps) * max(self.features.shape)
        for k, column in enumerate(left.T):
            total = float((self.features[:, k] ** 2).sum())
            others = np.delete(left, k, axis=1)
            rest = column - others @ np.linalg.lstsq(others, column, rcond=nothing)[0]
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
    found, odds = np.zeros(n_models + scaled.shape[1]), np.zeros(len(scaled))
    for _ in range(_MAX_STEPS):
        chance = scipy.special.expit(odds)
        surplus = pairs.preference - chance
        information = _information(pairs, scaled, chance * (1.0 - chance))
        try:
            slope = np.concatenate([_by_model(pairs, surplus), surplus @ scaled])
            step = np.linalg.solve(information, slope)
        except np.linalg.LinAlgError:
            return None
        size = float(np.abs(step).max(initial=0.0))
        found += step * min(1.0, _MAX_STEP / max(size, _MAX_STEP))
        odds = found[pairs.first] - found[pairs.second] + scaled @ found[n_models:]
        if not np.abs(odds).max(initial=0.0) < _RUNAWAY:
            return None
        if size <= _SETTLED_WITH_STYLE:
            return _with_errors(pairs, scaled, found, scipy.special.expit(odds))
    return None


def _by_model(pairs: StyledPairs, values: Floats) -> Floats:
    """Sum values of pairs, shape (n,), by first model, less those by second: shape (M,)."""
    won = np.bincount(pairs.first, values, minlength=pairs.n_models)
    return (won - np.bincount(pairs.second, values, minlength=pairs.n_models)).astype(np.float64)


def _information(pairs: StyledPairs, scaled: Floats, weights: Floats) -> Floats:
    """Weighted products of the columns of models and features, shape (M + K, M + K).

    The common shift of the strengths is fixed at 0.
    """
    n_models = pairs.n_models
    at = pairs.first * n_models + pairs.second
    met = np.bincount(at, weights, minlength=n_models**2).reshape(n_models, n_models)
    models = laplacian_of((met + met.T).astype(np.float64))
    models += np.trace(models) / n_models**2
    # Column by column: all weighted features together would be as large as the features.
    weighted = (weights * column for column in scaled.T)
    rows = np.array([np.concatenate([_by_model(pairs, one), one @ scaled]) for one in weighted])
    styles = rows.reshape(scaled.shape[1], n_models + scaled.shape[1])
    return np.block([[models, styles[:, :n_models].T], [styles]])


def _with_errors(pairs: StyledPairs, scaled: Floats, found: Floats, chance: Floats) -> StyleFit:
    n_models, n_prompts = pairs.n_models, int(pairs.prompts.max(initial=-1)) + 1
    bread = np.linalg.inv(_information(pairs, scaled, chance * (1.0 - chance)))
    surplus, begin, n_cells = (
        pairs.preference - chance,
        pairs.prompts * n_models,
        n_prompts * n_models,
    )
    models = np.bincount(begin + pairs.first, surplus, minlength=n_cells)
    models -= np.bincount(begin + pairs.second, surplus, minlength=n_cells)
    met = np.bincount(begin + pairs.first, minlength=n_cells)
    met += np.bincount(begin + pairs.second, minlength=n_cells)

    def by_prompt(columns: Iterable[Floats]) -> Floats:
        sums = [np.bincount(pairs.prompts, one, minlength=n_prompts) for one in columns]
        return np.array(sums, dtype=np.float64).reshape(len(sums), n_prompts).T

    styles = by_prompt(surplus * column for column in scaled.T)
    moves = np.hstack([models.reshape(n_prompts, n_models), styles]) @ bread
    sizes = np.bincount(pairs.prompts, minlength=n_prompts).astype(np.float64)[:, None]
    # A prompt says of an effect as much as its pairs differ in the feature.
    says = by_prompt(np.square(column) for column in scaled.T)
    factors = np.concatenate([np.tile(variance_factor(sizes), n_models), variance_factor(says)])
    dof = degrees_of_freedom(np.hstack([met.reshape(n_prompts, n_models), says]))
    strengths = found[:n_models] - found[:n_models].mean()
    return StyleFit(strengths, found[n_models:], moves * np.sqrt(factors), dof)


def _errors(moves: Floats, dof: Floats) -> Floats:
    return np.where(dof > 0, np.linalg.norm(moves, axis=0), np.nan)
