"""Verdicts of judges as tables: ratings, wins and ties of both orders, and AlignBench's score.

AlignBench's overall = the mean of (the mean of the two reasoning categories) and (the mean of the
six language categories). Each category weighs the same within its half, whatever its number of
questions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER, OVER, prompt_words
from orchestrator.methods._harness import HarnessSettings
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    Measured,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import METHODS, comparisons, groups, mean_of, n_prompts, share_of
from orchestrator.records import Floats
from orchestrator.statistics.resampling import JACKKNIFE, Jackknifed, jackknife_sums, mean_of_sums
from orchestrator.tables import measured

VERDICT_COLUMNS: Final = (
    "item", "category", "turn", "judge", "model", "model_a", "model_b", "rating", "winner",
    "winner_ab", "winner_ba", "parsed", "expected", "prefer_a", "coverage", "status", "cause",
)  # fmt: skip
"""Columns of verdicts that their tables need: no texts and no distributions."""
OK: Final = pl.col("status") == "ok"
_BEST_FIRST: Final = 2
_RATED: Final = pl.col("rating").is_not_null()

REASONING: Final = {"Math": "数学计算", "Logic": "逻辑推理"}
LANGUAGE: Final = {
    "Fund": "基本任务",
    "Chi": "中文理解",
    "Open": "综合问答",
    "Writ": "文本写作",
    "Role": "角色扮演",
    "Pro": "专业能力",
}
"""Category names as the papers abbreviate them, and as AlignBench's data has them."""

_EACH_ITS_OWN: Final = "each model rates itself: a higher rating does not mean a better model"
_TITLES: Final = {
    "auto_j": ("Auto-J", ()),
    "critique_llm": ("CritiqueLLM", ()),
    "mt_bench_judge": ("MT-Bench", ()),
    "self_generation": ("Self-Generation", (_EACH_ITS_OWN,)),
}
"""Title and first notes of the tables of a method."""
_HALVES: Final = (REASONING, LANGUAGE)
_OVERALL: Final = table_columns(
    "model | judge | overall: number 2 | reasoning: number 2 | language: number 2",
    "over all questions: number 2",
)


class VerdictsSummary(Summary[HarnessSettings]):
    """Mean rating of each model, or wins and ties over both orders."""

    reads_alone = True
    reads = VERDICT_COLUMNS

    def summarise(self, context: Context) -> list[Table]:
        """Return ratings, or wins and pairs."""
        title, notes = _TITLES.get(context.own.kind, (context.name, ()))
        if self.config.pairwise:
            # Wins, ties and losses of each model and of each pair, and how far both orders agree.
            good = context.rows.filter(OK & pl.col("winner").is_not_null())
            tables = [_models(context, title), _pairs(context, title, good)]
        else:
            tables = rating_tables(context, title)
        return [msgspec.structs.replace(one, notes=(*notes, *one.notes)) for one in tables]


def rating_tables(context: Context, title: str) -> list[Table]:
    """Mean rating of each model with its interval, by turn and by category where there are any."""
    good = context.rows.filter(OK & _RATED)
    tables = [_ratings(context, title)]
    if good["category"].n_unique() > 1:
        tables.append(_categories(context, title, good))
    return tables


def _ratings(context: Context, title: str) -> Table:
    rows, level = context.rows, context.confidence_level
    turns = sorted(rows["turn"].drop_nulls().unique()) if rows["turn"].n_unique() > 1 else []
    read = rows["expected"].is_not_null().any()
    columns = [
        *table_columns("model | judge | rating: number 2"),
        *(Column(f"turn {turn}", "number", 2) for turn in turns),
        *([Column("expected", "number", 2)] if read else []),
        *table_columns("ratings: count | missing: count"),
    ]
    lines: list[list[Cell]] = []
    for names, group in groups(rows, "model", "judge"):
        good = group.filter(OK & _RATED)
        of_turn = [
            mean_of(good.filter(pl.col("turn") == t), pl.col("rating"), level) for t in turns
        ]
        lines.append(
            [
                *names,
                mean_of(good, pl.col("rating"), level),
                *(cell.value for cell in of_turn),
                *([mean_of(good, pl.col("expected"), level).value] if read else []),
                len(good),
                len(group) - len(good),
            ]
        )
    lines.sort(key=lambda line: _value(line[_BEST_FIRST]), reverse=True)
    return make_table(
        f"{context.own.kind}.ratings",
        f"{title}: ratings",
        columns,
        lines,
        basis=_basis(rows),
        notes=_notes(rows, read=read),
        comparisons=comparisons(rows.filter(OK & _RATED), pl.col("rating"), level),
    )


