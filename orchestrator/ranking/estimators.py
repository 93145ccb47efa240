"""Tables of judged pairs: win rates and ratings of models by every estimator, and ties."""

from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import prompt_words
from orchestrator.contracts.context import Context
from orchestrator.ranking.preferences import SOFT, WORDS, Preferences, Sides
from orchestrator.statistics.ratings import rate
from orchestrator.statistics.win_rate import mean_preferences
from orchestrator.tables import Cell, Column, Measured, Table, make_table

Floats = NDArray[np.float64]

SOFT_WORD: Final = "P(better)"
"""Name in tables of the soft preference, which counts P(tie) as half."""

_SMALL: Final = 5e-4
_ESTIMATORS: Final = (
    Column("estimator"),
    Column("ties", "percent"),
    Column("agrees with the mean", "percent"),
    Column("order of the models"),
)
_RATES: Final = (
    Column("estimator"),
    Column("model"),
    Column("win rate", "percent"),
    Column("ties", "percent"),
    Column("rating", "rating"),
    Column("rank"),
)


def estimator_table(found: Preferences, key: str, judge: str) -> Table:
    """Tabulate ties, agreement with the mean, and the order of models, for each estimator."""
    by_mean, sides = found.decisions(found.mean), found.sides()
    rows: list[list[Cell]] = []
    for name in found.estimators:
        decisions = found.decisions(name)
        # `a > b = c`, by mean win rate.
        sums = sides.sums(0.5 + 0.5 * decisions)
        rates = mean_preferences(sums, 0.95).values
        known = [(rate, model) for rate, model in zip(rates, sides.models, strict=True)]
        ranked = sorted(known, key=lambda pair: (-pair[0], pair[1]))
        words = [ranked[0][1]]
        for (before, _), (after, model) in pairwise(ranked):
            words += ["=" if abs(before - after) < 1e-12 else ">", model]
        rows.append(
            [
                WORDS[name],
                float((decisions == 0).mean()),
                float((decisions == by_mean).mean()),
                " ".join(words),
            ]
        )
    return make_table(
        f"{key}.estimators",
        f"Estimators, judged by {judge}",
        _ESTIMATORS,
        rows,
        basis=_basis(found),
        notes=["order: by mean win rate, ties count one half; =: same rate"],
        judge=judge,
    )


def rates_table(found: Preferences, context: Context, key: str, judge: str) -> Table:
    """Win rate, ties and Bradley-Terry rating of each model by each estimator."""
    sides = found.sides()
    rows = _rate_lines(sides, context, SOFT_WORD, found.values(SOFT))
    for name in found.estimators:
        wins = 0.5 + 0.5 * found.decisions(name)
        rows += _rate_lines(sides, context, WORDS[name], wins)
    notes = [
        f"{SOFT_WORD}: mean of P(higher score) + P(equal)/2; the others count decisions, a tie as "
        "half a win",
        "ratings: Bradley-Terry, mean 1000, 400 points are odds of 10:1; intervals over prompts, "
        "for this judge",
    ]
    return make_table(
        f"{key}.win_rates",
        f"Models against each other, judged by {judge}",
        _RATES,
        rows,
        basis=_basis(found),
        notes=notes,
        judge=judge,
    )


def mass(coverage: pl.Series) -> str | None:
    """Return the mean of a share that may be tiny, as `0.998` or `3e-05`; None without one."""
    mean = coverage.fill_nan(None).mean()
    if not isinstance(mean, float):
        return None
    return f"{mean:.3f}" if mean >= _SMALL else f"{mean:.0e}"


def _rate_lines(sides: Sides, context: Context, word: str, wins: Floats) -> list[list[Cell]]:
    """One line a model, best first."""
    models, sums = sides.models, sides.sums(wins)
    rated = rate(sums, models, confidence_level=context.confidence_level)
    rates = mean_preferences(sums, context.confidence_level)
    ties = wins == 0.5
    lines: list[tuple[float, list[Cell]]] = []
    for at, model in enumerate(models):
        of_model = (sides.first == at) | (sides.second == at)
        value = float(rated.values[at])
        low, high = int(rated.rank_low[at]), int(rated.rank_high[at])
        ranks = str(low) if low == high else f"{low}-{high}"
        lines.append(
            (
                -value if value == value else np.inf,
                [
                    word,
                    model,
                    between(rates.values[at], rates.low[at], rates.high[at]),
                    float(ties[of_model].mean()) if of_model.any() else None,
                    between(rated.values[at], rated.low[at], rated.high[at]),
                    ranks if rated.rank[at] else None,
                ],
            )
        )
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def between(value: float, low: float, high: float) -> Measured:
    """Return a value of a model with its bounds as a cell; empty where it is nan."""
    if np.isnan(value):
        return Measured(None, why="not compared")
    bounds = (None, None) if np.isnan(low) or np.isnan(high) else (float(low), float(high))
    return Measured(float(value), *bounds)


def _basis(found: Preferences) -> str:
    missing = f" · {found.n_missing:,} missing of all judges" if found.n_missing else ""
    return f"{len(found.rows):,} pairs of answers · {prompt_words(found.rows)}{missing}"
