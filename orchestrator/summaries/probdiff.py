"""ProbDiff: mean d, confidence at each threshold, wins between models, and what to distrust.

Rows of a prompt (its turns) are one cluster. Failed requests are missing and counted; an undefined
d (an empty text) is a fail in the published confidence, as in the authors' code, and is counted.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import polars as pl

from orchestrator.methods.probdiff import Config
from orchestrator.summaries._base import Context
from orchestrator.summaries._clusters import (
    METHODS,
    macro_share_of,
    mean_of,
    share_of,
    without_n,
)
from orchestrator.tables import Cell, Column, Measured, Table, make_table

_CHANGED = ~pl.col("unchanged")
_MODELS = (
    Column("model"),
    Column("mean d", "signed"),
    Column("confidence", "percent"),
    Column("over changed", "percent"),
    Column("unchanged", "percent"),
    Column("undefined", "count"),
    Column("failed", "count"),
)
_DELTAS = (
    Column("model"),
    Column("delta", "signed", 2),
    Column("confidence", "percent"),
    Column("over changed", "percent"),
)
_CATEGORIES = (
    Column("model"),
    Column("category"),
    Column("prompts", "count"),
    Column("mean d", "signed"),
    Column("confidence", "percent"),
)
_PAIRS = (
    Column("model"),
    Column("against"),
    Column("wins", "percent"),
    Column("ties", "percent"),
    Column("losses", "percent"),
    Column("preferred", "percent"),
)
_TEXTS = (
    Column("model"),
    Column("text"),
    Column("empty", "count"),
    Column("cut off", "count"),
    Column("marker leaks", "count"),
    Column("tokens", "number", 1),
    Column("longer by", "percent"),
)


def summarise(context: Context) -> list[Table]:
    """The models, thresholds, categories, pairs of models, and what became of the rewritings."""
    rows = context.rows
    if rows.is_empty():
        return []
    good = rows.filter(pl.col("status") == "ok")
    basis = f"{rows['item'].n_unique():,} prompts"
    tables = [_models(context, rows, basis), _thresholds(context, good)]
    if good["category"].n_unique() > 1:
        tables.append(_categories(context, good))
    if good["model"].n_unique() > 1:
        tables.append(_pairs(context, good))
    return [*tables, _texts(good)]


def _passes(delta: float) -> pl.Expr:
    """Whether d >= delta, inclusive and without tolerance as published; undefined is a fail."""
    return (pl.col("d") >= delta).fill_null(value=False)


def _over_changed(rows: pl.DataFrame, delta: float, confidence_level: float) -> Measured:
    changed = rows.filter(_CHANGED)
    if changed.is_empty():
        return Measured(None, n=0, why="nothing changed")
    return share_of(changed, _passes(delta), confidence_level)


def _by_model(rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [(str(name), group) for (name,), group in rows.group_by("model", maintain_order=True)]


def _models(context: Context, rows: pl.DataFrame, basis: str) -> Table:
    config: Config = context.config
    level, delta = context.confidence_level, config.deltas[0]
    lines: list[list[Cell]] = []
    for model, group in _by_model(rows):
        good = group.filter(pl.col("status") == "ok")
        lines.append(
            [
                model,
                without_n(mean_of(good, pl.col("d"), level)),
                without_n(share_of(good, _passes(delta), level)),
                _over_changed(good, delta, level),
                share_of(good, pl.col("unchanged"), level).value,
                good["d"].null_count(),
                len(group) - len(good),
            ]
        )
    return make_table(
        "probdiff", "ProbDiff", _MODELS, lines, basis=basis, notes=_notes(config, rows)
    )


def _notes(config: Config, rows: pl.DataFrame) -> list[str]:
    notes = [
        f"d: mean log-probability a token of the rewriting minus that of the answer, in nats; "
        f"larger is better; confidence: share with d >= {config.deltas[0]:g}",
        "an unchanged answer has d = 0 and passes: read the confidence beside `over changed`",
        METHODS,
    ]
    if config.answer.temperature != config.revision.temperature:
        notes.append(
            f"answers were drawn at temperature {config.answer.temperature:g}, rewritings at "
            f"{config.revision.temperature:g}: drawing colder raises d by itself"
        )
    if rows["model"].n_unique() > 1:
        notes.append(_vocabulary_note(rows))
    return notes


def _vocabulary_note(rows: pl.DataFrame) -> str:
    """What is known about the models' tokenizers from texts that several of them wrote."""
    texts = pl.concat(
        [
            rows.select("model", text=text, n=n_tokens).filter(pl.col("n") > 0)
            for text, n_tokens in (("answer", "n_tokens_first"), ("rewriting", "n_tokens_last"))
        ]
    ).unique()
    split = texts.group_by("text").agg(pl.col("n").n_unique(), pl.col("model").n_unique())
    if len(split.filter((pl.col("n") > 1) & (pl.col("model") > 1))):
        return (
            "these models split the same text into different numbers of tokens: d is a mean over "
            "tokens, so their d and one delta for all are not comparable"
        )
    return (
        "d is a mean over tokens: models are comparable only where their vocabularies are the same"
    )


