"""Ratings of models, which of them can be told apart, and ratings while judgments still come.

One test decides on each pair of models (`field`, `bounded_mean`), all pairs together (`multiple`).
Intervals are its inversion, and ranks count its decisions: no two of them can contradict each
other. `docs/statistics.md` says why, and how often they hold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.records import Bools, Floats, Ints, Standing
from orchestrator.statistics import student
from orchestrator.statistics.bounded_mean import least_units
from orchestrator.statistics.bradley_terry import (
    ELO_SCALE,
    describe_gaps,
    fit_bradley_terry,
    grounded,
    laplacian_of,
    to_elo,
)
from orchestrator.statistics.field import EQUAL, Field, field_of
from orchestrator.statistics.multiple import adjusted
from orchestrator.statistics.prompt_sums import PromptSums
from orchestrator.statistics.results import Estimate, checked_level, interval_or_none
from orchestrator.statistics.student import N_POWERS, factor_from_powers, from_powers

METHOD: Final = "Bradley-Terry; intervals by Gaffke's test of bounded means over prompts"


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings of M models; arrays of shape (M,) unless said otherwise.

    Attributes:
        values: Elo scale, mean 1000 over the models that can be placed; +inf (-inf) where a model
            is out of reach above (below), nan where it cannot be compared.
        low: Lower bounds; -inf is open; nan where there is no interval.
        high: Upper bounds; +inf is open; nan where there is no interval.
        rank: 1 for the best; equal ratings share the better rank; 0 where it cannot be ranked.
        rank_low: One more than the number of models that are better, all pairs decided together.
        rank_high: The number of ranked models less those that are worse, likewise.
        p_values: Shape (M, M), two-sided, of no difference; nan where there is no test.
        adjusted: Shape (M, M), of all pairs together.
        errors: Shape (M, M), one minus the level at which the interval of a difference leaves out
            0 exactly where the two can be told apart.
        better: Shape (M, M), whether the row's model is better than the column's.
        n_prompts: Prompts on which the model was compared; clusters where prompts belong together.
        confidence_level: Of the intervals of ratings, and of all pairs together.
        field: What is behind the tests.
        notes: Plain sentences on what is open or undefined.
    """

    values: Floats
    low: Floats
    high: Floats
    rank: Ints
    rank_low: Ints
    rank_high: Ints
    p_values: Floats
    adjusted: Floats
    errors: Floats
    better: Bools
    n_prompts: Ints
    confidence_level: float
    field: Field
    notes: tuple[str, ...]

    def differences(
        self, first: Ints, second: Ints, errors: Floats | None = None
    ) -> list[Estimate]:
        """Return the differences of P pairs of models, `first` minus `second`, in Elo points.

        They may be infinite, or nan where two cannot be compared. Indices of models have shape
        (P,); so have `errors`, one minus the level of each interval, None for that at which it says
        what is decided on all pairs.
        """
        errors = self.errors[first, second] if errors is None else errors
        with np.errstate(invalid="ignore"):
            gaps = self.values[first] - self.values[second]
        n = np.minimum(self.n_prompts[first], self.n_prompts[second])
        tested = ~np.isnan(self.p_values[first, second]) & ~np.isnan(errors)
        known = np.flatnonzero(tested & (n >= least_units(1.0 - self.confidence_level)))
        low, high = np.full(gaps.shape, np.nan), np.full(gaps.shape, np.nan)
        low[known], high[known] = self.field.differences(first[known], second[known], errors[known])
        columns = (gaps, ELO_SCALE * low, ELO_SCALE * high, 1.0 - errors, n)
        return [
            Estimate(gap, interval_or_none(a, b, level), n_prompts, METHOD)
            for gap, a, b, level, n_prompts in zip(*(one.tolist() for one in columns), strict=True)
        ]


