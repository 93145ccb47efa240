"""Conformal intervals of ratings: where gold lies, given a judge's score (`statistics.conformal`).

Three kinds of interval stand beside each other, each with the coverage that is found when answers
are predicted from other prompts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from orchestrator.analyses._gold import Gold, read_gold
from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    Measured,
    Settings,
    Source,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import mean_of, share_of, without_n
from orchestrator.ranking.preferences import judged_rows
from orchestrator.ranking.scores import KEYS, score
from orchestrator.records import Floats
from orchestrator.statistics.conformal import (
    Bounds,
    Kind,
    Ratings,
    central_quantiles,
    cross_conformal,
    least_prompts,
    predict,
    reach,
)
from orchestrator.statistics.resampling import folds_of

CITES: Final = (
    "lei2018distribution", "romano2019conformalized", "barber2021predictive",
    "lee2023hierarchical", "sheng2025analyzing",
)  # fmt: skip
_WORDS: Final[dict[Kind, str]] = {
    "score": "score ± reach",
    "distribution": "distribution",
    "line": "line (CV+)",
}
_READ: Final = ("item", "turn", "judge", "model", "p")


class RatingIntervals(Settings):
    """Intervals of what gold would say of each rated answer."""

    gold: Gold = Field(description="Gold of some answers; the others are predicted.")
    coverage: float = Field(
        0.9, gt=0.0, lt=1.0, description="Share of answers whose gold the intervals should hold."
    )
    scale: tuple[float, float] | None = Field(
        None, description="Least and greatest gold, such as [1, 10]: intervals are cut to it."
    )
    step: float | None = Field(
        None,
        gt=0.0,
        description="Distance of two labels of gold on `scale`, such as 1: the ends of intervals "
        "are moved to labels.",
    )

    @model_validator(mode="after")
    def _scale_of_steps(self) -> Self:
        if self.scale is not None and not self.scale[0] < self.scale[1]:
            raise ValueError("'scale' must be two numbers, the lesser first")
        if self.step is not None and self.scale is None:
            raise ValueError("'step' needs 'scale'")
        return self

    def labels(self) -> Floats | None:
        """Return the labels of gold, ascending; None where it may be any number."""
        if self.scale is None or self.step is None:
            return None
        least, most = self.scale
        n = int(np.floor((most - least) / self.step + 1e-9))
        return least + self.step * np.arange(n + 1, dtype=np.float64)

    def fitted(self, bounds: Bounds) -> Bounds:
        """Return the intervals as far as gold can lie in them."""
        labels = self.labels()
        if labels is not None:
            return bounds.within(labels)
        return bounds if self.scale is None else bounds.clipped(*self.scale)


@dataclass(frozen=True, slots=True)
class _Judge:
    """The ratings of a judge.

    Attributes:
        method: Its name.
        judge: Name.
        rows: A row for each rating, with gold or null.
        ratings: The same as arrays.
        found: An interval of each from gold of other prompts, by kind.
    """

    method: str
    judge: str
    rows: pl.DataFrame
    ratings: Ratings
    found: dict[Kind, Bounds]


def rating_tables(
    context: Context, settings: RatingIntervals, methods: Sequence[str]
) -> list[Table]:
    """Return the length of each judge's intervals and how often they hold gold; the same by model.

    Without names, of all methods that rate answers.

    Raises:
        UsageError: If nothing was rated, there is no gold of it, or gold is not on the scale.
    """
    judges = list(_judges(context, settings, methods))
    if not judges:
        raise UsageError(f"{context.name}: no judge rated single answers, which 'ratings' needs")
    return [_intervals(context, settings, judges), _by_model(context, judges)]


def _judges(
    context: Context, settings: RatingIntervals, methods: Sequence[str]
) -> Iterator[_Judge]:
    gold = read_gold(context, settings.gold)
    for source in context.sources:
        if methods and source.name not in methods:
            continue
        rows = _rated(context, source, settings.coverage)
        if rows.is_empty():
            continue
        keys = [key for key in KEYS if key in gold.columns]
        rows = rows.join(gold, on=keys, how="left", maintain_order="left")
        for (judge,), mine in rows.group_by("judge", maintain_order=True):
            low, high, known, scores = (
                mine[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
                for name in ("low", "high", "gold", "score")
            )
            _check_scale(context, settings, known)
            ratings = Ratings(scores, low, high, known, codes(mine[CLUSTER]))
            kinds: list[Kind] = ["score", "line"]
            if not np.isnan(low).any():
                kinds.insert(1, "distribution")
            if not ratings.known.any():
                raise UsageError(
                    f"{context.name}: no answer that {source.name!r} rated has gold "
                    f"({settings.gold.words})"
                )
            found = {
                kind: settings.fitted(
                    cross_conformal(kind, ratings, settings.coverage, context.rng())
                )
                for kind in kinds
            }
            yield _Judge(source.name, str(judge or ""), mine, ratings, found)


def _rated(context: Context, source: Source, coverage: float) -> pl.DataFrame:
    """Return item, cluster, turn, model, judge, score, and the quantiles low and high."""
    method = source.method
    if method.pairs is not None or not method.judges:
        return pl.DataFrame()
    if method.distribution is None:
        if not source.scores:
            return pl.DataFrame()
        points = score(context, source, next(iter(source.scores))).points.drop_nulls("value")
        none = pl.lit(None, pl.Float64)
        return points.with_columns(score="value", low=none, high=none)
    rows = judged_rows(context, source, _READ)
    if rows.is_empty():
        return rows
    rows = rows.filter((pl.col("status") == "ok") & pl.col("p").is_not_null())
    if rows.is_empty():
        return rows
    p = np.array(rows["p"].to_list(), dtype=np.float64)
    compared = method.compared()
    scores = (1.0 if compared is None else compared.low) + np.arange(p.shape[1], dtype=np.float64)
    low, high = central_quantiles(p, scores, coverage)
    means = p @ scores / p.sum(axis=1)
    return rows.with_columns(pl.Series("score", means), low=low, high=high)


def _check_scale(context: Context, settings: RatingIntervals, gold: Floats) -> None:
    known = gold[~np.isnan(gold)]
    off = np.zeros(len(known), bool)
    if settings.scale is not None:
        off = (known < settings.scale[0]) | (known > settings.scale[1])
    labels = settings.labels()
    if labels is not None:
        off |= np.abs(known[:, None] - labels).min(axis=1, initial=np.inf) > 1e-6
    if off.any():
        by = "" if settings.step is None else f" by steps of {settings.step:g}"
        least, most = settings.scale or (np.nan, np.nan)
        raise UsageError(
            f"{context.name}: gold {known[off][0]:g} is not on the scale from {least:g} to "
            f"{most:g}{by}"
        )


def _intervals(context: Context, settings: RatingIntervals, judges: Sequence[_Judge]) -> Table:
    level, least = context.confidence_level, least_prompts(settings.coverage)
    lines: list[list[Cell]] = []
    for one in judges:
        known = one.ratings.of(one.ratings.known)
        fold = folds_of(known.prompts, known.known, context.rng())
        for kind, bounds in one.found.items():
            by = np.nan if kind == "line" else reach(kind, known, settings.coverage)
            final = settings.fitted(predict(kind, known, fold, one.ratings, settings.coverage))
            width = final.high - final.low
            why = f"needs gold of {least} prompts"
            lines.append(
                [
                    one.method,
                    one.judge,
                    _WORDS[kind],
                    len(known.gold),
                    None if np.isnan(by) else by,
                    Measured(None, why=why) if np.isnan(width).all() else float(np.nanmean(width)),
                    without_n(share_of(_with(one, bounds), pl.col("held"), level)),
                ]
            )
    columns = table_columns(
        "method | judge | interval | with gold: count | reach: signed 2",
        "mean length: number 2 | holds gold: percent",
    )
    cut = "" if settings.scale is None else ", cut to the scale"
    cut += "" if settings.step is None else " and its labels"
    notes = [
        f"split conformal intervals{cut}; an answer to a new prompt like these has its gold inside "
        f"with a probability of {100 * settings.coverage:g} % or more, on average over answers, "
        "not for each model or score",
        "score: the mean of the judge's distribution; distribution: from its lower to its "
        "upper quantile, each moved outwards by the reach (inwards where that is negative)",
        "line: about a fitted line from score to gold, which removes bias and another scale; "
        f"guaranteed is {max(0.0, 200 * settings.coverage - 100):g} % less a little, usual is "
        f"about {100 * settings.coverage:g} %",
        "mean length: of the intervals of all rated answers; holds gold: share of the answers with "
        "gold, each predicted from other prompts (ten folds), with its interval over prompts",
    ]
    title = "How far is gold from each judge's ratings?"
    basis = f"gold: {settings.gold.words} · {prompt_words(judges[0].rows.drop_nulls('gold'))}"
    return make_table("judge_audit.ratings", title, columns, lines, basis=basis, notes=notes)


def _with(one: _Judge, bounds: Bounds) -> pl.DataFrame:
    """Return the rows with `held`: 1 if the interval holds gold, null if either is missing."""
    held = pl.Series("held", bounds.hold(one.ratings.gold)).fill_nan(None)
    return one.rows.with_columns(held)


def _by_model(context: Context, judges: Sequence[_Judge]) -> Table:
    """Tabulate the bias and coverage of each model's answers."""
    level = context.confidence_level
    lines: list[list[Cell]] = []
    for one in judges:
        held = {kind: _with(one, bounds) for kind, bounds in one.found.items()}
        for model in one.rows["model"].unique(maintain_order=True):
            mine = pl.col("model") == model
            rows = one.rows.filter(mine).drop_nulls("gold")
            bias = mean_of(rows, pl.col("score") - pl.col("gold"), level) if len(rows) else None
            shares: list[Cell] = [
                without_n(share_of(held[kind].filter(mine), pl.col("held"), level))
                if kind in held
                else None
                for kind in _WORDS
            ]
            lines.append(
                [one.method, one.judge, model, len(rows), bias and without_n(bias), *shares]
            )
    columns = (
        *table_columns("method | judge | model | with gold: count | score minus gold: signed 2"),
        *(Column(words, "percent") for words in _WORDS.values()),
    )
    notes = [
        "share of each model's answers whose gold the interval holds: coverage is guaranteed for "
        "all models together, and one that the judge misrates has less",
        "score minus gold: mean; intervals over prompts",
    ]
    title = "Bias and coverage by model"
    return make_table("judge_audit.ratings.models", title, columns, lines, notes=notes)
