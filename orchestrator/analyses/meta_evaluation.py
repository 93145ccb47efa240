"""Correlations of scores with gold: signed, by category, beyond length, compared.

Gold is a score of another method (a judge), exact match with the reference, or a column of the
dataset. Correlations are over answers, with intervals over prompts (a prompt's answers stand or
fall together); they are given for each model and for all together, since between models of unlike
skill almost anything correlates. Signs are kept: `expected` says which way a score should go.
Pearson's, Kendall's and Spearman's coefficient stand side by side within each model, as the
glass-box paper prints them (Table 1), and are each given by category and tested.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, Self

import numpy as np
import polars as pl
from msgspec.structs import replace
from pydantic import Field, model_validator

from orchestrator.analyses._gold import (
    Compared,
    Gold,
    agreement_cells,
    compared_lines,
    evaluators,
    level_means,
    read_gold,
)
from orchestrator.clusters import OVER
from orchestrator.contracts.context import answers_of
from orchestrator.numbers import finite
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
from orchestrator.ranking.cells import n_prompts
from orchestrator.ranking.scores import KEYS, Score, ScoreRef
from orchestrator.statistics.association import Kind as Coefficient
from orchestrator.statistics.association import association
from orchestrator.statistics.correlation import (
    compare_correlations,
    correlate,
    correlate_within,
    partial_correlation,
)
from orchestrator.statistics.means import clustered_mean
from orchestrator.statistics.resampling import JACKKNIFE
from orchestrator.tables import measured, with_interval

_KINDS: Final[dict[Coefficient, str]] = {
    "pearson": "Pearson",
    "kendall": "Kendall tau-b",
    "spearman": "Spearman",
}
"""Coefficients in the order of the glass-box paper, with their names in tables."""
_CORRELATIONS: Final = table_columns(
    "score: score | expected | Spearman: signed 2 | Kendall tau-b: signed 2",
    "Pearson: signed 2 | beyond length: signed 2 | prompts: count | missing: count",
)
_WITHIN: Final = table_columns(
    "model | score: score | Pearson: signed 2 | Kendall tau-b: signed 2 | Spearman: signed 2",
    "prompts: count | missing: count",
)
_PROMPTS: Final = table_columns(
    "score: score | within prompts: signed 2 | of: count | across prompts: signed 2",
    "prompts: count",
)
_COMPARED: Final = table_columns(
    "score: score | against: score | correlation | difference: signed 2 | p: p | p (Holm): p"
)
_ORDERS: Final = table_columns(
    "score: score | order found | Kendall tau-b: signed 2 | p: p | models: count"
)


class Config(Settings):
    """Settings of `meta_evaluation`."""

    gold: Gold = Field(description="Standard that scores are compared with.")
    scores: tuple[ScoreRef, ...] = Field(
        (), description="Scores to evaluate. Default: every score of every method."
    )
    baseline: ScoreRef | None = Field(
        None, description="Score to test every other score against. Default: test all pairs."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        base = self.baseline
        if base is not None and self.scores:
            same = [ref for ref in self.scores if ref.method == base.method]
            if not any(ref.column in (None, base.column) for ref in same):
                said = f"{base.method}.{base.column}"
                raise ValueError(f"'baseline': {said!r} is not among 'scores'")
        return self


class Kind(Analysis[Config]):
    """Signed correlations, by category, beyond length, compared."""

    def summarise(self, context: Context) -> list[Table]:
        """Correlations, then by category, then scores against each other."""
        config = self.config
        gold = read_gold(context, config.gold)
        # Tokens of each answer, where answers were kept
        answers, length = answers_of(context.frames, (*KEYS, "n_tokens")), None
        if "n_tokens" in answers.columns:
            tokens = pl.col("n_tokens").cast(pl.Float64)
            length = answers.select(*KEYS, length=tokens).unique(KEYS)
        scores = []
        for found in evaluators(context, config.scores, with_confidence=False):
            if found.name == f"{config.gold.method}.{config.gold.column}":
                continue
            points = found.means().with_columns(pl.col("turn").cast(pl.Int64))
            points = points.join(gold, on=[key for key in KEYS if key in gold.columns], how="left")
            if length is None:
                points = points.with_columns(length=pl.lit(None, pl.Float64))
            else:
                points = points.join(length, on=list(KEYS), how="left")
            scores.append(replace(found, points=points))
        if not scores:
            raise UsageError(
                f"{context.name}: the methods of this recipe give no score to compare with gold"
            )
        tables = [
            _correlations(scores, context, self.config.gold.words),
            *_by_model(scores, context),
            *_by_prompt(scores, context),
        ]
        for kind in reversed(_KINDS):
            tables += _categories(scores, context, kind)
        tables += _orders(scores, context)
        if len(scores) > 1:
            tables.append(_compared(scores, context, config.baseline))
        return tables


def _correlations(scores: Sequence[Score], context: Context, gold: str) -> Table:
    rows: list[list[Cell]] = []
    level = context.confidence_level
    for joined in scores:
        value, known, prompts = joined.column("value"), joined.column("gold"), joined.prompts
        found = [
            correlate(value, known, prompts, kind=kind, confidence_level=level)
            for kind in ("spearman", "kendall", "pearson")
        ]
        partial = partial_correlation(
            value, known, joined.column("length"), prompts, confidence_level=level
        )
        rows.append(
            [
                joined.name,
                "+" if joined.orientation > 0 else "-",
                *map(measured, found),
                measured(partial),
                n_prompts(joined.points.drop_nulls(["value", "gold"])),
                _n_missing(joined),
            ]
        )
    return make_table(
        "meta_evaluation.correlation",
        f"Correlation with gold: {gold}",
        _CORRELATIONS,
        rows,
        basis="over answers of all models",
        notes=[
            f"intervals: {JACKKNIFE}",
            "beyond length: Spearman's partial correlation, number of tokens held fixed",
            "expected: predicted sign of the score; observed signs are not changed",
            "includes differences between models; the next tables are within models",
        ],
    )


def _by_model(scores: Sequence[Score], context: Context) -> Iterator[Table]:
    """Correlations over the answers of each model, as SelfEval gives them (Table 1)."""
    models = list(
        dict.fromkeys(
            name for joined in scores for name in joined.points["model"].unique(maintain_order=True)
        )
    )
    level = context.confidence_level
    spearman: dict[tuple[str, str], Measured] = {}
    rows: list[list[Cell]] = []
    for model in models:
        for one in scores:
            own = replace(one, points=one.points.filter(pl.col("model") == model))
            value, known = own.column("value"), own.column("gold")
            found = [
                correlate(value, known, own.prompts, kind=kind, confidence_level=level)
                for kind in _KINDS
            ]
            cells = dict(zip(_KINDS, map(measured, found), strict=True))
            spearman[one.name, model] = cells["spearman"]
            rows.append([model, one.name, *cells.values(), found[0].n, _n_missing(own)])
    if len(models) > 1:
        yield make_table(
            "meta_evaluation.models",
            "Spearman within each model",
            [Column("score", "score"), *(Column(model, "signed", 2) for model in models)],
            [[one.name, *(spearman[one.name, model] for model in models)] for one in scores],
        )
    yield make_table(
        "meta_evaluation.within",
        "Correlation with gold within each model",
        _WITHIN,
        rows,
        notes=["signed; Table 1 of the glass-box paper prints absolute values in this order"],
    )


def _n_missing(joined: Score) -> int:
    """Count the points without a value or gold."""
    return int((np.isnan(joined.column("value")) | np.isnan(joined.column("gold"))).sum())


def _by_prompt(scores: Sequence[Score], context: Context) -> Iterator[Table]:
    """Tabulate how well each score tells answers to one prompt apart, and prompts apart."""
    rows: list[list[Cell]] = []
    level = context.confidence_level
    for joined in scores:
        known = joined.points.drop_nulls(["value", "gold"]).cast({"value": float, "gold": float})
        prompts = known.group_by("item", "turn", maintain_order=True).agg(
            "value", "gold", pl.col(OVER).first()
        )
        several = replace(joined, points=prompts.filter(pl.col("gold").list.n_unique() > 1))
        within = [
            association(np.array(value), np.array(gold), "kendall") if len(set(value)) > 1 else 0.0
            for value, gold in several.points.select("value", "gold").rows()
        ]
        if not within:
            continue
        mean = clustered_mean(np.array(within), several.prompts, level, ends=(-1.0, 1.0))
        every = replace(joined, points=prompts.with_columns(pl.col("value", "gold").list.mean()))
        across = correlate(
            every.column("value"), every.column("gold"), every.prompts,
            kind="spearman", confidence_level=level,
        )  # fmt: skip
        counts = n_prompts(several.points), n_prompts(prompts)
        rows.append(
            [joined.name, measured(mean, with_n=True), counts[0], measured(across), counts[1]]
        )
    if rows:
        yield make_table(
            "meta_evaluation.prompts",
            "Answers to one prompt, and prompts",
            _PROMPTS,
            rows,
            notes=[
                "within prompts: mean of Kendall's tau-b among a prompt's answers, over prompts "
                "whose gold differs; 0 where a score is the same for all. Choosing, ranking or "
                "judging answers needs this one",
                "across prompts: Spearman of the means of each prompt. Telling hard prompts needs "
                "this one; a score can have it and say nothing of answers",
            ],
        )


def _categories(scores: Sequence[Score], context: Context, kind: Coefficient) -> Iterator[Table]:
    """One coefficient within each category, all models together, and its mean over categories."""
    names = sorted({name for joined in scores for name in joined.points["category"].drop_nulls()})
    if len(names) < 2:
        return
    rows: list[list[Cell]] = []
    for joined in scores:
        known = replace(joined, points=joined.points.drop_nulls("category"))
        found, mean = correlate_within(
            known.column("value"),
            known.column("gold"),
            known.prompts,
            known.points["category"].to_list(),
            kind=kind,
            confidence_level=context.confidence_level,
        )
        # Where it has an interval, the mean is over the categories that have a coefficient.
        why = mean.undefined if mean.interval is None else None
        shown = with_interval(finite(mean.value), mean.interval, why=why)
        cells = [finite(found[name].value) if name in found else None for name in names]
        rows.append([joined.name, shown, *cells])
    columns = [Column("score", "score"), Column("mean", "signed", 2)]
    columns += [Column(name, "signed", 2) for name in names]
    yield make_table(
        "meta_evaluation.categories" + ("" if kind == "spearman" else f".{kind}"),
        f"{_KINDS[kind]} within each category",
        columns,
        rows,
        basis="all models together",
        notes=["mean: unweighted over categories, so differences between categories add nothing"],
    )


def _orders(scores: Sequence[Score], context: Context) -> Iterator[Table]:
    """The order of the models by each score's mean against their order by mean gold."""
    resampling = context.resampling()
    rows: list[list[Cell]] = []
    for joined in scores:
        means = joined.points.group_by("model", maintain_order=True).agg(
            pl.col("value", "gold").mean()
        )
        if len(means) < 2:
            return
        value, gold = (
            level_means(means[name].fill_null(np.nan).to_numpy(), joined.points[name])
            for name in ("value", "gold")
        )
        models = means["model"].to_list()
        order, tau, p, _, n_models = agreement_cells(
            joined.orientation * value, gold, models, resampling
        )
        rows.append([joined.name, order, tau, p, n_models])
    yield make_table(
        "meta_evaluation.ranking",
        "Order of the models by each score, against their order by gold",
        _ORDERS,
        rows,
        notes=[
            "p: share of all orderings that agree at least as much; with few models p cannot "
            "be small"
        ],
    )


