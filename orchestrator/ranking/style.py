"""Ratings at equal style, from the pairs that a method judged and the texts of their answers.

Features are the answers' length and Markdown (`orchestrator.statistics.bradley_terry`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from orchestrator.clusters import OVER, codes, prompt_words
from orchestrator.contracts.context import Context, Source, answer_slices, answers_behind
from orchestrator.errors import UsageError
from orchestrator.frames import CATEGORIES
from orchestrator.ranking.cells import floats, packed
from orchestrator.ranking.preferences import SOFT, Preferences, judged_rows, preferences
from orchestrator.records import Floats
from orchestrator.statistics.bradley_terry import (
    ELO_MEAN,
    ELO_SCALE,
    LEAST_OWN,
    LEAST_PROMPTS,
    StyledPairs,
    StyleFit,
    fit_bradley_terry,
    fit_style,
)
from orchestrator.statistics.multiple import holm
from orchestrator.statistics.results import Interval
from orchestrator.tables import (
    Cell,
    Column,
    Measured,
    Table,
    make_table,
    table_columns,
    with_interval,
)

FEATURES: Final = ("length", "headers", "lists", "bold")
_CODE: Final = r"(?s)```.*?```"
_PATTERNS: Final = {
    "headers": r"(?m)^#{1,6}\s",
    "lists": r"(?m)^\s*(?:\d+\.|[-*+])\s",
    "bold": r"\*\*[^*\n]+\*\*|__[^_\n]+__",
}
_KEYS: Final = ("item", "turn", "model")
PLACES: Final = ("place_a", "place_b")
# Of pairs and, for scores, of answers.
_READ: Final = ("item", "turn", "judge", "model_a", "model_b", SOFT, "status", "model", "p")


@dataclass(frozen=True, slots=True)
class Styled:
    """The pairs that are fitted, and what is left out.

    Attributes:
        rows: A row for each pair: `clusters.OVER`, and the `PLACES` of both answers in `styles`.
        models: M names.
        pairs: The pairs with the features that have an effect of their own.
        features: Their K names.
        notes: On models and features that are left out.
    """

    rows: pl.DataFrame
    models: tuple[str, ...]
    pairs: StyledPairs
    features: tuple[str, ...]
    notes: tuple[str, ...]


def equal_style(context: Context, source: Source) -> list[Table]:
    """Tabulate ratings side by side, and the effects of features that can be controlled.

    Raises:
        UsageError: If no pair of answers was judged, or none of their texts is in the run.
    """
    styles = styles_of(context, source)
    rows = judged_rows(context, source, _READ)
    if rows.is_empty() or (found := preferences(rows)).rows.is_empty():
        raise UsageError(f"{context.name}: {source.name!r} has no judged pair of answers")
    del rows
    kept = with_places(found, styles)
    if kept.rows.is_empty():
        raise UsageError(f"{context.name}: the run has no texts of the answers that were judged")
    judged = controllable(kept, styles)
    if n_lacking := len(found.rows) - len(kept.rows):
        note = f"{n_lacking:,} pairs are left out: the run lacks an answer"
        judged = replace(judged, notes=(note, *judged.notes))
    del found, kept
    plain = fit_style(replace(judged.pairs, features=judged.pairs.features[:, :0]))
    controlled = fit_style(judged.pairs)
    tables = [_ratings(source.name, judged, styles, (plain, controlled), context)]
    if controlled is not None and judged.features:
        tables.append(_effects(judged, controlled, context))
    return tables


def with_places(found: Preferences, styles: pl.DataFrame) -> Preferences:
    """Return the pairs whose two answers are in the run, with the `PLACES` of these.

    Numbers stand for answers: joins by three keys take several times the memory.
    """
    answers = styles.select(_KEYS)
    asked = (
        found.rows.select("item", "turn", model=f"model_{side}").cast(answers.schema)
        for side in ("a", "b")
    )
    of_answer = codes(packed(pl.concat([answers, *asked]), _KEYS))
    place = np.full(int(of_answer.max(initial=-1)) + 1, -1, np.int32)
    place[of_answer[: len(answers)]] = np.arange(len(answers))
    at = dict(zip(PLACES, place[of_answer[len(answers) :]].reshape(2, -1), strict=True))
    rows = found.rows.select("model_a", "model_b", *OVER, SOFT, **at)
    return replace(found, rows=rows.filter(pl.min_horizontal(PLACES) >= 0))


def controllable(found: Preferences, styles: pl.DataFrame) -> Styled:
    """Return the pairs with finite ratings, and the features whose effect can be fitted."""
    sides = found.sides()
    wins = sides.summing()(np.clip(found.values(SOFT), 0.0, 1.0)).win_matrix
    placed = fit_bradley_terry(wins).anchored
    alone = [name for name, there in zip(found.models(), placed, strict=True) if not there]
    inside = pl.Series(placed[sides.first] & placed[sides.second])
    found = replace(found, rows=found.rows.filter(inside))
    notes = [f"left out, as they have no finite rating: {', '.join(alone)}"] if alone else []
    sides, names = found.sides(), np.array(FEATURES)
    pairs = StyledPairs(
        sides.prompts,
        sides.first,
        sides.second,
        sides.n_models,
        np.clip(found.values(SOFT), 0.0, 1.0),
        _differences(found.rows, styles),
    )
    differing = pairs.n_prompts_differing()
    kept = (pairs.own_shares() > LEAST_OWN) & (differing >= LEAST_PROMPTS)
    for name, n in zip(names[~kept], differing[~kept], strict=True):
        why = "the models and other features fix it"
        if n < LEAST_PROMPTS:
            why = f"answers differ in it on {n or 'no'} prompt{'' if n == 1 else 's'}"
        notes.append(f"{name} is not controlled: {why}")
    return Styled(
        found.rows.select(*OVER, *PLACES),
        found.models(),
        replace(pairs, features=pairs.features[:, kept]),
        tuple(names[kept].tolist()),
        tuple(notes),
    )


def styles_of(context: Context, source: Source) -> pl.DataFrame:
    """Count every feature in each answer that a method compared: item, turn, model, features.

    Texts are read some thousand at a time.

    Raises:
        UsageError: If the run has no texts of answers.
    """
    prose = pl.col("text").str.replace_all(_CODE, "")
    counts = [prose.str.count_matches(_PATTERNS[name]).alias(name) for name in FEATURES[1:]]
    length = pl.col("text").str.len_chars().alias("length")
    parts = [
        part.drop_nulls("text").select("method", *_KEYS, length, *counts).with_columns(CATEGORIES)
        for part in answer_slices(context.frames, ("method", *_KEYS, "text"))
    ]
    if not parts:
        raise UsageError(f"{context.name}: the run has no answers")
    found = answers_behind(pl.concat(parts, rechunk=True), source.name)
    is_first = packed(found, _KEYS).is_first_distinct()
    return found.select(*_KEYS, *FEATURES).filter(is_first)


def _differences(rows: pl.DataFrame, styles: pl.DataFrame) -> Floats:
    """Return (a - b) / (a + b + 1) of each feature of a pair's answers: shape (n, K)."""
    found = np.empty((len(rows), len(FEATURES)))
    for at, name in enumerate(FEATURES):
        values = floats(styles[name])
        a, b = (values[rows[place].to_numpy()] for place in PLACES)
        found[:, at] = (a - b) / (a + b + 1.0)
    return found


