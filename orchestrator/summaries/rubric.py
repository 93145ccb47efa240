"""Rubrics: scores of the models, each criterion, how criteria agree, and the effect of weights."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER, OVER, codes, prompt_words
from orchestrator.judgment.distribution import UNRELIABLE_BELOW
from orchestrator.judgment.rubric import HIGHEST
from orchestrator.methods.rubric import Config
from orchestrator.plugin import Cell, Context, Summary, Table, make_table, table_columns
from orchestrator.ranking.cells import comparisons, mean_of, numbered, order_words, without_n
from orchestrator.ranking.preferences import (
    decided,
    estimator_table,
    mass,
    preferences,
    rates_table,
)  # fmt: skip
from orchestrator.records import Floats
from orchestrator.statistics.correlation import correlate
from orchestrator.statistics.means import levelled
from orchestrator.tables import measured

CHECKLIST: Final = "checklist"
"""Name in tables of all questions of an item together."""

_ENDS: Final = (0.0, float(HIGHEST))
_SCORES: Final = table_columns(
    "model | judge | rated: count | failed: count | mean score: number 1",
    "s.d.: number 1 | s.d. at most: number 1 | least coverage",
)
_CRITERIA: Final = table_columns(
    "model | judge | criterion | weight: percent | mean score: number 1",
    "s.d.: number 1 | coverage | low: percent | missing: count",
)
_CORRELATIONS: Final = table_columns(
    "judge | criterion | other criterion | Spearman: number 2 | answers: count"
)
_WEIGHTS: Final = table_columns(
    "judge | weights | largest change of a mean: number 1 | other winner: percent",
    "order of the models",
)
_READS: Final = (
    "item", "category", "model", "judge", "turn", "mean", "std", "std_high", "p", "coverage",
    "criteria", "weights", "criteria_mean", "criteria_std", "criteria_coverage", "status",
    "cause",
)  # fmt: skip


class RubricSummary(Summary[Config]):
    """Scores by the rubric and by each criterion, and what the criteria add to one another."""

    reads_alone = True
    by_numbers = True
    reads = _READS

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate scores, criteria, correlations and weights; then win rates and ratings."""
        if context.rows.is_empty():
            return []
        rows = numbered(context, _READS)
        criteria = _criteria(rows, [one.name for one in self.config.criteria])
        tables = [_scores(rows, context), _by_criterion(rows, criteria, context)]
        if len(criteria) > 1:
            tables += [_correlations(criteria, context), _effects(criteria)]
        for judge, found in preferences(rows).by_judge():
            tables.append(rates_table(found, context, "rubric", judge))
            tables.append(estimator_table(found, "rubric", judge))
        return tables


