"""Settings, prompts and rows of judges that compare two answers in both orders."""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, TypeVar

from pydantic import Field

from orchestrator.columns import ESTIMATORS
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods._drawing import Turn, converse, fields, pairs_by_judge
from orchestrator.methods._examples import messages
from orchestrator.methods._judging import JudgeMethod, JudgeSettings
from orchestrator.plugin import (
    Ask,
    Columns,
    Combination,
    Compared,
    Messages,
    ModelName,
    PairColumns,
    Row,
    Unit,
    typed,
)

FIELDS: Final = ("prompt", "reference", "answer_a", "answer_b")
"""Fields that a template may show."""

PREFERENCES: Final[Columns] = typed(
    "p_ab p_ba: list[f64]",
    "coverage_ab coverage_ba prefer_a_ab prefer_a_ba prefer_a mean_pre mean_post: f64",
    "mode_pre mode_post median_pre median_post: f64",
)
"""Columns of the two orders' distributions, and of the preferences taken from them."""

READING: Final[Columns] = typed("exact same_text: bool | n_traces n_silent: i64")
"""Columns that say how the distributions were read."""


class PairwiseSettings(JudgeSettings):
    """Settings of methods in which a judge compares two answers."""

    SHOWN: ClassVar = ("answer_a", "answer_b")

    candidates: tuple[ModelName, ...] | None = Field(
        None, description="Models to evaluate. Default: all that are not judges.", min_length=2
    )


class Order(NamedTuple):
    """The judgment of one prompt, in the view of the answer shown first.

    Attributes:
        levels: An odd number of probabilities; the answer shown first much better at index 0.
        coverage: Probability that was on the labels.
        exact: True if the probability of every label is known.
        n_traces: Traces with a verdict; 0 where none were drawn.
        n_silent: Traces without a verdict.
    """

    levels: tuple[float, ...]
    coverage: float
    exact: bool
    n_traces: int
    n_silent: int


PAIR_COLUMNS: Final = PairColumns(
    judge="judge",
    turn="turn",
    preference_ab="prefer_a_ab",
    preference_ba="prefer_a_ba",
    p_ab="p_ab",
    p_ba="p_ba",
    coverage_ab="coverage_ab",
    coverage_ba="coverage_ba",
    exact="exact",
    same_text="same_text",
    estimators=ESTIMATORS,
)

PairwiseConfigT = TypeVar("PairwiseConfigT", bound=PairwiseSettings, covariant=True)


class PairwiseJudge(JudgeMethod[PairwiseConfigT]):
    """Base of methods in which a judge compares two answers in both orders."""

    unit_columns: ClassVar[Columns] = typed("item category model_a model_b judge: str")
    scores: ClassVar = {"prefer_a": 1}
    pairs = PAIR_COLUMNS

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """Every pair of candidates with every judge, a judge's pairs together."""
        return pairs_by_judge(candidates, self.config.judges)

    def compared(self) -> Compared:
        """P(A better), the mean of both orders."""
        return Compared("prefer_a", 0.0, 1.0)

    async def both_orders(
        self, unit: Unit, ask: Ask, **values: str
    ) -> tuple[list[tuple[Turn, ...]], list[Messages]]:
        """Draw the answers; return the turns, and two prompts for each: A first, then B first.

        `values` are further ones that the template may show.

        Raises:
            AskFailed: If an answer is missing, or the item lacks a field that the template needs.
        """
        turns = await converse(unit.item, unit.models, ask, self.config.answer)
        template = self.config.template()
        prompts = [
            messages(template, fields(unit.item, first, second) | values)
            for n_turns in range(1, len(turns) + 1)
            for a, b in [tuple(zip(*turns[:n_turns], strict=True))]
            for first, second in ((a, b), (b, a))
        ]
        return turns, prompts


def pair_row(turns: tuple[Turn, ...], ab: Order, ba: Order) -> Row:
    """Return the columns that every comparison has: turn, `PREFERENCES` and `READING`."""
    a, b = turns
    return {
        "turn": a.number,
        "p_ab": list(ab.levels),
        "p_ba": list(reversed(ba.levels)),
        "coverage_ab": ab.coverage,
        "coverage_ba": ba.coverage,
        **judge_pair(ab.levels, ba.levels),
        "exact": ab.exact and ba.exact,
        "same_text": a.answer.text == b.answer.text,
        "n_traces": ab.n_traces + ba.n_traces,
        "n_silent": ab.n_silent + ba.n_silent,
    }
