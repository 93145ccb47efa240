"""Orders that scores give models: against official scores, a known order, or one another.

`leaderboard` is gold by model, not by answer. Source: Xia et al. (Findings of ACL 2024), Table 4:
ProbDiff's confidence beside the official scores of MT-Bench and AlpacaEval. The paper compares the
two orders by eye; here they have a coefficient and its exact p-value. With four models no order is
significant at 5 %.

`same_winner` is from their Figure 4 and Table 5, which mark the categories in which ProbDiff and
GPT-4 agree on the better of two models by their means. The means of 38 to 124 questions may differ
by chance, so each difference has its interval here, and agreement is also counted over the
categories that both evaluators resolve.

The truth of `validation` is measured (exact match with references) or stated (`order`). For each
score of each method the models are ordered by their mean; a pair is resolved where the interval of
the difference leaves out 0. What a method gets wrong is a finding to print, not a number to tune.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from orchestrator.analyses._gold import agreement_cells, evaluators, level_means, mean_cell
from orchestrator.clusters import CLUSTER, OVER, codes
from orchestrator.columns import score_words
from orchestrator.contracts.context import answers_of
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
from orchestrator.ranking.cells import METHODS, n_prompts, order_words
from orchestrator.ranking.scores import Score, ScoreRef
from orchestrator.statistics.agreement import ORDER_METHOD, ordering
from orchestrator.statistics.means import METHOD, paired_difference
from orchestrator.tables import with_interval

_ORDERS: Final = table_columns(
    "leaderboard | score: score | official order | order found | Kendall tau-b: signed 2",
    "p: p | Spearman: signed 2 | models: count",
)
_ALL: Final = "all"
_ROUNDING: Final = 1e-12
_AGREEMENT: Final = table_columns(
    "evaluator: score | against: score | model | and model | same winner overall",
    "in categories: count | of: count | resolved by both: count",
    "same among these: count",
)
_CATEGORIES: Final = table_columns(
    "evaluator: score | against: score | model | and model | category | difference: signed",
    "difference of the other: signed | winner | winner of the other | same",
)
_VERDICTS: Final = table_columns(
    "score: score | order found | right | in resamples: percent | pairs right: count",
    "wrong: count | open: count | prompts: count",
)
_MODELS: Final = table_columns("model | exact match: percent | answers: count")


class LeaderboardConfig(Settings):
    """Settings of `leaderboard`."""

    official: dict[str, dict[str, float]] = Field(
        description="Official scores, larger is better: for each leaderboard, model to number.",
        min_length=1,
    )
    scores: tuple[ScoreRef, ...] = Field(
        (),
        description="Scores to compare. Default: every score of every method. `confidence` is "
        "ProbDiff's at its main threshold.",
    )

    @field_validator("official")
    @classmethod
    def _checked(cls, value: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        if short := [name for name, scores in value.items() if len(scores) < 2]:
            raise ValueError(f"give the scores of two models or more: {', '.join(short)}")
        return value


class LeaderboardAnalysis(Analysis[LeaderboardConfig]):
    """Scores of models against their scores on leaderboards: gold by model, not by answer."""

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate the scores of each model, then the orders."""
        official = self.config.official
        scores = evaluators(context, self.config.scores)
        models = _models(scores)
        for name, listed in official.items():
            if not listed.keys() & set(models):
                raise UsageError(
                    f"{context.name}: no model of this run is on {name!r}; models: "
                    f"{', '.join(models)}"
                )
        return [
            _means(context, official, scores, models),
            _orders(context, official, scores, models),
        ]


def _models(scores: Sequence[Score]) -> list[str]:
    """Return the models that have a score, in their order."""
    return list(dict.fromkeys(name for one in scores for name in one.points["model"].drop_nulls()))