def rate(sums: PromptSums, models: Sequence[str], *, confidence_level: float) -> Ratings:
    """Ratings from judgments per prompt and pair.

    Some models may have no judgments; their names are for the notes.

    Raises:
        StatisticsError: If the names do not fit, or the level is not in (0, 1).
    """
    level = checked_level(confidence_level)
    n_models = sums.n_models
    if len(models) != n_models:
        raise StatisticsError(f"{len(models)} names for {n_models} models")
    wins = sums.win_matrix
    fit = fit_bradley_terry(wins)
    strengths = fit.strengths
    field = field_of(sums, strengths)
    places = field.places()
    with np.errstate(invalid="ignore"):
        gaps = places[:, None] - places[None, :]
    # One more than the number of better models; 0 where a model cannot be ranked.
    rank = np.where(np.isnan(places), 0, 1 + (gaps.T > EQUAL).sum(axis=1)).astype(np.int64)
    p_values, together, errors = (np.full((n_models, n_models), np.nan) for _ in range(3))
    first, second = np.nonzero(np.triu(~np.isnan(gaps), 1))
    tested = field.p_values(first, second)
    n_prompts = (sums.model_counts > 0).sum(axis=0).astype(np.int64)
    tested[np.minimum(n_prompts[first], n_prompts[second]) < 2] = np.nan
    # Ratings that are equal cannot be told apart, whatever rounding says.
    tested = np.where(np.abs(gaps[first, second]) <= EQUAL, 1.0, tested)
    found = adjusted(tested, 1.0 - level, all_pairs_of=n_models)
    for matrix, values in ((p_values, tested), (together, found.p_values), (errors, found.errors)):
        matrix[first, second] = matrix[second, first] = values
    # Of "the row is better", with those that follow from two others: a model better than one that
    # is better than a third is better than that, also where their own comparisons are few.
    above = np.where(gaps > 0, together, np.nan)
    for between in range(n_models):
        above = np.fmin(above, np.maximum(above[:, between, None], above[None, between, :]))
    together = np.fmin(together, np.fmin(above, above.T))
    better = above <= 1.0 - level
    notes = list(describe_gaps(wins, strengths, models))
    if not fit.converged:
        notes.append(f"the fit stopped after {fit.n_iterations} steps without converging")
    return Ratings(
        to_elo(strengths),
        *_bounds(field, n_prompts, level),
        rank,
        1 + better.sum(axis=0),
        (rank > 0).sum() - better.sum(axis=1),
        p_values,
        together,
        errors,
        better,
        n_prompts,
        level,
        field,
        tuple(notes),
    )


def _bounds(field: Field, n_prompts: Ints, level: float) -> tuple[Floats, Floats]:
    """Bounds of ratings, nan for models with too few prompts, or without a rating."""
    low, high = np.full(n_prompts.shape, np.nan), np.full(n_prompts.shape, np.nan)
    known = np.flatnonzero(field.played() & (n_prompts >= least_units(1.0 - level)))
    low[known], high[known] = field.ratings(known, 1.0 - level)
    return to_elo(low), to_elo(high)


# Ratings while judgments still come: the sums that they need, in memory that does not grow.
#
# The sandwich covariance of Bradley-Terry strengths is linear in the second moments of each
# prompt's wins and counts, so these moments are all that is kept. Prompts that belong together are
# one cluster: its sums are kept until its last prompt has come. Ratings are those of `ratings.rate`
# over the same prompts. Widths are Student's, for orientation while a run goes on: the test of the
# final report needs every prompt's value, and decides nothing before.


# A variance that is this share of what it is summed from, or less, is rounding.
_ROUNDING: Final = 1e-13
# Prompts whose moments are added up at once: one by one they would cost ten times as much.
_TOGETHER: Final = 64