def _means(
    rows: pl.DataFrame, styles: pl.DataFrame, models: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Return the mean of every feature over the answers of each model."""
    answers = styles[pl.concat(rows[place] for place in PLACES).unique()]
    means = answers.group_by("model").agg(pl.col(name).mean() for name in FEATURES)
    by_model = {name: tuple(values) for name, *values in means.iter_rows()}
    return {model: by_model[model] for model in models}


def _ratings(
    method: str,
    judged: Styled,
    styles: pl.DataFrame,
    fits: tuple[StyleFit | None, StyleFit | None],
    context: Context,
) -> Table:
    """Each model's rating as judged and at equal style, best at equal style first."""
    level, counts = context.confidence_level, _means(judged.rows, styles, judged.models)
    plain, controlled = fits
    lines: list[list[Cell]] = []
    for at, model in enumerate(judged.models):
        change: Measured | None = None
        if plain is not None and controlled is not None:
            gap, interval = controlled.change_from(plain, at, level)
            change = _elo(gap, interval, 0.0)
        means: list[Cell] = list(counts[model])
        lines.append(
            [model, _rating(plain, at, level), _rating(controlled, at, level), change, *means]
        )
    order = controlled or plain
    if order is not None:
        lines = [lines[at] for at in np.argsort(-order.strengths, kind="stable")]
    notes = [
        "at equal style: the rating if both answers of a pair were alike in "
        f"{', '.join(judged.features)}; Bradley-Terry with these as covariates"
        if judged.features
        else "no feature of style can be controlled: both ratings are the same",
        "intervals over prompts, for these judges; change: with the interval of the difference",
        *judged.notes,
    ]
    if plain is None:
        notes.append("no rating: fewer than two models are connected by wins and losses")
    elif controlled is None:
        notes.append("no rating at equal style: models and style together decide every pair")
    columns = (
        *table_columns(
            "model | rating: rating | at equal style: rating | change: signed 0",
            "characters: number 0",
        ),
        *(Column(name, "number", 1) for name in FEATURES[1:]),
    )
    basis = f"{len(judged.rows):,} judged pairs of {method} · {prompt_words(judged.rows)}"
    title = "Ratings with and without control of style"
    return make_table("style_control", title, columns, lines, basis=basis, notes=notes)


def _rating(fit: StyleFit | None, at: int, level: float) -> Measured | None:
    if fit is None:
        return None
    return _elo(float(fit.strengths[at]), fit.interval(at, level), ELO_MEAN)


def _elo(strength: float, interval: Interval | None, mean: float) -> Measured:
    if interval is None:
        return Measured(mean + ELO_SCALE * strength, why="no interval from fewer than two prompts")
    low, high = (mean + ELO_SCALE * bound for bound in (interval.low, interval.high))
    return Measured(mean + ELO_SCALE * strength, low, high)


def _effects(judged: Styled, fit: StyleFit, context: Context) -> Table:
    """Return the effect of each feature, and which of them can be fitted."""
    n_models = len(judged.models)
    adjusted = holm(np.array([fit.p_value(k) for k in range(len(judged.features))]))
    own, spreads = judged.pairs.own_shares(), judged.pairs.spreads()
    lines: list[list[Cell]] = []
    for k, name in enumerate(judged.features):
        value = float(fit.effects[k])
        interval = fit.interval(n_models + k, context.confidence_level)
        lines.append(
            [
                name,
                with_interval(value, interval),
                ELO_SCALE * value,
                None if np.isnan(adjusted[k]) else float(adjusted[k]),
                float(spreads[k]),
                float(own[k]),
            ]
        )
    columns = table_columns(
        "feature | effect: signed 3 | Elo: signed 0 | p: p | spread: number 3",
        "of its own: percent",
    )
    notes = [
        "effect: log-odds of being preferred for a difference of one spread (root mean square of "
        "the pairs' differences) at equal strength; Elo: the same in points",
        "p: of no effect, Holm over the features; of its own: share of the feature's variance that "
        "neither models nor other features explain",
        "an effect is no proof of a bias: better answers may be longer",
    ]
    title = "Effects of style"
    return make_table("style_control.effects", title, columns, lines, notes=notes)
