"""From the frame of pairwise judgments to what a report shows: ratings and what they rest on.

Everything holds for the judges in the frame: intervals are over prompts, not over judges.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl

from orchestrator.disk import columnar
from orchestrator.numbers import finite
from orchestrator.ranking.judged import Table
from orchestrator.ranking.trust import of_table
from orchestrator.records import Floats, Ints
from orchestrator.statistics.association import association
from orchestrator.statistics.bounded_mean import least_units
from orchestrator.statistics.judgments import (
    PositionEffects,
    decided,
    position_effects,
    summarise_coverage,
)
from orchestrator.statistics.means import Shares
from orchestrator.statistics.prompt_sums import PromptSums, mean_preferences, win_rates
from orchestrator.statistics.ranking import (
    Agreement,
    CategoryRatings,
    FailureCount,
    ModelRating,
    Pair,
    RankingAnalysis,
    WinMatrix,
)
from orchestrator.statistics.ratings import METHOD, Ratings, rate
from orchestrator.statistics.results import (
    ALONE,
    APPROXIMATE_BELOW,
    BY_CLUSTER,
    MISSED,
    UNCERTAINTY,
    UNCERTAINTY_POOLED,
    Thresholds,
    checked_level,
)
from orchestrator.statistics.trust import DEFAULTS, Trust, no_ranking, not_known_yet

__all__ = ["RankingAnalysis", "analyse_ranking", "with_decisions", "with_trust"]


def analyse_ranking(
    table: Table,
    *,
    judge: str | None,
    confidence_level: float,
    thresholds: Thresholds = DEFAULTS,
) -> RankingAnalysis:
    """Ratings, differences, win rates, position effects and gaps of judgments.

    A judge of None pools all judges, clustered by item or cluster of items.

    Raises:
        StatisticsError: If the level is not in (0, 1), or a preference not in [0, 1].
    """
    checked_level(confidence_level)
    if judge is not None:
        table = table.of_judge(judge)
    sums = table.sums(table.used["prefer_a"])
    rated = rate(sums, table.models, confidence_level=confidence_level)
    models = _model_ratings(rated, sums, table)
    hard = table.sums(0.5 + 0.5 * np.sign(table.used["mode_pre"]))
    by_mode = rate(hard, table.models, confidence_level=confidence_level)
    mode_models = _model_ratings(by_mode, hard, table)
    # They hold as much as the judgments.
    del hard, by_mode
    columnar.give_back()
    approximate = any(0 < model.n_clusters < APPROXIMATE_BELOW for model in models)
    uncertainty = UNCERTAINTY if len(table.judges) < 2 else UNCERTAINTY_POOLED
    if table.n_clusters != table.n_items_used:
        uncertainty = f"{BY_CLUSTER}{uncertainty[uncertainty.index(',') :]}"
    if len(models) > 2:
        uncertainty = f"{uncertainty}; {ALONE}"
    found = RankingAnalysis(
        judge=judge,
        judges=table.judges,
        ratings=models,
        mode_ratings=mode_models if table.has_modes else (),
        pairs=_pairs(rated, [model.model for model in models], table),
        wins=_win_matrix(win_rates(sums, confidence_level), [m.model for m in models], table),
        position=_position(table, confidence_level),
        coverage=summarise_coverage(table.floats("coverage_ab", "coverage_ba")),
        agreement=_agreement(table, models, mode_models),
        failures=_failures(table.missing),
        categories=_categories(table, confidence_level),
        n_units=table.n_judged + len(table.missing),
        n_judged=table.n_judged,
        n_exact=int(table.used["exact"].sum()),
        n_same_text=int(table.used["same_text"].sum()),
        n_items=table.n_items,
        n_items_used=table.n_items_used,
        n_clusters=table.n_clusters,
        approximate=approximate,
        confidence_level=confidence_level,
        method=METHOD,
        uncertainty=uncertainty,
        notes=_notes(table, rated, models),
    )
    return with_trust(found, of_table(table, thresholds, confidence_level))


def with_trust(found: RankingAnalysis, trust: tuple[Trust, ...]) -> RankingAnalysis:
    """Return the ranking with the verdict on its judges; no order unless all are trusted."""
    found = replace(found, trust=trust, caution=not_known_yet(trust))
    warning = no_ranking(trust)
    if found.failures and not found.n_judged:
        # Why there is no judgment need not be the judge.
        main, n_units = found.failures[0], found.n_units
        said = f"No ranking: {n_units:,} of {n_units:,} judgments are missing"
        warning = f"{said}, {main.n:,} of them by {main.cause}: {main.message}".rstrip(": ")
    if not (warning or found.caution):
        return found
    found = with_decisions(found, lambda _: False)
    return replace(
        found,
        warning=warning,
        mode_ratings=_ranked_by((), found.mode_ratings),
        categories=tuple(
            replace(part, ratings=_ranked_by((), part.ratings)) for part in found.categories
        ),
    )


def with_decisions(found: RankingAnalysis, is_apart: Callable[[Pair], bool]) -> RankingAnalysis:
    """Return the ranking with other decisions on its pairs, and the ranks that follow from them."""
    pairs = tuple(replace(pair, resolvable=is_apart(pair)) for pair in found.pairs)
    return replace(found, pairs=pairs, ratings=_ranked_by(pairs, found.ratings))


def _ranked_by(pairs: Iterable[Pair], models: Sequence[ModelRating]) -> tuple[ModelRating, ...]:
    """The models with the ranks that these decisions leave open."""
    apart = [pair for pair in pairs if pair.resolvable]
    n_better = Counter(pair.worse for pair in apart)
    n_worse = Counter(pair.better for pair in apart)
    last = sum(model.rank is not None for model in models)
    return tuple(
        model
        if model.rank is None
        else replace(
            model, rank_low=1 + n_better[model.model], rank_high=last - n_worse[model.model]
        )
        for model in models
    )


def _model_ratings(rated: Ratings, sums: PromptSums, table: Table) -> tuple[ModelRating, ...]:
    """Best first; models that cannot be ranked last."""
    preferences = mean_preferences(sums, rated.confidence_level)
    missing = pl.concat([table.missing["model_a"], table.missing["model_b"]]).value_counts()
    n_missing = dict(missing.iter_rows())
    n_items = (table.by_item().model_counts > 0).sum(axis=0)
    found = []
    for i, model in enumerate(table.models):
        rank = int(rated.rank[i])
        found.append(
            ModelRating(
                model=model,
                rating=finite(rated.values[i]),
                low=finite(rated.low[i]),
                high=finite(rated.high[i]),
                low_open=bool(rated.low[i] == -np.inf or rated.values[i] == -np.inf),
                high_open=bool(rated.high[i] == np.inf or rated.values[i] == np.inf),
                rank=rank or None,
                rank_low=int(rated.rank_low[i]) if rank else None,
                rank_high=int(rated.rank_high[i]) if rank else None,
                n_judgments=round(preferences.n_judgments[i]),
                n_items=int(n_items[i]),
                n_clusters=int(rated.n_prompts[i]),
                n_missing=n_missing.get(model, 0),
                mean_preference=finite(preferences.values[i]),
            )
        )
    return tuple(sorted(found, key=lambda model: (model.rank is None, model.rank, model.model)))


def _pairs(rated: Ratings, order: Sequence[str], table: Table) -> tuple[Pair, ...]:
    """All pairs of ranked models, tested together."""
    index = {model: i for i, model in enumerate(table.models)}
    ranked = [index[model] for model in order if rated.rank[index[model]]]
    pairs = np.array(list(combinations(ranked, 2)), np.int64).reshape(-1, 2)
    first, second = pairs.T
    gaps = rated.differences(first, second)
    levels = 1.0 - rated.errors[first, second]
    return tuple(
        Pair(
            better=table.models[a],
            worse=table.models[b],
            difference=finite(gap.value),
            low=finite(gap.ends[0]),
            high=finite(gap.ends[1]),
            p_value=finite(rated.p_values[a, b]),
            adjusted_p=finite(p),
            level=finite(level),
            resolvable=bool(rated.better[a, b]),
        )
        for (a, b), gap, p, level in zip(
            pairs, gaps, rated.adjusted[first, second], levels, strict=True
        )
    )


def _win_matrix(rates: Shares, order: Sequence[str], table: Table) -> WinMatrix:
    at = [table.models.index(model) for model in order]
    grid = np.ix_(at, at)

    def cells(values: Floats) -> tuple[tuple[float | None, ...], ...]:
        return tuple(tuple(finite(value) for value in row) for row in values[grid])

    counts = tuple(map(tuple, _n_items(table)[grid].tolist()))
    return WinMatrix(tuple(order), cells(rates.values), cells(rates.low), cells(rates.high), counts)


def _n_items(table: Table) -> Ints:
    """Items on which each two models were compared, shape (models, models)."""
    cells, counts = table.by_item(), np.zeros((len(table.models),) * 2, np.int64)
    counts[cells.first, cells.second] = np.bincount(cells.pair, minlength=cells.n_pairs)
    return counts + counts.T


def _position(table: Table, confidence_level: float) -> PositionEffects | None:
    orders = table.floats("prefer_a_ab", "prefer_a_ba")
    both = np.isfinite(orders).all(axis=1)
    if not both.any():
        return None
    verdicts = table.floats("decision_ab", "decision_ba")[both].astype(np.float64)
    differ = ~table.used["same_text"][both]
    clusters = table.clusters()[0][both]
    return position_effects(clusters, orders[both], verdicts, differ, confidence_level)


def _agreement(
    table: Table, by_mean: Sequence[ModelRating], by_mode: Sequence[ModelRating]
) -> Agreement:
    if not (table.n_judged and table.has_modes):
        return Agreement(None, None, None)
    values = table.floats("mean_pre", "mode_pre")
    decisions = decided(values)
    mode_rank = {model.model: model.rank for model in by_mode}
    ranks = [(model.rank, mode_rank[model.model]) for model in by_mean]
    known = np.array([(a, b) for a, b in ranks if a is not None and b is not None], np.float64)
    tau = np.nan
    if len(known) > 1:
        tau = association(known[:, 0], known[:, 1], "kendall")
    return Agreement(
        float((decisions[:, 0] == decisions[:, 1]).mean()),
        float((decisions[:, 1] == 0).mean()),
        finite(tau),
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


def _categories(table: Table, confidence_level: float) -> tuple[CategoryRatings, ...]:
    names = [table.categories[code] for code in np.unique(table.used["category"]) if code >= 0]
    if len(names) < 2:
        return ()
    found = []
    for name in names:
        part = table.where("category", name, table.categories)
        sums = part.sums(part.used["prefer_a"])
        rated = rate(sums, part.models, confidence_level=confidence_level)
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
    what = "items" if alone else "clusters of items"
    least = least_units(1.0 - rated.confidence_level)
    bands = ((2, least, "too few for an interval"), (least, APPROXIMATE_BELOW, MISSED))
    for begin, end, says in bands:
        few = [model.model for model in models if begin <= model.n_clusters < end]
        if few:
            notes.append(f"fewer than {end} {what} for {', '.join(few)}: {says}")
    return tuple(notes)