def _criteria(rows: pl.DataFrame, names: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Return the readings of each criterion, and of the questions of a checklist together.

    Columns weight, mean (null where missing), std, coverage and n_missing, beside those of a unit.
    The mean of a checklist is that of its questions, and missing where one of them is.
    """
    unit = ("item", *OVER, "model", "judge", "turn", "status")
    read = rows.filter(pl.col("criteria").is_not_null())
    found = {}
    for at, name in enumerate(names):
        mean = pl.col("criteria_mean").list.get(at)
        found[name] = read.select(
            *unit,
            weight=pl.col("weights").list.get(at),
            mean=mean,
            std=pl.col("criteria_std").list.get(at),
            coverage=pl.col("criteria_coverage").list.get(at),
            n_missing=mean.is_null().cast(pl.Int64),
        )
    rest = pl.col("criteria").list.len() - len(names)
    asked = read.filter(rest > 0)
    if len(asked):
        mean = pl.col("criteria_mean").list.slice(len(names))
        coverage = pl.col("criteria_coverage").list.slice(len(names))
        n_missing = mean.list.eval(pl.element().is_null()).list.sum().cast(pl.Int64)
        found[CHECKLIST] = asked.select(
            *unit,
            weight=pl.col("weights").list.slice(len(names)).list.sum(),
            mean=pl.when(n_missing == 0).then(mean.list.mean()),
            std=pl.lit(None, pl.Float64),
            coverage=coverage.list.min(),
            n_missing=n_missing,
        )
    return found


def _scores(rows: pl.DataFrame, context: Context) -> Table:
    lines: list[list[Cell]] = []
    for (judge, model), group in rows.group_by("judge", "model", maintain_order=True):
        good = group.filter(pl.col("status") == "ok")
        mean = without_n(mean_of(good, pl.col("mean"), context.confidence_level, _ENDS))
        spreads = [_plain_mean(good[name]) for name in ("std", "std_high")]
        n_failed = len(group) - len(good)
        names = [str(model), str(judge)]
        lines.append([*names, len(good), n_failed, mean, *spreads, mass(good["coverage"])])
    notes = [
        "mean score: weighted mean of the criteria's expectations, from 0 (worst labels) to 100 "
        "(best labels); interval over prompts (Gaffke's test of a bounded mean)",
        "s.d.: of one answer's score by the judge's own distributions, criteria "
        "independent within a reply; s.d. at most: whatever their dependence is",
        "failed: also answers of which a criterion has no verdict: they have no score",
    ]
    good = rows.filter(pl.col("status") == "ok")
    return make_table(
        "rubric.scores",
        "Scores by the rubric, 0 to 100",
        _SCORES,
        lines,
        basis=prompt_words(rows),
        notes=notes,
        comparisons=comparisons(good, pl.col("mean"), context.confidence_level, _ENDS),
    )


def _by_criterion(
    rows: pl.DataFrame, criteria: Mapping[str, pl.DataFrame], context: Context
) -> Table:
    lines: list[list[Cell]] = []
    for name, read in criteria.items():
        for (judge, model), group in read.group_by("judge", "model", maintain_order=True):
            mean = mean_of(group, pl.col("mean"), context.confidence_level, _ENDS)
            low = (group["coverage"] < UNRELIABLE_BELOW).mean()
            lines.append(
                [
                    str(model),
                    str(judge),
                    name,
                    _plain_mean(group["weight"]),
                    without_n(mean),
                    _plain_mean(group["std"]),
                    mass(group["coverage"].drop_nulls()),
                    low,  # type: ignore[list-item] # of a column of floats
                    int(group["n_missing"].sum()),
                ]
            )
    notes = [
        "mean score: expectation over all labels, 0 to 100; interval over prompts; s.d.: of the "
        "labels, mean over answers",
        f"coverage: probability on the labels; low: share of answers with less than "
        f"{UNRELIABLE_BELOW:g}",
        "missing: answers without a verdict on the criterion; they are in no mean",
    ]
    if CHECKLIST in criteria:
        notes.append(
            "checklist: mean probability of the better answers to an item's questions; its "
            "coverage is the least of them, and missing counts questions"
        )
    basis = prompt_words(rows)
    return make_table(
        "rubric.criteria", "Each criterion", _CRITERIA, lines, basis=basis, notes=notes
    )


def _correlations(criteria: Mapping[str, pl.DataFrame], context: Context) -> Table:
    keys = ["item", "model", "judge", "turn"]
    lines: list[list[Cell]] = []
    for one, other in combinations(criteria, 2):
        both = (
            criteria[one]
            .select(*keys, *OVER, first="mean")
            .join(criteria[other].select(*keys, second="mean"), on=keys, maintain_order="left")
        )
        for (judge,), group in both.group_by("judge", maintain_order=True):
            found = correlate(
                _floats(group["first"]),
                _floats(group["second"]),
                codes(group[CLUSTER]),
                confidence_level=context.confidence_level,
            )
            cell = without_n(measured(found))
            lines.append([str(judge), one, other, cell, found.n_points])
    notes = [
        "over answers of all models; interval over prompts (jackknife, Student's t)",
        "near 1: the judge does not tell the two criteria apart, and one of them adds little",
    ]
    return make_table(
        "rubric.correlations", "Agreement between criteria", _CORRELATIONS, lines, notes=notes
    )


def _effects(criteria: Mapping[str, pl.DataFrame]) -> Table:
    """Return the order of models by other weights: equal ones, and without each criterion."""
    keys = ["item", "model", "judge", "turn"]
    names = list(criteria)
    joined = criteria[names[0]].select(*keys, m0="mean", w0="weight")
    for at, name in enumerate(names[1:], 1):
        more = criteria[name].select(
            *keys, pl.col("mean").alias(f"m{at}"), pl.col("weight").alias(f"w{at}")
        )
        joined = joined.join(more, on=keys, maintain_order="left")
    lines: list[list[Cell]] = []
    for (judge,), group in joined.drop_nulls().group_by("judge", maintain_order=True):
        means, weights = (
            group.select(f"{letter}{at}" for at in range(len(names))).to_numpy().astype(np.float64)
            for letter in "mw"
        )
        given = _weighted(means, weights)
        others = {"as given": weights}
        if not np.allclose(weights, weights[:, :1]):
            others["equal"] = np.ones_like(weights)
        for at, name in enumerate(names):
            others[f"without {name}"] = weights * (np.arange(len(names)) != at)
        for words, other in others.items():
            lines.append([str(judge), words, *_effect(group, given, _weighted(means, other))])
    notes = [
        "over answers with all criteria; no request is sent for it",
        "other winner: pairs of answers to a prompt of which another one is better than by the "
        "given weights",
    ]
    return make_table("rubric.weights", "Effect of the weights", _WEIGHTS, lines, notes=notes)


def _weighted(means: Floats, weights: Floats) -> Floats:
    result: Floats = (means * weights).sum(axis=1) / weights.sum(axis=1)
    return result


def _effect(group: pl.DataFrame, given: Floats, other: Floats) -> list[Cell]:
    both = group.select("item", "turn", "model").with_columns(
        pl.Series("given", given), pl.Series("other", other)
    )
    by_model = both.group_by("model", maintain_order=True).agg(
        pl.col("given").mean(), pl.col("other").mean()
    )
    change = (by_model["other"] - by_model["given"]).abs().max()
    paired = both.join(both, on=["item", "turn"], suffix="_b").filter(
        pl.col("model").cast(pl.String) < pl.col("model_b").cast(pl.String)
    )
    signs = [
        decided(paired[f"{name}"].to_numpy() - paired[f"{name}_b"].to_numpy())
        for name in ("given", "other")
    ]
    differ = float((signs[0] != signs[1]).mean()) if len(paired) else None
    means = levelled(by_model["other"].to_numpy(), 100.0)
    order = order_words(means, [str(model) for model in by_model["model"]])
    return [float(change) if isinstance(change, float) else None, differ, order]


def _plain_mean(values: pl.Series) -> float | None:
    """Return the mean, with no interval: it describes the judgments and compares no models."""
    found = values.mean()
    return found if isinstance(found, float) else None


def _floats(values: pl.Series) -> Floats:
    return values.fill_null(np.nan).to_numpy().astype(np.float64)