def _means(
    context: Context,
    official: dict[str, dict[str, float]],
    scores: Sequence[Score],
    models: Sequence[str],
) -> Table:
    columns = [Column("model")]
    columns += [Column(f"{name} (official)", "number", 2) for name in official]
    columns += [Column(score_words(one.name), "number", 3) for one in scores]
    lines: list[list[Cell]] = []
    for model in models:
        known = [listed.get(model) for listed in official.values()]
        means = [
            mean_cell(one.points.filter(pl.col("model") == model), context.confidence_level)
            for one in scores
        ]
        lines.append([model, *known, *means])
    title = "Scores of the models and official scores"
    return make_table("leaderboard", title, columns, lines, notes=[METHODS])


def _orders(
    context: Context,
    official: dict[str, dict[str, float]],
    scores: Sequence[Score],
    models: Sequence[str],
) -> Table:
    resampling = context.resampling()
    lines: list[list[Cell]] = []
    for name, listed in official.items():
        there = [model for model in models if model in listed]
        gold = np.array([listed[model] for model in there], dtype=np.float64)
        for one in scores:
            means = [one.points.filter(pl.col("model") == model)["value"].mean() for model in there]
            numbers = np.array([np.nan if mean is None else mean for mean in means], np.float64)
            value = one.orientation * level_means(numbers, one.points["value"])
            order, tau, p, rho, n_models = agreement_cells(value, gold, there, resampling)
            lines.append([name, one.name, order_words(gold, there), order, tau, p, rho, n_models])
    notes = [
        "p: share of all orderings that agree or disagree at least as much as Kendall's tau; with "
        "four models it is at least 0.083"
    ]
    title = "Order of the models by each score and by official scores"
    return make_table("leaderboard.order", title, _ORDERS, lines, notes=notes)


class SameWinnerConfig(Settings):
    """Settings of `same_winner`."""

    scores: tuple[ScoreRef, ...] = Field(
        description="Evaluators; the first is compared with each other. `confidence` is ProbDiff's "
        "at its main threshold.",
        min_length=2,
    )


_Gap = tuple[Measured, str, bool]
"""A model's mean score minus another's, turned so that more is better, with its interval; the name
of the better model, "tie", or "" where it is undefined; and whether the interval leaves out 0."""


