"""Preferences between two models on one item, by every estimator, and their tables.

Estimators of pairwise methods stand in their rows; those of pointwise ones are made here, from the
score distributions of both models on the same item. All are in [-1, 1], positive where model A is
better, but `SCORES`, which is a difference of scores. A decision is the sign of one; what is within
1e-9 of 0 is a tie.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator import numbers
from orchestrator.clusters import CLUSTER, OVER, codes, n_distinct, prompt_words
from orchestrator.contracts.context import Context, Source, renamed
from orchestrator.disk import columnar
from orchestrator.judgment.pointwise import compare_scores, score_table
from orchestrator.ranking.cells import good_rows, numbered, numbers_of, order_words, packed
from orchestrator.records import Floats, Ints
from orchestrator.statistics.judgments import davidson, decided
from orchestrator.statistics.means import levelled
from orchestrator.statistics.prompt_sums import Pairs, PromptSums, mean_preferences
from orchestrator.statistics.ratings import Ratings, rate
from orchestrator.tables import Cell, Measured, Table, make_table, table_columns

POINTWISE: Final = (
    "mode", "rounded_mean", "median", "first_percentile", "mean", "ram", "quantile", "superiority",
)  # fmt: skip
PAIRWISE: Final = (
    "mode_pre", "mode_post", "median_pre", "median_post", "mean_pre", "mean_post", "margin",
    "davidson",
)  # fmt: skip
SCORES: Final = "mean_scores"
"""Mean score of A's answer minus that of B's, each averaged over both orders: of methods that score
both answers in one reply. A write-up of Wang, Zhang and Choi 2025 describes it."""
SOFT: Final = "prefer_a"
"""P(A better) + P(tie) / 2, in [0, 1]."""
ORDERS: Final = (f"{SOFT}_ab", f"{SOFT}_ba")
"""The same in each order."""
TIED: Final = "p_tie"
"""P(tie), mean of both orders, or P(equal scores)."""
WORDS: Final = {
    "mode": "mode",
    "rounded_mean": "rounded mean",
    "median": "median",
    "first_percentile": "1st percentile",
    "mean": "mean",
    "ram": "RAM",
    "quantile": "QT",
    "superiority": "PS",
    "mode_pre": "mode, pre",
    "mode_post": "mode, post",
    "median_pre": "median, pre",
    "median_post": "median, post",
    "mean_pre": "mean, pre",
    "mean_post": "mean, post",
    SCORES: "mean of scores",
    "margin": "margin of traces",
    "davidson": "Davidson",
}
UNIT: Final = ("item", *OVER, "turn", "judge", "model_a", "model_b")
COLUMNS: Final = (
    *(name for name in UNIT if name not in OVER), "category", "status", SOFT, *PAIRWISE,
    "score_a", "score_b", "coverage_ab", "coverage_ba", "same_text", "model", "p", "coverage",
    "traces", *ORDERS,
)  # fmt: skip
"""Columns read from the rows of a judge."""
_VERDICTS: Final = ("p_ab", "p_ba")
_OF_ANY: Final = ("item", "category", "status")
_UNKNOWN: Final = pl.lit(None, pl.Float64)
_FILLED: Final = {"turn": pl.lit(1, pl.Int64), "judge": pl.lit("")}
_FILLED_SCORES: Final = {**_FILLED, "coverage": _UNKNOWN}
_FILLED_PAIRS: Final = {
    **_FILLED,
    **dict.fromkeys(("coverage_ab", "coverage_ba", *ORDERS), _UNKNOWN),
    "same_text": pl.lit(None, pl.Boolean),
    "mean_pre": 2.0 * pl.col(SOFT).cast(pl.Float64) - 1.0,
}
# Of a few arrays that fit into the cache of a processor.
_CELLS: Final = 2**16


@dataclass(frozen=True, slots=True)
class Preferences:
    """Judged pairs.

    Attributes:
        rows: Columns `UNIT`, category, `SOFT`, the estimators, coverage (of what was read, the
            least mass on the labels) and same_text (whether both answers are equal), `TIED` if it
            was read, and orders of pairs, 1 minus what two orders are apart; only pairs that were
            judged.
        estimators: Names of columns.
        mean: The one of them that the source recommends.
        n_missing: Pairs of an item without a judgment.
    """

    rows: pl.DataFrame
    estimators: tuple[str, ...]
    mean: str
    n_missing: int

    def by_judge(self) -> Iterator[tuple[str, "Preferences"]]:
        """Yield each judge, "" where rows name none, and its pairs; `n_missing` is that of all."""
        judges = self.rows["judge"].unique(maintain_order=True).to_list()
        for judge in judges:
            only = len(judges) == 1
            rows = self.rows if only else self.rows.filter(pl.col("judge").eq_missing(judge))
            yield judge or "", replace(self, rows=rows)

    def settings(self, method: str) -> Iterator[tuple[str, str, "Preferences"]]:
        """Yield the name of a method with each judge, the judge, and the preferences of both."""
        parts = list(self.by_judge())
        for judge, part in parts:
            yield method if len(parts) == 1 else f"{method} · {judge}", judge, part

    def values(self, name: str) -> Floats:
        """An estimator, shape (n,)."""
        return self.rows[name].to_numpy().astype(np.float64)

    def decisions(self, name: str) -> Floats:
        """Its signs, shape (n,): 1 for A, -1 for B, 0 for a tie."""
        values = self.values(name)
        return values if self.rows[name].dtype.is_integer() else decided(values)

    def prompts(self) -> Ints:
        """The cluster of each pair as a number: what intervals are over, shape (n,)."""
        return codes(self.rows[CLUSTER])

    def models(self) -> tuple[str, ...]:
        """Names, sorted."""
        both = pl.concat([self.rows["model_a"], self.rows["model_b"]])
        return tuple(sorted(both.unique().to_list()))

    def rated(self, preference: Floats, confidence_level: float) -> Ratings:
        """Ratings of the models by preferences for A in [0, 1], shape (n,), as those of `SOFT`."""
        sums = self.sides().summing()(np.clip(preference, 0.0, 1.0))
        return rate(sums, self.models(), confidence_level=confidence_level)

    def sides(self) -> Pairs:
        """The models of each pair and its cluster, as numbers."""
        models = self.models()
        known = pl.Enum(models)
        first, second = (
            self.rows[side].cast(known).to_physical().cast(pl.Int32).to_numpy()
            for side in ("model_a", "model_b")
        )
        return Pairs(self.prompts().astype(np.int32), first, second, len(models))


def judged_rows(context: Context, source: Source, wanted: Sequence[str] = COLUMNS) -> pl.DataFrame:
    """Return the rows of a judging method with the columns that `preferences` reads.

    Of these only the wanted ones have values; that saves memory. With `TIED` among them, pairs get
    it: null where the method has no distribution over verdicts. Texts are categories and clusters
    numbers, in a fraction of the memory.
    """
    pairs, scores = source.method.pairs, source.method.distribution
    role = scores if pairs is None else pairs
    named = {} if role is None else role.columns()
    ties = TIED in wanted and pairs is not None
    read = (*wanted, *_VERDICTS) if ties else wanted
    columns = {name: column for name, column in named.items() if name in read}
    rows = context.rows_of(source, [*_OF_ANY, *columns.values()], as_categories=True)
    if rows.is_empty():
        return rows
    rows = renamed(rows.with_columns(numbers_of(rows["item"], context.clusters)), columns)
    columns = {name: column for name, column in columns.items() if name in rows.columns}
    rows = rows.select(*_OF_ANY, *OVER, *columns)
    filled = _FILLED_SCORES if pairs is None else _FILLED_PAIRS
    rows = rows.with_columns(
        value.alias(name) for name, value in filled.items() if name not in columns
    )
    if not ties:
        return rows
    # The middle one of an odd number of verdicts.
    middles = [
        pl.col(name).list.get(pl.col(name).list.len() // 2, null_on_oob=True)
        for name in _VERDICTS
        if name in columns
    ]
    tied = pl.mean_horizontal(middles, ignore_nulls=False) if middles else _UNKNOWN
    return rows.with_columns(tied.alias(TIED)).drop(_VERDICTS, strict=False)


def preferences(rows: pl.DataFrame) -> Preferences:
    """Preferences of the rows of a pointwise or of a pairwise method."""
    if "model" in rows.columns:
        return _from_scores(rows, [good_rows(rows)["p"]])
    if "traces" in rows.columns:
        rows = _with_traces(rows)
    known: list[str] = [name for name in PAIRWISE if name in rows.columns]
    if {"score_a", "score_b"} <= set(rows.columns):
        rows = rows.with_columns((pl.col("score_a") - pl.col("score_b")).alias(SCORES))
        known.append(SCORES)
    good = pl.col("status") == "ok"
    for name in (*known, SOFT):
        good &= pl.col(name).is_finite()
    is_used = rows.select(good.fill_null(value=False)).to_series()
    # A filter that keeps all would copy all.
    used = rows if is_used.all() else rows.filter(is_used)
    return Preferences(
        used.select(
            *UNIT,
            "category",
            SOFT,
            *known,
            "same_text",
            *(name for name in (TIED,) if name in rows.columns),
            coverage=pl.min_horizontal("coverage_ab", "coverage_ba"),
            orders=1.0 - (pl.col(ORDERS[0]) - pl.col(ORDERS[1])).abs()
            if ORDERS[0] in rows.columns
            else _UNKNOWN,
        ),
        tuple(known),
        "mean_pre",
        len(rows) - len(used),
    )


def _with_traces(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the margin of each pair's traces and Davidson's preference, where there are any."""
    told = (rows["traces"].list.sum() > 0).fill_null(value=False)
    if not told.any():
        return rows
    found = np.full((2, len(rows)), np.nan)
    for judge in rows.filter(told)["judge"].unique(maintain_order=True):
        at = (told & rows["judge"].eq_missing(judge)).to_numpy()
        counts = _matrix(rows["traces"].filter(pl.Series(at)))
        found[0, at] = (counts[:, 0] - counts[:, 2]) / counts.sum(axis=1)
        found[1, at] = davidson(counts)[0]
    return rows.with_columns(margin=pl.Series(found[0]), davidson=pl.Series(found[1]))


