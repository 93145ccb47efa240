"""Ratings of models, and which of them can be told apart.

One test decides on each pair of models (`field`, `bounded_mean`), all pairs together (`multiple`).
Intervals are its inversion, and ranks count its decisions: no two of them can contradict each
other. `docs/statistics.md` says why, and how often they hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.records import Bools, Floats, Ints
from orchestrator.statistics.bounded_mean import least_units
from orchestrator.statistics.bradley_terry import (
    ELO_SCALE,
    describe_gaps,
    fit_bradley_terry,
    to_elo,
)
from orchestrator.statistics.field import EQUAL, Field, field_of
from orchestrator.statistics.multiple import adjusted
from orchestrator.statistics.prompt_sums import PromptSums
from orchestrator.statistics.results import Interval, checked_level, interval_or_none

METHOD: Final = "Bradley-Terry; intervals by Gaffke's test of bounded means over prompts"


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two ratings, in Elo points.

    Attributes:
        value: Difference; may be infinite, or nan where the two cannot be compared.
        interval: At its own level; None where there is none.
        p_value: Two-sided, of no difference, not adjusted; nan where there is none.
    """

    value: float
    interval: Interval | None
    p_value: float


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

    def difference(self, first: int, second: int, level: float | None = None) -> Difference:
        """Return `first` minus `second`.

        Without a level, at that at which it says what is decided on all pairs.
        """
        error = None if level is None else np.full(1, 1.0 - level)
        (found,) = self.differences(np.array([first]), np.array([second]), error)
        return found

    def differences(
        self, first: Ints, second: Ints, errors: Floats | None = None
    ) -> list[Difference]:
        """Return the differences of P pairs of models, `first` minus `second`.

        Indices of models have shape (P,); so have `errors`, one minus the level of each interval,
        None for that at which it says what is decided on all pairs.
        """
        errors = self.errors[first, second] if errors is None else errors
        with np.errstate(invalid="ignore"):
            gaps = self.values[first] - self.values[second]
        few = np.minimum(self.n_prompts[first], self.n_prompts[second]) < least_units(
            1.0 - self.confidence_level
        )
        p_values = self.p_values[first, second]
        known = np.flatnonzero(~np.isnan(p_values) & ~np.isnan(errors) & ~few)
        low, high = np.full(gaps.shape, np.nan), np.full(gaps.shape, np.nan)
        low[known], high[known] = self.field.differences(first[known], second[known], errors[known])
        return [
            Difference(
                float(gap),
                interval_or_none(ELO_SCALE * float(a), ELO_SCALE * float(b), 1.0 - float(error)),
                float(p),
            )
            for gap, a, b, error, p in zip(gaps, low, high, errors, p_values, strict=True)
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
    above = _with_consequences(np.where(gaps > 0, together, np.nan))
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


def _with_consequences(above: Floats) -> Floats:
    """Adjusted p-values of "the row is better", with those that follow from two others.

    A model that is better than one that is better than a third is better than that, also where
    their own comparisons are few.
    """
    for between in range(len(above)):
        by_two = np.maximum(above[:, between, None], above[None, between, :])
        above = np.fmin(above, by_two)
    return above


def _bounds(field: Field, n_prompts: Ints, level: float) -> tuple[Floats, Floats]:
    """Bounds of ratings, nan for models with too few prompts, or without a rating."""
    low, high = np.full(n_prompts.shape, np.nan), np.full(n_prompts.shape, np.nan)
    is_known = np.isfinite(field.strengths) if field.weights is None else ~np.isnan(field.strengths)
    known = np.flatnonzero(is_known & (n_prompts >= least_units(1.0 - level)))
    low[known], high[known] = field.ratings(known, 1.0 - level)
    return to_elo(low), to_elo(high)