def _categories(context: Context, title: str, good: pl.DataFrame) -> Table:
    level = context.confidence_level
    lines: list[list[Cell]] = [
        [*names, n_prompts(group), mean_of(group, pl.col("rating"), level)]
        for names, group in groups(
            good.sort("category", maintain_order=True), "model", "judge", "category"
        )
    ]
    columns = table_columns("model | judge | category | prompts: count | rating: number 2")
    return make_table(
        f"{context.own.kind}.categories", f"{title}: ratings by category", columns, lines
    )


def _models(context: Context, title: str) -> Table:
    rows, level = context.rows, context.confidence_level
    read = rows["prefer_a"].is_not_null().any()
    sides = pl.concat([_side(rows, "a"), _side(rows, "b")])
    columns = [
        *table_columns("model | judge | adjusted win rate: percent"),
        *([Column("preferred", "percent")] if read else []),
        *table_columns(
            "wins: count | ties: count | losses: count | win rate: percent | missing: count"
        ),
    ]
    lines: list[list[Cell]] = []
    for names, own in groups(sides, "model", "judge"):
        n = Counter(own["result"])
        preferred = share_of(own, pl.col("preferred"), level).value
        lines.append(
            [
                *names,
                share_of(own, pl.col("credit"), level),
                *([preferred] if read else []),
                *(n[result] for result in ("A", "tie", "B")),
                share_of(own, pl.col("credit") == 1.0, level).value,
                n[None],
            ]
        )
    lines.sort(key=lambda line: _value(line[_BEST_FIRST]), reverse=True)
    return make_table(
        f"{context.own.kind}.wins",
        f"{title}: wins over all opponents",
        columns,
        lines,
        basis=_basis(rows),
        notes=[
            "a verdict counts as a win if both orders agree, else as a tie; adjusted: ties count "
            "one half",
            *_notes(rows, read=read),
        ],
        comparisons=comparisons(sides, pl.col("credit"), level, ends=(0.0, 1.0)),
    )


def _pairs(context: Context, title: str, good: pl.DataFrame) -> Table:
    level = context.confidence_level
    same = pl.col("winner_ab") == pl.col("winner_ba")
    # Told apart by what each order said of the answer shown first.
    first = ((pl.col("winner_ab") == "A") & (pl.col("winner_ba") == "B")).cast(pl.Float64)
    lines: list[list[Cell]] = []
    for names, group in groups(good, "model_a", "model_b", "judge"):
        lines.append(
            [
                *names,
                share_of(group, pl.col("winner") == "A", level),
                share_of(group, pl.col("winner") == "tie", level).value,
                share_of(group, pl.col("winner") == "B", level).value,
                share_of(group, same, level).value,
                share_of(group, first, level).value,
                len(group),
            ]
        )
    columns = table_columns(
        "model | against | judge | wins: percent | ties: percent | losses: percent",
        "orders agree: percent | first in both: percent | verdicts: count",
    )
    return make_table(f"{context.own.kind}.pairs", f"{title}: pairs of models", columns, lines)


def _side(rows: pl.DataFrame, side: str) -> pl.DataFrame:
    """Verdicts from the view of one of the two models: as A, and what it earned of 0, 1/2, 1."""
    won = pl.col("winner") == side.upper()
    tie = pl.col("winner") == "tie"
    known = OK & pl.col("winner").is_not_null()
    return rows.select(
        "item",
        *OVER,
        "turn",
        "judge",
        model=f"model_{side}",
        result=pl.when(~known)
        .then(None)
        .when(tie)
        .then(pl.lit("tie"))
        .otherwise(pl.when(won).then(pl.lit("A")).otherwise(pl.lit("B"))),
        credit=pl.when(known).then(pl.when(tie).then(0.5).otherwise(won.cast(pl.Float64))),
        preferred=pl.col("prefer_a") if side == "a" else 1.0 - pl.col("prefer_a"),
    )


