"""ProbDiff: mean d, confidence at each threshold, wins between models, and what to distrust.

Rows of a prompt (its turns) are one cluster. Failed requests are missing and counted; an undefined
d (an empty text) is a fail in the published confidence, as in the authors' code, and is counted.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
import polars as pl

from orchestrator import numbers
from orchestrator.clusters import CLUSTER, OVER, codes
from orchestrator.figures import key
from orchestrator.methods.probdiff import Config
from orchestrator.numbers import finite
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    Figure,
    Measured,
    Picture,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import (
    METHODS,
    basis_of,
    comparisons,
    good_rows,
    groups,
    mean_of,
    n_prompts,
    numbered,
    plain_mean,
)
from orchestrator.statistics.bounded_mean import METHOD
from orchestrator.statistics.confidence import Confidence, confidence, duel
from orchestrator.tables import measured

_BINS: Final = 40
_POINTS: Final = 41
_LOWEST: Final = -1.5
_PUBLISHED: Final = -0.05
_CONFIDENCE: Final = Column("confidence", "percent")


def _gaps(method: str, rows: pl.DataFrame) -> Figure:
    d = rows["d"].to_numpy()
    # The outermost values go into the last bins, so that the middle can be seen.
    moved = rows.filter(~pl.col("unchanged"))["d"].to_numpy()
    low, high = np.quantile(moved if moved.size else d, [0.02, 0.98])
    edges = np.linspace(low, high if high > low else low + 1e-3, _BINS + 1)
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    for (model,), part in groups(rows, "model"):
        values = part["d"].to_numpy()
        changed = part.filter(~pl.col("unchanged"))["d"].to_numpy()
        counts = np.histogram(np.clip(changed, edges[0], edges[-1]), edges)[0]
        unchanged = int(part["unchanged"].sum())
        group = f"{model} · unchanged {numbers.percent(unchanged / len(values))}"
        quartiles = np.quantile(values, [0.25, 0.5, 0.75])
        lines.append([model, len(values), float(values.mean()), *quartiles, unchanged])
        for left, right, n in zip(edges[:-1], edges[1:], counts, strict=True):
            if n:
                tip = f"{model}: {n} from {left:+.3f} to {right:+.3f}"
                drawn.append(
                    {
                        "x": float(left),
                        "x2": float(right),
                        "value": float(n / len(values)),
                        "group": group,
                        "tip": tip,
                    }
                )
    columns = table_columns(
        "model | answers: count | mean d: signed | 1st quartile: signed | median: signed",
        "3rd quartile: signed | unchanged: count",
    )
    title = f"ProbDiff: distribution of d ({method})"
    table = make_table(key("probdiff-d", method), title, columns, lines)
    models = list(dict.fromkeys(row["group"] for row in drawn))[:12]
    picture = Picture(
        "bars",
        [row for row in drawn if row["group"] in models],
        "d, nats per token",
        "share of answers",
        models,
        {"binned": True, "zero": 0.0},
    )
    basis = (
        f"n = {numbers.counted(len(d), 'answer')} with a d · histogram of the changed ones, of "
        f"which 4 % lie outside its range"
    )
    says = (
        "d is the mean log-probability of the rewriting minus that of the answer. A confident "
        "model has d at or above 0. Unchanged texts have d = 0 and are counted separately."
    )
    return Figure(table.key, title, basis, says, table, picture)


def _curve(method: str, rows: pl.DataFrame, level: float) -> Figure:
    d = rows["d"].drop_nulls().drop_nans().to_numpy()
    low, high = np.quantile(d, [0.05, 0.99])
    # Far below, every model passes; the published thresholds are near 0.
    spaced = np.linspace(max(min(low, -0.2), _LOWEST), max(high, 0.05), _POINTS)
    deltas = np.unique(np.append(np.round(spaced, 4), _PUBLISHED))
    lines: list[list[Any]] = []
    drawn: list[dict[str, Any]] = []
    for (model,), part in groups(rows, "model"):
        d = part["d"].fill_null(np.nan).to_numpy()
        for one in confidence(d, codes(part[CLUSTER]), deltas.tolist(), level):
            shown = measured(one.published)
            lines.append([model, one.delta, shown])
            share = numbers.maybe(shown.value, numbers.percent)
            drawn.append(
                {
                    "x": one.delta,
                    "value": finite(shown.value),
                    "low": finite(shown.low),
                    "high": finite(shown.high),
                    "group": model,
                    "tip": f"{model} at {one.delta:+.3f}: {share}",
                }
            )
    title = f"ProbDiff: confidence at any threshold ({method})"
    columns = [Column("model"), Column("delta", "signed"), _CONFIDENCE]
    table = make_table(key("probdiff-confidence", method), title, columns, lines)
    models = list(dict.fromkeys(row["group"] for row in drawn))
    options = {"zero": _PUBLISHED, "percent": True}
    picture = Picture(
        "lines", drawn, "delta, nats per token", "share with d ≥ delta", models, options
    )
    basis = (
        f"n = {numbers.counted(len(rows), 'answer')} · {numbers.level(level)} intervals: {METHOD}"
    )
    says = "Share of answers with d at or above delta; the paper's delta, -0.05, is marked."
    return Figure(table.key, title, basis, says, table, picture)


_NO_CATEGORY = "(none)"
_MODELS = table_columns(
    "model | mean d: signed | confidence: percent | over changed: percent",
    "unchanged: percent | no d: count",
)
_DELTAS = table_columns("model | delta: signed 2 | confidence: percent | over changed: percent")
_CATEGORIES = table_columns(
    "model | category | prompts: count | mean d: signed | confidence: percent"
)
_PAIRS = table_columns(
    "model | against | wins: percent | ties: percent | losses: percent | prompts: count"
)
_TEXTS = table_columns(
    "model | text | empty: count | cut off: count | marker leaks: count",
    "tokens: number 1 | longer by: percent",
)
_READS: Final = (
    "item", "category", "model", "turn", "d", "unchanged", "n_tokens_first", "n_tokens_last",
    "marker_leak", "empty_answer", "empty_rewriting", "truncated_answer",
    "truncated_rewriting", "status", "cause",
)  # fmt: skip


class Kind(Summary[Config]):
    """Mean d, confidence at each threshold, wins between models, and what to distrust."""

    reads_alone = True
    reads = ("status",)
    section = "ProbDiff"

    def summarise(self, context: Context) -> list[Table]:
        """The models, thresholds, categories, pairs of models, and the rewritings."""
        rows = numbered(context, _READS)
        good = good_rows(rows)
        found = found_by_model(self.config, good, context.confidence_level)
        thresholds: list[list[Cell]] = [
            [model, one.delta, measured(one.published), _over_changed(one, with_n=True)]
            for model, of_model in found.items()
            for one in sorted(of_model, key=lambda one: -one.delta)
        ]
        title = "Confidence by threshold"
        notes = [
            "confidence: share of all texts, with an undefined d as a fail (as published); over "
            "changed: share of the changed texts with a d"
        ]
        tables = [
            _models(context, rows, good, found, self.config),
            make_table("probdiff.confidence", title, _DELTAS, thresholds, notes=notes),
        ]
        if good["category"].n_unique() > 1:
            tables.append(_categories(context, good, found, self.config.deltas[0]))
        if good["model"].n_unique() > 1:
            tables.append(_pairs(context, good, self.config.tau))
        return [*tables, _texts(good)]

    def figures(self, context: Context) -> list[Figure]:
        """The distribution of d, and confidence at any threshold."""
        good = good_rows(numbered(context, ("item", "model", "status", "d", "unchanged")))
        known = good.filter(pl.col("d").is_finite())
        if known.is_empty():
            return []
        return [_gaps(context.name, known), _curve(context.name, good, context.confidence_level)]


def found_by_model(
    config: Config, good: pl.DataFrame, confidence_level: float
) -> dict[str, tuple[Confidence, ...]]:
    """Confidence by model, at each threshold in the order of the settings."""
    deltas = tuple(dict.fromkeys(config.deltas))
    return {
        model: confidence(
            group["d"].fill_null(np.nan).to_numpy(),
            codes(group[CLUSTER]),
            deltas,
            confidence_level,
            changed=~group["unchanged"].to_numpy(),
            categories=group["category"].fill_null(_NO_CATEGORY).to_list(),
        )
        for (model,), group in groups(good, "model")
    }


def _models(
    context: Context,
    rows: pl.DataFrame,
    good: pl.DataFrame,
    found: dict[str, tuple[Confidence, ...]],
    config: Config,
) -> Table:
    level = context.confidence_level
    lines: list[list[Cell]] = []
    for (model,), group in groups(rows, "model"):
        known = good_rows(group)
        main = found[model][0] if model in found else None
        lines.append(
            [
                model,
                mean_of(known, pl.col("d"), level),
                Measured(None, why="all failed") if main is None else measured(main.published),
                None if main is None else _over_changed(main),
                plain_mean(known["unchanged"]),
                known["d"].null_count(),
            ]
        )
    notes = [
        f"d: mean log-probability per token of the rewriting minus that of the answer, in nats; "
        f"larger is better; confidence: share with d >= {config.deltas[0]:g}",
        "an unchanged answer has d = 0 and passes: compare the confidence with `over changed`, "
        "which excludes these",
        "no d: empty texts; they count as fails in the confidence, as published",
        METHODS,
    ]
    drawn = drawn_at(config, rows["category"].unique())
    if any(answer != rewriting for _, answer, rewriting in drawn):
        notes.append(_temperature_note(drawn))
    if rows["model"].n_unique() > 1:
        notes.append(_vocabulary_note(context))
    return make_table(
        "probdiff",
        "ProbDiff",
        _MODELS,
        lines,
        basis=basis_of(rows),
        notes=notes,
        comparisons=comparisons(good, pl.col("d"), level),
    )


def _over_changed(found: Confidence, *, with_n: bool = False) -> Measured:
    if found.changed is None or not found.changed.n:
        return Measured(None, why="nothing changed")
    return measured(found.changed, with_n=with_n)


_DrawnAt = tuple[tuple[str, ...], float, float]


def drawn_at(config: Config, categories: Iterable[str | None]) -> list[_DrawnAt]:
    """Categories, and the temperatures of their answers and rewritings; the coldest first."""
    found: dict[tuple[float, float], list[str]] = {}
    for category in sorted(set(categories), key=lambda name: (name is None, name)):
        pair = config.answer.temperature_of(category), config.revision.temperature_of(category)
        found.setdefault(pair, []).append(category or _NO_CATEGORY)
    return [(tuple(names), *pair) for pair, names in sorted(found.items())]


def _temperature_note(drawn: Sequence[_DrawnAt]) -> str:
    """Describe the effect of temperatures alone on d (the paper's Table 9)."""
    if len(drawn) == 1:
        ((_, answer, rewriting),) = drawn
        effect = (
            "lower temperature alone raises"
            if rewriting < answer
            else "higher temperature alone lowers"
        )
        return (
            f"answers were drawn at temperature {answer:g}, rewritings at {rewriting:g}: "
            f"the {effect} d"
        )
    said = ", ".join(
        f"{answer:g} and {rewriting:g} ({', '.join(names)})" for names, answer, rewriting in drawn
    )
    return (
        f"answers and rewritings were sampled at temperatures {said}: a lower temperature of the "
        f"rewriting alone raises d, a higher one lowers it"
    )


def _vocabulary_note(context: Context) -> str:
    """Describe the models' tokenizers, by the hashes of texts that several models wrote."""
    ends = (("answer", "n_tokens_first"), ("rewriting", "n_tokens_last"))
    columns = ("model", *(name for pair in ends for name in pair))
    texts = pl.concat(
        rows.select(pl.col("model").cast(pl.Categorical).to_physical(), text=pl.col(text).hash(),
                    n=n_tokens).filter(pl.col("n") > 0)
        for rows in context.slices_of(context.own, columns)
        for text, n_tokens in ends
    )  # fmt: skip
    several = (pl.col(name).min() < pl.col(name).max() for name in ("n", "model"))
    split = texts.group_by("text").agg(several)
    if len(split.filter(pl.col("n") & pl.col("model"))):
        return (
            "these models split the same text into different numbers of tokens: d is a mean over "
            "tokens, so neither d nor one delta is comparable between them"
        )
    return "d is a mean over tokens: only models with the same vocabulary are comparable"


def _categories(
    context: Context, good: pl.DataFrame, found: dict[str, tuple[Confidence, ...]], delta: float
) -> Table:
    lines: list[list[Cell]] = []
    good = good.with_columns(pl.col("category").fill_null(_NO_CATEGORY))

    def line(model: str, name: str, part: pl.DataFrame, share: Measured) -> list[Cell]:
        mean = mean_of(part, pl.col("d"), context.confidence_level)
        return [model, name, n_prompts(part), mean, share]

    for (model,), group in groups(good, "model"):
        main = found[model][0]
        for name, share in main.categories:
            part = group.filter(pl.col("category") == name)
            lines.append(line(model, name, part, measured(share)))
        lines.append(line(model, "all (micro)", group, measured(main.published)))
        if main.macro is not None:
            macro = measured(main.macro)
            lines.append([model, "all (macro)", n_prompts(group), None, macro])
    return make_table(
        "probdiff.categories",
        "ProbDiff by category",
        _CATEGORIES,
        lines,
        basis=f"confidence at {delta:g}",
        notes=["micro: over all texts, as published; macro: mean of the categories"],
    )


def _pairs(context: Context, good: pl.DataFrame, tau: float) -> Table:
    lines: list[list[Cell]] = []
    kept = good.select("item", *OVER, "turn", "model", "d")
    for ((a,), left), ((b,), right) in combinations(groups(kept, "model"), 2):
        both = left.join(right, on=["item", "turn"], suffix="_b").with_columns(
            pl.col("d", "d_b").fill_null(np.nan)
        )
        one, two = both["d"].to_numpy(), both["d_b"].to_numpy()
        shares = map(measured, duel(one, two, codes(both[CLUSTER]), tau, context.confidence_level))
        lines.append([a, b, *shares, n_prompts(both)])
    notes = [
        f"a model wins where its d is larger by more than {tau:g}; an undefined d loses to "
        f"a known one"
    ]
    return make_table("probdiff.pairs", "Wins between models", _PAIRS, lines, notes=notes)


def _texts(good: pl.DataFrame) -> Table:
    lines: list[list[Cell]] = []
    for (model,), group in groups(good, "model"):
        both = group.filter((pl.col("n_tokens_first") > 0) & (pl.col("n_tokens_last") > 0))
        first, last = (int(both[f"n_tokens_{end}"].sum()) for end in ("first", "last"))
        n = len(both)
        empty, cut_off = (
            [int(group[f"{what}_{text}"].sum()) for text in ("answer", "rewriting")]
            for what in ("empty", "truncated")
        )
        leaks = int(group["marker_leak"].sum())
        longer = last / first - 1.0 if n else None
        lines += [
            [model, "answer", empty[0], cut_off[0], None, first / n if n else None, None],
            [model, "rewriting", empty[1], cut_off[1], leaks, last / n if n else None, longer],
        ]
    return make_table(
        "probdiff.texts",
        "Answers and rewritings",
        _TEXTS,
        lines,
        notes=[
            "marker leaks: rewritings that repeat a heading of the prompt; they are scored "
            "unchanged",
            "tokens: mean over pairs in which both texts were scored",
        ],
    )