def _thresholds(context: Context, good: pl.DataFrame) -> Table:
    config: Config = context.config
    level = context.confidence_level
    lines: list[list[Cell]] = [
        [
            model,
            delta,
            without_n(share_of(group, _passes(delta), level)),
            _over_changed(group, delta, level),
        ]
        for model, group in _by_model(good)
        for delta in sorted(set(config.deltas), reverse=True)
    ]
    notes = ["confidence: share of all texts, an undefined d counts as a fail (as published)"]
    return make_table("probdiff.confidence", "Confidence by threshold", _DELTAS, lines, notes=notes)


def _categories(context: Context, good: pl.DataFrame) -> Table:
    config: Config = context.config
    level, passes = context.confidence_level, _passes(config.deltas[0])
    lines: list[list[Cell]] = []
    for model, group in _by_model(good):
        parts = [
            (str(name), part)
            for (name,), part in group.sort("category").group_by("category", maintain_order=True)
        ]
        lines += [
            [
                model,
                name,
                part["item"].n_unique(),
                without_n(mean_of(part, pl.col("d"), level)),
                without_n(share_of(part, passes, level)),
            ]
            for name, part in (*parts, ("all (micro)", group))
        ]
        macro = macro_share_of(group, passes, "category", level)
        n = group["item"].n_unique()
        lines.append([model, "all (macro)", n, None, without_n(macro)])
    return make_table(
        "probdiff.categories",
        "ProbDiff by category",
        _CATEGORIES,
        lines,
        basis=f"confidence at {config.deltas[0]:g}",
    )


def _pairs(context: Context, good: pl.DataFrame) -> Table:
    config: Config = context.config
    frames = _by_model(good.select("item", "turn", "model", "d"))
    lines = [
        _pair((a, left), (b, right), config.tau, context.confidence_level)
        for (a, left), (b, right) in combinations(frames, 2)
    ]
    return make_table(
        "probdiff.pairs",
        "Wins between models",
        _PAIRS,
        lines,
        notes=[
            f"a model wins where its d is larger by more than {config.tau:g}; an undefined d loses "
            f"to a known one; preferred: wins and half the ties"
        ],
    )


def _pair(
    a: tuple[str, pl.DataFrame],
    b: tuple[str, pl.DataFrame],
    tau: float,
    confidence_level: float,
) -> Sequence[Cell]:
    both = a[1].join(b[1], on=["item", "turn"], suffix="_b")
    gap = pl.col("d") - pl.col("d_b")
    known, known_b = pl.col("d").is_not_null(), pl.col("d_b").is_not_null()
    wins = pl.when(known & known_b).then(gap > tau).otherwise(known & ~known_b)
    losses = pl.when(known & known_b).then(gap < -tau).otherwise(known_b & ~known)
    decided = both.with_columns(wins=wins, losses=losses)
    shares: dict[str, Any] = decided.select(
        wins=pl.col("wins").mean(), losses=pl.col("losses").mean()
    ).row(0, named=True)
    ties = None if not len(decided) else 1.0 - shares["wins"] - shares["losses"]
    half = (1.0 + pl.col("wins").cast(pl.Float64) - pl.col("losses").cast(pl.Float64)) / 2.0
    preferred = share_of(decided, half, confidence_level)
    return [a[0], b[0], shares["wins"], ties, shares["losses"], preferred]


def _texts(good: pl.DataFrame) -> Table:
    lines: list[list[Cell]] = []
    for model, group in _by_model(good):
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
            "marker leaks: rewritings that repeat a heading of the prompt; they are scored as they "
            "are",
            "tokens: mean over pairs of texts that were both scored",
        ],
    )