def tables_by_judge(context: Context, key: str) -> Iterator[Table]:
    """Yield the win rates and the estimators of each judge of a pointwise method.

    Of the estimators there are the signs, a byte each. Distributions are read in slices, and held
    as far as a pair waits for its other side.
    """
    parts = context.slices_of(context.own, ("status", "p"))
    decisions = _from_scores(
        numbered(context, ("item", "model", "judge", "turn", "status")),
        (good_rows(part)["p"] for part in parts),
        as_decisions=True,
    )
    for judge, found in decisions.by_judge():
        yield rates_table(found, context, key, judge)
        yield estimator_table(found, key, judge)


def _from_scores(
    rows: pl.DataFrame, distributions: Iterable[pl.Series], *, as_decisions: bool = False
) -> Preferences:
    """Every two models that one judge rated on the same turn of an item.

    `distributions` are those of the rows that did not fail, in their order. With `as_decisions`
    there is only what tables of this module need.
    """
    models = rows["model"].unique(maintain_order=True).to_list()
    n_pairs = n_distinct(packed(rows, ("judge", "item"))) * math.comb(len(models), 2)
    others = [] if as_decisions else ["item", "turn", "category", "coverage"]
    told = good_rows(rows)
    del rows
    # Numbers stand for what two models share: joins by three keys take several times the memory.
    item = packed(told, ("judge", "item"))
    unit = codes(packed(told, ("judge", "item", "turn")))
    model = told["model"].cast(pl.Enum(models))
    of_model = model.to_physical().to_numpy()
    # A byte each, where nothing else is joined to them.
    told = told.select(*OVER, "judge", model if as_decisions else "model", *others)
    at_of = np.full((len(models), int(unit.max(initial=-1)) + 1), -1, np.int32)
    at_of[of_model, unit] = np.arange(len(told))
    parts = [np.zeros((2, 0), np.int32)]
    n_there = 0
    for a, b in combinations(range(len(models)), 2):
        of_a = np.flatnonzero(of_model == a)
        both = np.stack([of_a, at_of[b, unit[of_a]]]).astype(np.int32)
        parts.append(both[:, both[1] >= 0])
        n_there += item.gather(parts[-1][0]).n_unique()
    first, second = np.concatenate(parts, axis=1)
    del unit, item, of_model, at_of, parts
    if not first.size:
        names = (*UNIT, "category", SOFT, TIED, *POINTWISE)
        empty = pl.DataFrame(schema=dict.fromkeys(names, pl.String()))
        return Preferences(empty, POINTWISE, "mean", n_pairs)
    pairs = told.drop("model")[first].with_columns(
        model_a=told["model"].gather(first), model_b=told["model"].gather(second)
    )
    if not as_decisions:
        least = pl.min_horizontal("coverage", told["coverage"].gather(second))
        pairs = pairs.with_columns(coverage=least, orders=_UNKNOWN)
    del told
    found = _compared(first, second, distributions, as_decisions=as_decisions)
    columns = (pl.Series(name, values) for name, values in found.items())
    return Preferences(pairs.with_columns(columns), POINTWISE, "mean", n_pairs - n_there)


