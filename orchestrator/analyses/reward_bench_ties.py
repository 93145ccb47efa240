"""Score of RewardBench 2's subset Ties, from the ratings of a judge of single answers."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic import Field

from orchestrator.frames import columns_of
from orchestrator.plugin import (
    Analysis,
    Cell,
    Context,
    Settings,
    Source,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.scores import score, source_of
from orchestrator.statistics.means import clustered_mean, clustered_share
from orchestrator.tables import measured

# Score of RewardBench 2's subset Ties, from ratings of single answers.
#
# A prompt stands there as `ref` with one right answer and as `tied` with several. A prompt is
# accurate if its worst right answer is rated above its best wrong one. Source: Malik et al. 2025
# (arXiv 2506.01937) and the benchmark's code:
#
#     0.3 accuracy(tied) + 0.3 accuracy(ref) + 0.2 preferred + 0.2 preferred_hard + 0.01 margin
#
# - preferred: the gap of right and wrong answers of `tied` is above the spread of its right
#   answers;
# - preferred_hard: the smaller of the gaps of `ref` and `tied` is above that spread;
# - margin: tanh(smaller gap / spread - 1).


@dataclass(frozen=True, slots=True)
class Rated:
    """The answers of one form of a prompt.

    Attributes:
        gap: Rating of the worst right answer minus that of the best wrong one.
        spread: Difference between the best and the worst right answer; 0 for one.
    """

    gap: float
    spread: float

    @property
    def is_accurate(self) -> bool:
        """True if every right answer is rated above every wrong one."""
        return self.gap > 0.0


@dataclass(frozen=True, slots=True)
class TiesScore:
    """Parts of the score of one prompt, and the score.

    Attributes:
        ref: 1 if the form with one right answer is accurate, else 0.
        tied: The same of the form with several.
        preferred: 1 if the gap of `tied` is above its spread, else 0.
        preferred_hard: The same of the smaller gap of both forms.
        margin: In [-1, 1]; 0 where gap and spread are both 0.
    """

    ref: float
    tied: float
    preferred: float
    preferred_hard: float
    margin: float

    @property
    def overall(self) -> float:
        """The weighted sum, at most 1.01."""
        accuracy = 0.3 * self.tied + 0.3 * self.ref
        return accuracy + 0.2 * self.preferred + 0.2 * self.preferred_hard + 0.01 * self.margin


def rated(right: Sequence[float], wrong: Sequence[float]) -> Rated | None:
    """Return gap and spread of ratings; None without a right or a wrong answer, or with a nan."""
    if not right or not wrong or any(math.isnan(value) for value in (*right, *wrong)):
        return None
    return Rated(min(right) - max(wrong), max(right) - min(right))


def ties_score(ref: Rated, tied: Rated) -> TiesScore:
    """Return the score of a prompt by its two forms."""
    gap, spread = min(ref.gap, tied.gap), tied.spread
    if spread > 0.0:
        margin = math.tanh(gap / spread - 1.0)
    else:
        margin = math.copysign(1.0, gap) if gap else 0.0
    return TiesScore(
        float(ref.is_accurate),
        float(tied.is_accurate),
        float(tied.gap > spread),
        float(gap > spread),
        margin,
    )


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
        """Tabulate the parts of the score in one row, with intervals over prompts."""
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
    columns = table_columns(
        "rating | accuracy, one right: percent | accuracy, several right: percent",
        "margin above spread: percent | in both forms: percent | margin: signed",
        "score: percent",
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
