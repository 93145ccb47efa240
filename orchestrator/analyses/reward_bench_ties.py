"""Score of RewardBench 2's subset Ties, from the ratings of a judge of single answers."""

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
from pydantic import Field

from orchestrator.frames import columns_of
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Settings,
    Source,
    Table,
    UsageError,
    make_table,
)
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.points import score, source_of
from orchestrator.statistics.clustered import clustered_share
from orchestrator.statistics.means import clustered_mean
from orchestrator.statistics.ties import TiesScore, rated, ties_score
from orchestrator.tables import measured

_FORMS: Final = ("ref", "tied")
_SHARES: Final = ("ref", "tied", "preferred", "preferred_hard")


class Config(Settings):
    """Settings of `reward_bench_ties`."""

    method: str | None = Field(
        None, description="Method that rates the answers. Default: the first one that does."
    )
    column: str | None = Field(None, description="Column of its rows. Default: its first score.")


class RewardBenchTiesAnalysis(Analysis[Config]):
    """Accuracy and margins of RewardBench 2's subset Ties, and the score made of them."""

    cites = ("malik2025rewardbench2",)

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate the parts of the score in one row, with intervals over prompts.

        Raises:
            UsageError: If no method rates single answers, or no prompt has all its ratings.
        """
        source, column = _rating(context, self.config)
        found = score(context, source, column)
        of_item = {
            item: found.orientation * value
            for item, value in found.means().select("item", "value").iter_rows()
        }
        scores, n_missing = _by_prompt(context, of_item)
        if not scores:
            raise UsageError(
                f"{context.name}: no prompt has a rating by {found.name} of all its answers; it "
                "needs the dataset `reward_bench_2_ties`"
            )
        return [_table(scores, found.name, n_missing, context)]


def _rating(context: Context, config: Config) -> tuple[Source, str]:
    if config.method is not None:
        sources: Sequence[Source] = [source_of(context, config.method)]
    else:
        sources = [one for one in context.sources if one.scores and one.method.pairs is None]
    if not sources:
        raise UsageError(f"{context.name}: no method of this recipe rates single answers")
    column = config.column or next(iter(sources[0].scores), None)
    if column is None:
        raise UsageError(f"{context.name}: {sources[0].name!r} gives no scores")
    return sources[0], column


def _by_prompt(context: Context, of_item: dict[str, float]) -> tuple[list[TiesScore], int]:
    """Return the score of each prompt with all ratings, and the number of the others."""
    items = columns_of(context.frames, "items", ("item", "category", "cluster", "fields"))
    if not items.width:
        raise UsageError(f"{context.name}: this run has no columns of its dataset")
    ratings: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for item, form, question, fields in items.iter_rows():
        if form not in _FORMS or question is None:
            continue
        right, wrong = ratings.setdefault(question, {}).setdefault(form, ([], []))
        is_right = json.loads(fields).get("right") if fields else None
        (right if is_right in (True, "True", "true") else wrong).append(
            of_item.get(item, float("nan"))
        )
    found = []
    for forms in ratings.values():
        ref, tied = (rated(*forms.get(form, ([], []))) for form in _FORMS)
        if ref is not None and tied is not None:
            found.append(ties_score(ref, tied))
    return found, len(ratings) - len(found)


def _table(scores: Sequence[TiesScore], name: str, n_missing: int, context: Context) -> Table:
    level, prompts = context.confidence_level, np.arange(len(scores))
    ones = np.ones(len(scores))
    row: list[Cell] = [name]
    for part in _SHARES:
        values = np.array([getattr(one, part) for one in scores])
        row.append(without_n(measured(clustered_share(values, ones, level))))
    for part in ("margin", "overall"):
        values = np.array([getattr(one, part) for one in scores])
        row.append(without_n(measured(clustered_mean(values, prompts, level))))
    columns = (
        Column("rating"),
        Column("accuracy, one right", "percent"),
        Column("accuracy, several right", "percent"),
        Column("margin above spread", "percent"),
        Column("in both forms", "percent"),
        Column("margin", "signed"),
        Column("score", "percent"),
    )
    notes = [
        "accuracy: prompts whose right answers are all rated above all wrong ones; margin above "
        "spread: the gap of right and wrong answers is larger than the spread of the right ones",
        "score: 0.3 of each accuracy, 0.2 of each share of margins, 0.01 of the margin (Malik et "
        "al. 2025 and the benchmark's code)",
    ]
    if n_missing:
        notes.append(f"left out: {n_missing:,} prompts without a rating of every answer")
    basis = f"{len(scores):,} prompts, each with one and with several right answers"
    title = "RewardBench 2: Ties"
    return make_table("reward_bench_ties", title, (*columns,), [row], basis=basis, notes=notes)
