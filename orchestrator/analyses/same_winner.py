"""The agreement of two evaluators on the better model, overall and in each category.

Source: Xia et al. (Findings of ACL 2024), Figure 4 and Table 5, which mark the categories in which
ProbDiff and GPT-4 agree on the better of two models by their means. The means of 38 to 124
questions may differ by chance, so each difference has its interval here, and agreement is also
counted over the categories that both evaluators resolve.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.analyses._gold import evaluators, mean_cell
from orchestrator.clusters import CLUSTER, OVER, codes
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Measured,
    Settings,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.scores import Score, ScoreRef
from orchestrator.statistics.means import METHOD, paired_difference
from orchestrator.statistics.results import Interval
from orchestrator.tables import with_interval

_ALL: Final = "all"
_ROUNDING: Final = 1e-12
_SHARES: Final = table_columns(
    "evaluator | against | model | and model | same winner overall",
    "in categories: count | of: count | resolved by both: count",
    "same among these: count",
)
_EACH: Final = table_columns(
    "evaluator | against | model | and model | category | difference: signed",
    "difference of the other: signed | winner | winner of the other | same",
)


class Config(Settings):
    """Settings of `same_winner`."""

    scores: tuple[ScoreRef, ...] = Field(
        description="Evaluators; the first is compared with each other. `confidence` is ProbDiff's "
        "at its main threshold.",
        min_length=2,
    )


class _Gap(NamedTuple):
    """A model's mean score minus another's, turned so that more is better.

    Attributes:
        cell: With its interval.
        winner: Name of the better model, "tie", or empty where it is undefined.
        resolved: Whether the interval leaves out 0.
    """

    cell: Measured
    winner: str
    resolved: bool


class SameWinnerAnalysis(Analysis[Config]):
    """Agreement of evaluators on the better of two models, by category."""

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate the agreement, then each category, then the scores."""
        scores = evaluators(context, self.config.scores)
        models = list(
            dict.fromkeys(name for one in scores for name in one.points["model"].drop_nulls())
        )
        if len(models) < 2:
            raise UsageError(f"{context.name}: the scores are of fewer than two models")
        if len(scores) < 2:
            raise UsageError(f"{context.name}: name two scores or more")
        names = sorted({name for one in scores for name in one.points["category"].drop_nulls()})
        shares: list[list[Cell]] = []
        each: list[list[Cell]] = []
        for other in scores[1:]:
            for pair in combinations(models, 2):
                about = [scores[0].name, other.name, *pair]
                found = {
                    category: (
                        _gap(scores[0], pair, category, context.confidence_level),
                        _gap(other, pair, category, context.confidence_level),
                    )
                    for category in (_ALL, *names)
                }
                each += [[*about, *line] for line in _lines(found)]
                shares.append([*about, *_share(found)])
        counted = "categories in which a winner is known to both"
        means = (
            "winner: by the difference of means, as published; resolved: its interval excludes 0"
        )
        return [
            make_table(
                "same_winner",
                "Do evaluators pick the same winner?",
                _SHARES,
                shares,
                notes=[f"of: {counted}", means, f"interval: {METHOD}, not adjusted"],
            ),
            make_table("same_winner.categories", "Winners in each category", _EACH, each),
            _scores(context, scores, models, names),
        ]


def _gap(one: Score, pair: tuple[str, str], category: str, confidence_level: float) -> _Gap:
    points = one.points.filter(pl.col("model").is_in(pair))
    if one.is_pairwise:
        # A comparison with a third model says nothing of who wins between these.
        points = points.filter(pl.col("opponent").is_in(pair))
    if category != _ALL:
        points = points.filter(pl.col("category") == category)
    of_model = [
        points.filter(pl.col("model") == model)
        .group_by("item", *OVER, "turn", maintain_order=True)
        .agg(pl.col("value").mean())
        for model in pair
    ]
    both = of_model[0].join(of_model[1], on=["item", "turn"], suffix="_b", maintain_order="left")
    if both.is_empty():
        return _Gap(Measured(None, why="no questions in common"), "", resolved=False)
    a, b = (
        one.orientation * both[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for name in ("value", "value_b")
    )
    found = paired_difference(b, a, codes(both[CLUSTER]))
    if not found.n:
        return _Gap(Measured(None, why="no questions in common"), "", resolved=False)
    interval = found.interval(confidence_level)
    bounds, why = (interval, "") if isinstance(interval, Interval) else (None, interval)
    size = max(1.0, abs(found.first), abs(found.second))
    winner = "tie" if abs(found.value) <= _ROUNDING * size else pair[found.value < 0]
    resolved = bounds is not None and not bounds.low <= 0.0 <= bounds.high
    return _Gap(with_interval(found.value, bounds, why=why), winner, resolved)


def _lines(found: dict[str, tuple[_Gap, _Gap]]) -> Iterator[list[Cell]]:
    for category, (one, two) in found.items():
        same = ("yes" if one.winner == two.winner else "no") if one.winner and two.winner else None
        yield [category, one.cell, two.cell, one.winner, two.winner, same]


def _share(found: dict[str, tuple[_Gap, _Gap]]) -> list[Cell]:
    (one, two), *_ = found.values()
    overall = ("yes" if one.winner == two.winner else "no") if one.winner and two.winner else None
    known = [
        pair
        for category, pair in found.items()
        if category != _ALL and pair[0].winner and pair[1].winner
    ]
    resolved = [pair for pair in known if pair[0].resolved and pair[1].resolved]
    same, surely = (sum(a.winner == b.winner for a, b in pairs) for pairs in (known, resolved))
    return [overall, same, len(known), len(resolved), surely]


def _scores(
    context: Context, scores: Sequence[Score], models: Sequence[str], names: Sequence[str]
) -> Table:
    """The layout of Table 5: a line for each evaluator and model, a column for each category."""
    lines: list[list[Cell]] = []
    for one in scores:
        for model in models:
            points = one.points.filter(pl.col("model") == model)
            parts = [points, *(points.filter(pl.col("category") == name) for name in names)]
            cells = [mean_cell(part, context.confidence_level) for part in parts]
            lines.append([one.name, model, *cells])
    columns = [Column("evaluator"), Column("model")]
    columns += [Column(name, "number") for name in ("all (micro)", *names)]
    return make_table("same_winner.scores", "Scores in each category", columns, lines)