class Forming:
    """Sums of judgments of M models.

    Attributes:
        n_prompts: Prompts added so far that have a judgment.
        n_clusters: Clusters that they are in; as many where each prompt stands alone.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self.models = tuple(models)
        pairs = list(combinations(range(len(self.models)), 2))
        self._column = {pair: i for i, pair in enumerate(pairs)}
        self._first, self._second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self._sum = np.zeros(2 * len(pairs))
        self._moments = np.zeros((2 * len(pairs), 2 * len(pairs)))
        self._own = [
            (self._first == model) | (self._second == model) for model in range(len(self.models))
        ]
        # Of each model: prompts, clusters, and sums of powers of its comparisons by cluster.
        self._n_prompts = np.zeros(len(self.models), dtype=np.int64)
        self._n_clusters = np.zeros(len(self.models), dtype=np.int64)
        self._powers = np.zeros((N_POWERS, len(self.models)))
        self._of_all = np.zeros(N_POWERS)
        # Wins, then counts, of each pair: of clusters of which more may come, and of whole ones.
        self._open: dict[int, Floats] = {}
        self._whole: list[Floats] = []
        self.n_prompts = 0
        self.n_clusters = 0

    def add(
        self,
        judgments: Iterable[tuple[int, int, float]],
        cluster: int | None = None,
        *,
        is_new: bool = True,
    ) -> None:
        """All judgments of one prompt, each prompt once.

        Each judgment has indices of two models, and P(first beats second) in [0, 1]; a prompt that
        stands alone has no cluster. Where not `is_new`, the same was asked before, and it is not
        counted.
        """
        known = None if cluster is None else self._open.get(cluster)
        sums = np.zeros(self._sum.size) if known is None else known
        met: set[int] = set()
        for first, second, preference in judgments:
            is_ordered = first < second
            column = self._column[(first, second) if is_ordered else (second, first)]
            sums[column] += preference if is_ordered else 1.0 - preference
            sums[len(self._column) + column] += 1.0
            met.update((first, second))
        if not met:
            return
        self.n_prompts += is_new
        for model in met:
            self._n_prompts[model] += is_new
        self.n_clusters += known is None
        if cluster is None:
            self._end(sums)
        else:
            self._open[cluster] = sums

    def end_cluster(self, cluster: int) -> None:
        """No prompt of this cluster will come any more; it is forgotten."""
        found = self._open.pop(cluster, None)
        if found is not None:
            self._end(found)

    def _end(self, whole: Floats) -> None:
        """Keep a cluster of which all has come, until it is added up with others."""
        self._whole.append(whole)
        if len(self._whole) == _TOGETHER:
            self._add(np.stack(self._whole))
            self._whole.clear()

    def _add(self, values: Floats) -> None:
        """Add wins and counts of clusters, shape (C, 2 pairs)."""
        self._sum += values.sum(axis=0)
        self._moments += values.T @ values
        counts = values[:, len(self._column) :]
        for model, own in enumerate(self._own):
            sizes = counts[:, own].sum(axis=1)
            self._n_clusters[model] += (sizes > 0).sum()
            self._powers[:, model] += _powers(sizes)
        self._of_all += _powers(counts.sum(axis=1))

    def standings(self, confidence_level: float) -> list[Standing]:
        """The models, best first; those that can't be placed last.

        Raises:
            StatisticsError: If the level is not in (0, 1).
        """
        level = checked_level(confidence_level)
        # What has come of clusters that are not whole counts as it is, for now.
        names = ("_sum", "_moments", "_powers", "_of_all", "_n_clusters")
        kept = {name: getattr(self, name) for name in names}
        vars(self).update({name: part.copy() for name, part in kept.items()})
        if parts := [*self._whole, *self._open.values()]:
            self._add(np.stack(parts))
        try:
            return self._standings(level)
        finally:
            vars(self).update(kept)

    def _standings(self, level: float) -> list[Standing]:
        n_models, n_pairs = len(self.models), len(self._column)
        wins = np.zeros((n_models, n_models))
        wins[self._first, self._second] = self._sum[:n_pairs]
        wins[self._second, self._first] = self._sum[n_pairs:] - self._sum[:n_pairs]
        strengths = fit_bradley_terry(wins).strengths
        errors = self._errors(strengths)
        dof = from_powers(self._powers, self._n_clusters)
        quantiles = student.quantile(dof, level)
        widths = np.where(self._n_clusters > 1, quantiles * errors * ELO_SCALE, np.nan)
        found = zip(to_elo(strengths), self.models, widths, self._n_prompts, strict=True)
        return [
            Standing(
                model,
                float(rating) if np.isfinite(rating) else None,
                float(width) if np.isfinite(width) and np.isfinite(rating) else None,
                int(n),
            )
            for rating, model, width, n in sorted(
                found, key=lambda one: (np.isnan(one[0]), -one[0], one[1])
            )
        ]

    def _errors(self, strengths: Floats) -> Floats:
        """Standard errors by `field.influences`, from the moments; nan where there are none."""
        n_models, n_pairs = len(self.models), len(self._column)
        placed = np.isfinite(strengths)
        if self.n_clusters < 2 or placed.sum() < 2:
            return np.full(n_models, np.nan)
        theta = np.where(placed, strengths, 0.0)
        inside = (placed[self._first] & placed[self._second]).astype(np.float64)
        expected = 1.0 / (1.0 + np.exp(theta[self._second] - theta[self._first]))
        # A prompt's score is this matrix times its wins and counts.
        scores = np.zeros((n_models, 2 * n_pairs))
        columns = np.arange(n_pairs)
        scores[self._first, columns] = inside
        scores[self._second, columns] = -inside
        scores[:, n_pairs:] = -scores[:, :n_pairs] * expected
        information = self._sum[n_pairs:] * inside * expected * (1.0 - expected)
        weights = np.zeros((n_models, n_models))
        weights[self._first, self._second] = weights[self._second, self._first] = information
        bread = np.linalg.inv(grounded(laplacian_of(weights), placed))
        moved = bread @ scores
        variances = np.einsum("ik,kl,il->i", moved, self._moments, moved, optimize=True)
        summed = np.abs(moved)
        summed = np.einsum("ik,kl,il->i", summed, self._moments, summed, optimize=True)
        factor = factor_from_powers(self._of_all, np.array(self.n_clusters))
        is_known = placed & (variances > _ROUNDING * summed)
        return np.sqrt(np.where(is_known, variances * factor, np.nan))


def _powers(sizes: Floats) -> list[float]:
    return [float((sizes**k).sum()) for k in range(1, N_POWERS + 1)]