def _compared(scores: Sequence[Score], context: Context, baseline: ScoreRef | None) -> Table:
    """Every two scores on the same answers, by each kind, signs turned to 'more is better'."""
    resampling = context.resampling()
    pairs = list(combinations(scores, 2))
    if baseline is not None:
        name = f"{baseline.method}.{baseline.column}"
        base = next((joined for joined in scores if joined.name == name), None)
        if base is None:
            raise UsageError(f"the baseline {name!r} is not among the scores")
        pairs = [(joined, base) for joined in scores if joined is not base]
    found: list[Compared] = []
    for one, two in pairs:
        both = one.points.join(two.points.select(*KEYS, other="value"), on=list(KEYS))
        joined = replace(one, points=both)
        for kind, words in _KINDS.items():
            comparison = compare_correlations(
                one.orientation * joined.column("value"),
                two.orientation * joined.column("other"),
                joined.column("gold"),
                joined.prompts,
                kind,
                resampling,
            )
            found.append((one.name, two.name, words, comparison))
    return make_table(
        "meta_evaluation.comparison",
        "Differences of correlation with gold",
        _COMPARED,
        compared_lines(found),
        basis="all models together",
        notes=[
            "each oriented so that higher is better; p by flipping signs of prompts, adjusted over "
            "all lines"
        ],
    )