def _compared(
    first: Ints, second: Ints, distributions: Iterable[pl.Series], *, as_decisions: bool
) -> dict[str, np.ndarray]:
    """The preferences of pairs of distributions, given by their places.

    A distribution is held from where it stands to the last of its pairs.
    """
    kinds: dict[str, type] = {SOFT: np.float64}
    kinds |= dict.fromkeys(POINTWISE, np.int8 if as_decisions else np.float64)
    kinds |= {} if as_decisions else {TIED: np.float64, "same_text": np.bool_}
    found: dict[str, Any] = {name: np.empty(len(first), of) for name, of in kinds.items()}
    ready = np.maximum(first, second)
    order = np.argsort(ready, kind="stable")
    until = np.zeros(int(ready.max()) + 1, ready.dtype)
    for side in (first, second):
        np.maximum.at(until, side, ready)
    ready = ready[order]
    begin = n_done = 0
    at, held = np.zeros(0, np.int64), None
    tables = (_matrix(lists) for lists in distributions if len(lists))
    for part in chain.from_iterable(np.array_split(one, 1 + one.size // _CELLS) for one in tables):
        end = begin + len(part)
        at = np.append(at, np.arange(begin, end))
        held = part if held is None else np.concatenate([held, part])
        n_ready = int(np.searchsorted(ready, ready.dtype.type(end)))
        now, n_done, begin = order[n_done:n_ready], n_ready, end
        one, two = (np.searchsorted(at, side[now]) for side in (first, second))
        values = compare_scores(score_table(held), one, two)
        # A sum of products may exceed 1 by rounding.
        values[SOFT] = np.clip(0.5 + 0.5 * values["superiority"], 0.0, 1.0)
        if as_decisions:
            values |= {name: decided(values[name]) for name in POINTWISE}
        else:
            p_1, p_2 = held[one], held[two]
            values[TIED] = np.einsum("ns,ns->n", p_1, p_2)
            # Equal answers make equal prompts, which are asked once: their readings are the same.
            same = (p_1 == p_2) | (np.isnan(p_1) & np.isnan(p_2))
            found["same_text"][now] = same.all(axis=1)
        for name in values:
            found[name][now] = values[name]
        kept = until[np.minimum(at, len(until) - 1)] >= end
        at, held = at[kept], held[kept]
    return found


def _matrix(lists: pl.Series) -> Floats:
    """Lists of one length as an array of shape (n, length)."""
    (length,) = lists.list.len().unique().to_list() or [0]
    return lists.explode().to_numpy().reshape(len(lists), length).astype(np.float64, copy=False)


SOFT_WORD: Final = "P(better)"
"""Name in tables of the soft preference, which counts P(tie) as half."""

_SMALL: Final = 5e-4
_ESTIMATORS: Final = table_columns(
    "estimator | ties: percent | agrees with the mean: percent | order of the models"
)
_RATES: Final = table_columns(
    "estimator | model | win rate: percent | ties: percent | rating: rating | rank"
)


def estimator_table(found: Preferences, key: str, judge: str) -> Table:
    """Tabulate ties, agreement with the mean, and the order of models, for each estimator."""
    by_mean, summed, models = found.decisions(found.mean), found.sides().summing(), found.models()
    by_mean = by_mean.astype(np.int8)
    columnar.give_back()
    rows: list[list[Cell]] = []
    for name in found.estimators:
        decisions = found.decisions(name)
        shares = float((decisions == 0).mean()), float((decisions == by_mean).mean())
        won = summed(_wins(found, name)).win_matrix
        order = order_words(levelled(won.sum(axis=1) / (won + won.T).sum(axis=1), 1.0), models)
        rows.append([WORDS[name], *shares, order])
    return make_table(
        f"{key}.estimators",
        f"Estimators, judged by {judge}",
        _ESTIMATORS,
        rows,
        basis=_basis(found),
        notes=["order: by mean win rate, ties count one half; =: same rate"],
        judge=judge,
    )


def rates_table(found: Preferences, context: Context, key: str, judge: str) -> Table:
    """Win rate, ties and Bradley-Terry rating of each model by each estimator."""
    summed, level = found.sides().summing(), context.confidence_level
    columnar.give_back()
    sides = (found.rows["model_a"], found.rows["model_b"])
    members = [((sides[0] == one) | (sides[1] == one)).to_numpy() for one in found.models()]
    names = (SOFT, *found.estimators)
    rows = [line for name in names for line in _rate_lines(found, name, members, summed, level)]
    notes = [
        f"{SOFT_WORD}: mean of P(higher score) + P(equal)/2; the others count decisions, a tie as "
        "half a win",
        "ratings: Bradley-Terry, mean 1000, 400 points are odds of 10:1; intervals over prompts, "
        "for this judge",
    ]
    return make_table(
        f"{key}.win_rates",
        f"Models against each other, judged by {judge}",
        _RATES,
        rows,
        basis=_basis(found),
        notes=notes,
        judge=judge,
    )


def mass(coverage: pl.Series) -> str | None:
    """Return the mean of a share that may be tiny, as `0.998` or `3e-05`; None without one."""
    mean = coverage.fill_nan(None).mean()
    if not isinstance(mean, float):
        return None
    return f"{mean:.3f}" if mean >= _SMALL else f"{mean:.0e}"


def _wins(found: Preferences, name: str) -> Floats:
    """Decisions of an estimator as wins of A, shape (n,): a tie is half of one."""
    wins = found.decisions(name)
    wins *= 0.5
    wins += 0.5
    return wins


def _rate_lines(
    found: Preferences,
    name: str,
    members: Sequence[NDArray[np.bool_]],
    summed: Callable[[Floats], PromptSums],
    level: float,
) -> list[list[Cell]]:
    """One line a model by an estimator, or by `SOFT`, best first; `members` are pairs with each."""
    wins = np.clip(found.values(SOFT), 0.0, 1.0) if name == SOFT else _wins(found, name)
    sums, models = summed(wins), found.models()
    ties = wins == 0.5
    del wins
    rated = rate(sums, models, confidence_level=level)
    rates = mean_preferences(sums, level)
    lines: list[tuple[float, list[Cell]]] = []
    for at, (model, of_model) in enumerate(zip(models, members, strict=True)):
        value = float(rated.values[at])
        ranks = numbers.rank(int(rated.rank_low[at]), int(rated.rank_high[at]))
        lines.append(
            (
                -value if value == value else np.inf,
                [
                    WORDS.get(name, SOFT_WORD),
                    model,
                    between(rates.values[at], rates.low[at], rates.high[at]),
                    float(ties[of_model].mean()) if of_model.any() else None,
                    between(rated.values[at], rated.low[at], rated.high[at]),
                    ranks if rated.rank[at] else None,
                ],
            )
        )
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def between(value: float, low: float, high: float) -> Measured:
    """Return a value of a model with its bounds as a cell; empty where it is nan."""
    if np.isnan(value):
        return Measured(None, why="not compared")
    bounds = (None, None) if np.isnan(low) or np.isnan(high) else (float(low), float(high))
    return Measured(float(value), *bounds)


def _basis(found: Preferences) -> str:
    missing = f" · {found.n_missing:,} missing of all judges" if found.n_missing else ""
    return f"{len(found.rows):,} pairs of answers · {prompt_words(found.rows)}{missing}"
