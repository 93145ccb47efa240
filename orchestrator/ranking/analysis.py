"""From the frame of pairwise judgments to what a report shows: ratings and what they rest on.

Everything holds for the judges in the frame: intervals are over prompts, not over judges.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.ranking.judged import ROWS_AT_ONCE, Table, tabulate
from orchestrator.ranking.trust import of_table
from orchestrator.statistics.association import association
from orchestrator.statistics.coverage import summarise_coverage
from orchestrator.statistics.position import (
    TIE,
    Orders,
    PositionEffects,
    position_effects,
)
from orchestrator.statistics.prompt_sums import PromptSums
from orchestrator.statistics.ranking import (
    Agreement,
    CategoryRatings,
    FailureCount,
    ModelRating,
    Pair,
    RankingAnalysis,
    WinMatrix,
)
from orchestrator.statistics.ratings import METHOD, Ratings, holm, rate
from orchestrator.statistics.results import (
    APPROXIMATE_BELOW,
    BY_CLUSTER,
    UNCERTAINTY,
    UNCERTAINTY_POOLED,
    checked_level,
)
from orchestrator.statistics.trust import DEFAULTS, Thresholds, Trust, no_ranking, not_known_yet
from orchestrator.statistics.win_rate import WinRates, mean_preferences, win_rates

__all__ = ["RankingAnalysis", "analyse_ranking", "with_trust"]

Floats = NDArray[np.float64]

_CATEGORY_RESAMPLES: Final = 500


def analyse_ranking(
    judgments: pl.DataFrame | Table,
    *,
    judge: str | None,
    confidence_level: float,
    n_resamples: int,
    rng: np.random.Generator,
    thresholds: Thresholds = DEFAULTS,
) -> RankingAnalysis:
    """Ratings, differences, win rates, position effects and gaps of a frame of judgments.

    Args:
        judgments: One row a unit, as `methods.pairwise_ranking` makes them, or what
            `judged.tabulate` has made of them; it may be empty.
        judge: Whose judgments; None pools all judges, clustered by item or cluster of items.
        confidence_level: In (0, 1).
        n_resamples: Resamples of the items; at least 1,000 for a level of 95 %.
        rng: Source of the resamples; the order of the rows does not matter.
        thresholds: From which on the ranking is no result.

    Raises:
        StatisticsError: If the level is not in (0, 1), or a preference not in [0, 1].
    """
    checked_level(confidence_level)
    if isinstance(judgments, Table):
        table = judgments
    else:
        slices = judgments.iter_slices(ROWS_AT_ONCE) if judgments.height else ()
        table = tabulate(slices, judgments.height)
    if judge is not None:
        table = table.of_judge(judge)
    setting = _Setting(confidence_level, n_resamples)
    mean_rng, mode_rng, category_rng = rng.spawn(3)
    sums = table.sums(table.used["prefer_a"])
    rated = setting.rate(sums, table, mean_rng)
    models = _model_ratings(rated, sums, table)
    hard = table.sums(table.mode_wins())
    mode_models = _model_ratings(setting.rate(hard, table, mode_rng), hard, table)
    approximate = any(0 < model.n_clusters < APPROXIMATE_BELOW for model in models)
    uncertainty = UNCERTAINTY if len(table.judges) < 2 else UNCERTAINTY_POOLED
    if table.n_clusters != table.n_items_used:
        uncertainty = f"{BY_CLUSTER}{uncertainty[uncertainty.index(',') :]}"
    found = RankingAnalysis(
        judge=judge,
        judges=table.judges,
        ratings=models,
        mode_ratings=mode_models if table.has_modes else (),
        pairs=_pairs(rated, sums, [model.model for model in models], table),
        wins=_win_matrix(win_rates(sums, confidence_level), [m.model for m in models], table),
        position=_position(table, confidence_level),
        coverage=summarise_coverage(table.floats("coverage_ab", "coverage_ba")),
        agreement=_agreement(table, models, mode_models),
        failures=_failures(table.missing),
        categories=_categories(table, setting, category_rng),
        n_units=table.n_judged + len(table.missing),
        n_judged=table.n_judged,
        n_exact=int(table.used["exact"].sum()),
        n_same_text=int(table.used["same_text"].sum()),
        n_items=table.n_items,
        n_items_used=table.n_items_used,
        n_clusters=table.n_clusters,
        approximate=approximate,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        method=METHOD,
        uncertainty=uncertainty,
        notes=_notes(table, rated, models),
    )
    return with_trust(found, of_table(table, thresholds, confidence_level))


def with_trust(found: RankingAnalysis, trust: tuple[Trust, ...]) -> RankingAnalysis:
    """Return the ranking with the verdict on its judges, without an order if one is not trusted.

    Args:
        found: The ranking.
        trust: The verdict on each of its judges.
    """
    found = replace(found, trust=trust, caution=not_known_yet(trust))
    warning = no_ranking(trust)
    if not warning:
        return found
    return replace(
        found,
        warning=warning,
        ratings=_of_open_rank(found.ratings),
        mode_ratings=_of_open_rank(found.mode_ratings),
        pairs=tuple(replace(pair, resolvable=False) for pair in found.pairs),
        categories=tuple(
            replace(part, ratings=_of_open_rank(part.ratings)) for part in found.categories
        ),
    )


def _of_open_rank(models: Sequence[ModelRating]) -> tuple[ModelRating, ...]:
    last = sum(model.rank is not None for model in models)
    return tuple(
        model if model.rank is None else replace(model, rank_low=1, rank_high=last)
        for model in models
    )


@dataclass(frozen=True, slots=True)
class _Setting:
    confidence_level: float
    n_resamples: int

    def rate(self, sums: PromptSums, table: Table, rng: np.random.Generator) -> Ratings:
        return rate(
            sums,
            table.models,
            confidence_level=self.confidence_level,
            n_resamples=self.n_resamples,
            rng=rng,
        )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _model_ratings(rated: Ratings, sums: PromptSums, table: Table) -> tuple[ModelRating, ...]:
    """Best first; models that cannot be ranked last."""
    preferences = mean_preferences(sums, rated.confidence_level)
    missing = pl.concat([table.missing["model_a"], table.missing["model_b"]]).value_counts()
    n_missing = dict(missing.iter_rows())
    n_items = table.items_of_models()
    found = []
    for i, model in enumerate(table.models):
        rank = int(rated.rank[i])
        found.append(
            ModelRating(
                model=model,
                rating=_number(rated.values[i]),
                low=_number(rated.low[i]),
                high=_number(rated.high[i]),
                low_open=bool(rated.low[i] == -np.inf or rated.values[i] == -np.inf),
                high_open=bool(rated.high[i] == np.inf or rated.values[i] == np.inf),
                rank=rank or None,
                rank_low=int(rated.rank_low[i]) if rank else None,
                rank_high=int(rated.rank_high[i]) if rank else None,
                n_judgments=round(preferences.n_judgments[i]),
                n_items=int(n_items[i]),
                n_clusters=int(rated.n_prompts[i]),
                n_missing=n_missing.get(model, 0),
                mean_preference=_number(preferences.values[i]),
                share_unbounded=_number(rated.share_unbounded[i]),
            )
        )
    return tuple(sorted(found, key=lambda model: (model.rank is None, model.rank, model.model)))


def _pairs(
    rated: Ratings, sums: PromptSums, order: Sequence[str], table: Table
) -> tuple[Pair, ...]:
    """All pairs of ranked models, tested together."""
    index = {model: i for i, model in enumerate(table.models)}
    shared = win_rates(sums, rated.confidence_level).n_prompts
    ranked = [model for model in order if rated.rank[index[model]]]
    pairs = list(combinations(ranked, 2))
    gaps = [rated.difference(index[a], index[b], int(shared[index[a], index[b]])) for a, b in pairs]
    adjusted = holm(np.array([gap.p_value for gap in gaps]))
    return tuple(
        Pair(
            better=a,
            worse=b,
            difference=_number(gap.value),
            low=_number(gap.interval.low) if gap.interval else None,
            high=_number(gap.interval.high) if gap.interval else None,
            p_value=_number(gap.p_value),
            adjusted_p=_number(p),
            resolvable=bool(p < 1.0 - rated.confidence_level),
        )
        for (a, b), gap, p in zip(pairs, gaps, adjusted, strict=True)
    )


def _win_matrix(rates: WinRates, order: Sequence[str], table: Table) -> WinMatrix:
    at = [table.models.index(model) for model in order]
    grid = np.ix_(at, at)

    def cells(values: Floats) -> tuple[tuple[float | None, ...], ...]:
        return tuple(tuple(_number(value) for value in row) for row in values[grid])

    counts = tuple(tuple(int(value) for value in row) for row in table.items_of_pairs()[grid])
    return WinMatrix(tuple(order), cells(rates.values), cells(rates.low), cells(rates.high), counts)


def _position(table: Table, confidence_level: float) -> PositionEffects | None:
    orders = table.floats("prefer_a_ab", "prefer_a_ba")
    both = np.isfinite(orders).all(axis=1)
    if not both.any():
        return None
    clusters, n_clusters = table.clusters()
    return position_effects(
        Orders(
            prompts=clusters[both],
            prefer_ab=orders[both, 0],
            prefer_ba=orders[both, 1],
            decision_ab=table.used["decision_ab"][both].astype(np.float64),
            decision_ba=table.used["decision_ba"][both].astype(np.float64),
            differ=~table.used["same_text"][both],
        ),
        n_clusters,
        confidence_level,
    )


def _agreement(
    table: Table, by_mean: Sequence[ModelRating], by_mode: Sequence[ModelRating]
) -> Agreement:
    if not (table.n_judged and table.has_modes):
        return Agreement(None, None, None)
    values = table.floats("mean_pre", "mode_pre")
    decisions = np.where(np.abs(values) <= TIE, 0.0, np.sign(values))
    mode_rank = {model.model: model.rank for model in by_mode}
    ranks = [(model.rank, mode_rank[model.model]) for model in by_mean]
    known = np.array([(a, b) for a, b in ranks if a is not None and b is not None], np.float64)
    tau = np.nan
    if len(known) > 1:
        tau = association(known[:, 0], known[:, 1], "kendall")
    return Agreement(
        float((decisions[:, 0] == decisions[:, 1]).mean()),
        float((decisions[:, 1] == 0).mean()),
        _number(tau),
    )


def _failures(missing: pl.DataFrame) -> tuple[FailureCount, ...]:
    causes = missing.with_columns(
        pl.when(pl.col("status") == "ok")
        .then(pl.lit("undefined"))
        .otherwise(pl.col("cause").fill_null("unknown"))
        .alias("cause")
    )
    counts = (
        causes.group_by("cause")
        .agg(n=pl.len(), message=pl.col("message").drop_nulls().sort().first())
        .sort(["n", "cause"], descending=[True, False])
    )
    return tuple(
        FailureCount(cause, n, message or "")
        for cause, n, message in counts.select("cause", "n", "message").iter_rows()
    )


def _categories(
    table: Table, setting: _Setting, rng: np.random.Generator
) -> tuple[CategoryRatings, ...]:
    names = [table.categories[code] for code in np.unique(table.used["category"]) if code >= 0]
    if len(names) < 2:
        return ()
    fewer = replace(setting, n_resamples=min(setting.n_resamples, _CATEGORY_RESAMPLES))
    found = []
    for name, child in zip(names, rng.spawn(len(names)), strict=True):
        part = table.of_category(name)
        sums = part.sums(part.used["prefer_a"])
        rated = fewer.rate(sums, part, child)
        found.append(
            CategoryRatings(
                name,
                part.n_items_used,
                part.n_clusters,
                _model_ratings(rated, sums, part),
                rated.notes,
            )
        )
    return tuple(found)


def _notes(table: Table, rated: Ratings, models: Sequence[ModelRating]) -> tuple[str, ...]:
    n_used, n_missing = table.n_judged, len(table.missing)
    if not n_used:
        failed = f"all {n_missing} judgments failed" if n_missing else "there are no judgments"
        return (f"{failed}: nothing to rank",)
    notes = [*rated.notes]
    if n_missing:
        notes.append(f"{n_missing} of {n_used + n_missing} judgments are missing and not filled in")
    alone = table.n_clusters == table.n_items_used
    if table.n_clusters == 1:
        notes.append(f"one {'item' if alone else 'cluster of items'}: no interval can be given")
    few = [model.model for model in models if 1 < model.n_clusters < APPROXIMATE_BELOW]
    if few:
        least = f"{APPROXIMATE_BELOW} {'items' if alone else 'clusters of items'}"
        notes.append(f"intervals are approximate: fewer than {least} for {', '.join(few)}")
    for model in models:
        bounded = model.low is not None or model.high is not None
        has_interval = bounded or model.low_open or model.high_open
        if model.n_clusters > 1 and model.rating is not None and not has_interval:
            notes.append(f"{model.model}: every item says the same, no spread for an interval")
        elif model.rating is not None and (model.low_open or model.high_open):
            side = "below" if model.low_open else "above"
            share = f"{100 * (model.share_unbounded or 0.0):.0f} %"
            both = "on both sides" if model.low_open and model.high_open else f"from {side}"
            notes.append(
                f"{model.model} is not bounded {both}: no finite rating in {share} of resamples"
            )
    return tuple(notes)