def _value(cell: Cell) -> float:
    value = cell.value if isinstance(cell, Measured) else None
    return float("-inf") if value is None else value


def _basis(rows: pl.DataFrame) -> str:
    missing = len(rows.filter(~OK))
    return prompt_words(rows) + (f" · {missing:,} missing" if missing else "")


def _notes(rows: pl.DataFrame, *, read: bool) -> Sequence[str]:
    notes = [METHODS]
    bad = rows.filter(~OK)
    if len(bad):
        causes = bad["cause"].fill_null("unknown").value_counts(sort=True)
        said = ", ".join(f"{cause} {n:,}" for cause, n in causes.iter_rows())
        notes.append(f"missing verdicts are excluded from all numbers: {said}")
    filled = len(rows.filter(OK & ~pl.col("parsed").fill_null(value=True)))
    if filled:
        notes.append(f"{filled:,} texts without a clear verdict are counted by the convention")
    if read:
        low = len(rows.filter(pl.col("coverage") < 0.5))
        notes.append(
            "read from the probabilities of the labels at the position of the verdict"
            + (f"; {low:,} with less than half of the mass on them" if low else "")
        )
    return notes


_Category = tuple[list[str], Floats]
"""The clusters of prompts of a category, and (number, sum) of the ratings of each."""


class AlignBenchSummary(Summary[MethodSettings]):
    """Ratings by category, and the overall score as a macro average."""

    reads = VERDICT_COLUMNS

    def summarise(self, context: Context) -> list[Table]:
        """Overall scores where the dataset has AlignBench's categories, then ratings."""
        tables = rating_tables(context, "AlignBench")
        known = {name for half in _HALVES for names in half.items() for name in names}
        if not tables or not known & set(context.rows["category"].drop_nulls()):
            return tables
        lines: list[list[Cell]] = []
        level = context.confidence_level
        for names, rows in groups(context.rows, "model", "judge"):
            good = rows.filter(OK & pl.col("rating").is_not_null())
            halves = [_groups(good, names) for names in _HALVES]
            lines.append(
                [
                    *names,
                    _weighted(halves, level),
                    *(_weighted([half], level) for half in halves),
                    mean_of(good, pl.col("rating"), level).value,
                ]
            )
        notes = ["overall: mean of the two halves, each the mean of its categories' means", METHODS]
        overall = make_table(
            "align_bench.overall", "AlignBench: overall", _OVERALL, lines, notes=notes
        )
        return [overall, *tables]


def _groups(good: pl.DataFrame, names: Mapping[str, str]) -> list[_Category]:
    found = []
    for either in names.items():
        rows = good.filter(pl.col("category").is_in(either))
        summed = rows.group_by(CLUSTER, maintain_order=True).agg(
            n=pl.len().cast(pl.Float64), total=pl.col("rating").sum()
        )
        sums = summed.select("n", "total").to_numpy()
        found.append((summed[CLUSTER].to_list(), sums))
    return found


def _weighted(halves: Sequence[Sequence[_Category]], confidence_level: float) -> Measured:
    """Mean over halves of the mean over their categories, which may share clusters."""
    groups = [
        (clusters, sums, 1.0 / len(half) / len(halves))
        for half in halves
        for clusters, sums in half
    ]
    every = dict.fromkeys(name for clusters, _, _ in groups for name in clusters)
    n = len(every)
    if not all(clusters for clusters, _, _ in groups):
        return Measured(None, n=n, why="a category has no rating")
    means = [jackknife_sums(sums, mean_of_sums) for _, sums, _ in groups]
    value = sum(weight * mean.value for (_, _, weight), mean in zip(groups, means, strict=True))
    if min(len(clusters) for clusters, _, _ in groups) < 2:
        return Measured(value, n=n, why="a category has one independent prompt: no interval")
    places = {name: place for place, name in enumerate(every)}
    errors, sizes = np.zeros(n), np.zeros(n)
    for (clusters, sums, weight), mean in zip(groups, means, strict=True):
        at = [places[name] for name in clusters]
        errors[at] += weight * mean.errors
        sizes[at] += sums[:, 0]
    found = Jackknifed(value, errors)
    return measured(
        found.estimate(JACKKNIFE, sizes, confidence_level, n_strata=len(groups)), with_n=True
    )
