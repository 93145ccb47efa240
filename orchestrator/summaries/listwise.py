"""Lists: ranks of the models, the effect of the place at which an answer is shown, estimators."""

from typing import Final

import polars as pl

from orchestrator.clusters import OVER, prompt_words
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import mean_of, share_of, without_n
from orchestrator.ranking.preferences import estimator_table, preferences

_FIGURES: Final = table_columns(
    "lists: count | expected rank: number 2 | place in the list: number 2", "listed first: percent"
)
_RANKS: Final = (Column("model"), Column("judge"), *_FIGURES)
_SHOWN: Final = (Column("judge"), Column("shown at place"), *_FIGURES)
_KEYS: Final = ("item", *OVER, "turn", "judge")


class ListwiseSummary(Summary[MethodSettings]):
    """Ranks of the models, the effect of the place at which an answer is shown, estimators."""

    reads_alone = True
    reads = (
        "item", "category", "turn", "model_a", "model_b", "judge", "prefer_a", "mean_pre",
        "mean_post", "mode_post", "coverage_ab", "coverage_ba", "same_text", "shown_a", "shown_b",
        "places_a", "places_b", "ranks_a", "ranks_b", "status", "cause",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate ranks by model and by the place shown; then estimators, for each judge."""
        good = context.rows.filter((pl.col("status") == "ok").fill_null(value=False))
        if good.is_empty():
            return []
        lists = _lists(good)
        tables = [_by_model(lists, context), _by_place(lists, context)]
        for judge, found in preferences(context.rows).by_judge():
            tables.append(estimator_table(found, "listwise", judge))
        return tables


def _lists(good: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each answer and list: columns `_KEYS`, model, shown, place, rank."""
    sides = [
        good.select(
            *_KEYS,
            model=f"model_{side}",
            shown=f"shown_{side}",
            place=f"places_{side}",
            rank=f"ranks_{side}",
        )
        for side in ("a", "b")
    ]
    answers = pl.concat(sides).unique([*_KEYS, "model"], keep="first", maintain_order=True)
    return answers.explode("shown", "place", "rank")


def _figures(group: pl.DataFrame, level: float) -> list[Cell]:
    return [
        len(group),
        *(without_n(mean_of(group, pl.col(name), level)) for name in ("rank", "place")),
        without_n(share_of(group, (pl.col("place") == 1.0).fill_null(value=False), level)),
    ]


def _by_model(lists: pl.DataFrame, context: Context) -> Table:
    rows: list[list[Cell]] = [
        [str(model), str(judge), *_figures(group, context.confidence_level)]
        for (judge, model), group in lists.group_by("judge", "model", maintain_order=True)
    ]
    notes = [
        "expected rank: by the distributions at all places (the mean), 1 for the best; place in "
        "the list: by the letters listed (the mode)",
        "intervals: over prompts, for these judges; lists in all orders of presentation",
    ]
    return make_table(
        "listwise", "Ranks in lists", _RANKS, rows, basis=prompt_words(lists), notes=notes
    )


def _by_place(lists: pl.DataFrame, context: Context) -> Table:
    rows: list[list[Cell]] = [
        [str(judge), f"{shown:.0f}", *_figures(group, context.confidence_level)]
        for (judge, shown), group in lists.sort("shown", maintain_order=True).group_by(
            "judge", "shown", maintain_order=True
        )
    ]
    notes = [
        "shown at place: where the judge saw an answer, 1 for the first; models stand at each "
        "place by chance, so that without order bias all rows are alike"
    ]
    return make_table(
        "listwise.places",
        "Ranks by the place at which an answer is shown",
        _SHOWN,
        rows,
        basis=prompt_words(lists),
        notes=notes,
    )