class SameWinnerAnalysis(Analysis[SameWinnerConfig]):
    """The agreement of two evaluators on the better model, overall and in each category."""

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate the agreement, then each category, then the scores."""
        scores = evaluators(context, self.config.scores)
        models = _models(scores)
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
                each += [
                    [*about, category, cell, other_cell, first, second, _same(first, second)]
                    for category, ((cell, first, _), (other_cell, second, _)) in found.items()
                ]
                shares.append([*about, *_share(found)])
        counted = "categories in which a winner is known to both"
        means = (
            "winner: by the difference of means, as published; resolved: its interval excludes 0"
        )
        return [
            make_table(
                "same_winner",
                "Do evaluators pick the same winner?",
                _AGREEMENT,
                shares,
                notes=[f"of: {counted}", means, f"interval: {METHOD}, not adjusted"],
            ),
            make_table("same_winner.categories", "Winners in each category", _CATEGORIES, each),
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
        return Measured(None, why="no questions in common"), "", False
    a, b = (
        one.orientation * both[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for name in ("value", "value_b")
    )
    found = paired_difference(b, a, codes(both[CLUSTER]))
    if not found.n:
        return Measured(None, why="no questions in common"), "", False
    gap = found.estimate(confidence_level)
    bounds = gap.interval
    size = max(1.0, abs(found.first), abs(found.second))
    winner = "tie" if abs(found.value) <= _ROUNDING * size else pair[found.value < 0]
    resolved = bounds is not None and not bounds.low <= 0.0 <= bounds.high
    return with_interval(found.value, bounds, why=gap.undefined), winner, resolved


def _same(one: str, two: str) -> str | None:
    """Return yes or no; None where a winner is not known."""
    return ("yes" if one == two else "no") if one and two else None


def _share(found: dict[str, tuple[_Gap, _Gap]]) -> list[Cell]:
    overall, *each = (
        (_same(one, two), sure and sure_too)
        for (_, one, sure), (_, two, sure_too) in found.values()
    )
    known = [pair for pair in each if pair[0] is not None]
    resolved = [pair for pair in known if pair[1]]
    same, surely = (sum(said == "yes" for said, _ in pairs) for pairs in (known, resolved))
    return [overall[0], same, len(known), len(resolved), surely]


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
    columns = [Column("evaluator", "score"), Column("model")]
    columns += [Column(name, "number") for name in ("all (micro)", *names)]
    return make_table("same_winner.scores", "Scores in each category", columns, lines)


class ValidationConfig(Settings):
    """Settings of `validation`."""

    order: tuple[str, ...] | None = Field(
        None,
        description="Models from best to worst. Default: the order by exact match.",
        min_length=2,
    )
    scores: tuple[ScoreRef, ...] = Field(
        (), description="Scores to validate. Default: every score of every method."
    )


class ValidationAnalysis(Analysis[ValidationConfig]):
    """Validation of methods: the order they give models of known skill, and its certainty."""

    def summarise(self, context: Context) -> list[Table]:
        """One line a score, then what the true order rests on."""
        # Models with the share of answers equal to the reference, best first
        known = pl.DataFrame(schema={"model": pl.String, "share": pl.Float64, "n": pl.UInt32})
        answers = answers_of(context.frames, ("model", "exact_match"))
        if not answers.is_empty():
            known = (
                answers.filter(pl.col("exact_match").is_not_null())
                .group_by("model", maintain_order=True)
                .agg(share=pl.col("exact_match").mean(), n=pl.len())
                .sort("share", descending=True, maintain_order=True)
            )
        config = self.config
        order = config.order or tuple(known["model"].to_list())
        if len(order) < 2:
            raise UsageError(
                f"{context.name}: the true order is unknown because no answer has a reference; "
                "set 'order'"
            )
        scores = evaluators(context, config.scores, with_confidence=False)
        lines = [_line(score, order, context) for score in scores]
        truth = make_table("validation.truth", "What is known", _MODELS, known.rows())
        stated = " > ".join(order)
        return [
            make_table(
                "validation.order",
                "Methods and the true order of models",
                _VERDICTS,
                lines,
                basis=f"true order: {stated}",
                notes=[
                    f"pairs: {ORDER_METHOD}, {context.confidence_level:.0%} for all pairs of a "
                    "score",
                    f"in resamples: share of {context.n_resamples:,} resamples of the prompts with "
                    f"exactly the true order",
                ],
            ),
            *([truth] if len(known) else []),
        ]


def _line(score: Score, order: tuple[str, ...], context: Context) -> list[Cell]:
    points = score.points.drop_nulls("value").filter(pl.col("model").is_in(order))
    prompts = codes(points[CLUSTER]) if len(points) else np.zeros(0, np.int64)
    cells = prompts * len(order) + points["model"].cast(pl.Enum(order)).to_physical().to_numpy()
    shape = (int(prompts.max()) + 1 if prompts.size else 0, len(order))
    values = score.orientation * points["value"].to_numpy()
    found = ordering(
        np.bincount(cells, values, minlength=math.prod(shape)).astype(np.float64).reshape(shape),
        np.bincount(cells, minlength=math.prod(shape)).astype(np.float64).reshape(shape),
        range(len(order)),
        context.resampling(),
    )
    known = np.isfinite(found.means)
    names = [name for name, there in zip(order, known, strict=True) if there]
    written = order_words(level_means(found.means[known], points["value"]), names)
    right = "yes" if written == " > ".join(order) else "no"
    return [
        score.name,
        written,
        right if known.all() else "undefined",
        found.share_right,
        found.count("right"),
        found.count("wrong"),
        found.count("open"),
        n_prompts(points),
    ]
