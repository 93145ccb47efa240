"""Settings, prompts and rows of judges that compare two answers in both orders."""

from collections.abc import Sequence
from itertools import combinations as pairs_of
from typing import ClassVar, Final, NamedTuple, TypeVar

from pydantic import Field, field_validator

from orchestrator.ask import digest
from orchestrator.columns import ESTIMATORS
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods._drawing import Turn, converse, questions, references, replies
from orchestrator.methods._judging import JudgeMethod, JudgeSettings, user_message
from orchestrator.methods._leading import NOTHING, WorkedExample
from orchestrator.plugin import (
    Ask,
    Columns,
    Combination,
    Compared,
    Item,
    Messages,
    ModelName,
    PairColumns,
    Row,
    Settings,
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


_SIDES: Final = {
    **dict.fromkeys(("a", "model_a", "1", "model_1"), "a"),
    **dict.fromkeys(("b", "model_b", "2", "model_2"), "b"),
}


class LabelledExamples(Settings):
    """Examples made of other items, of which a column of the dataset names the better answer."""

    n: int = Field(
        4, ge=2, le=32, description="Number of examples, even: in half of them A is better."
    )
    answer_a: str = Field(min_length=1, description="Column of the dataset with one answer.")
    answer_b: str = Field(min_length=1, description="Column of the dataset with the other answer.")
    winner: str = Field(
        min_length=1,
        description="Column of the dataset that names the better one: a, b, model_a, model_b, 1 or "
        "2; items with another value, such as tie, are not shown.",
    )
    values: dict[str, str] = Field(
        {}, description="Meaning of other values of `winner`: a, b, or anything else for neither."
    )

    @field_validator("n")
    @classmethod
    def _n_is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("an odd number of examples would favour one place; give an even one")
        return value

    def answers_of(self, item: Item) -> tuple[str, str] | None:
        """Return the better and the worse answer of an item; None where that is not known."""
        if item.followups:
            return None
        value = str(item.fields.get(self.winner))
        side = _SIDES.get(self.values.get(value, value).lower())
        a, b = item.fields.get(self.answer_a), item.fields.get(self.answer_b)
        if side is None or not isinstance(a, str) or not isinstance(b, str) or a == b:
            return None
        return (a, b) if side == "a" else (b, a)


class PairwiseSettings(JudgeSettings):
    """Settings of methods in which a judge compares two answers."""

    SHOWN: ClassVar = ("answer_a", "answer_b")

    candidates: tuple[ModelName, ...] | None = Field(
        None, description="Models to evaluate. Default: all that are not judges.", min_length=2
    )

    labelled_examples: LabelledExamples | None = Field(
        None,
        description="Show the judge other items of the dataset first, whose better answer a column "
        "names. They are drawn by the seed. Excludes chain_of_thought. Default: none.",
    )

    @property
    def n_labelled(self) -> int:
        """Number of labelled items that are shown to the judge."""
        return 0 if self.labelled_examples is None else self.labelled_examples.n

    def is_labelled(self, item: Item) -> bool:
        """Return True if both answers of an item and the better one are known."""
        named = self.labelled_examples
        return named is not None and named.answers_of(item) is not None

    def of_labelled(self, items: Sequence[Item]) -> tuple[WorkedExample, ...]:
        """Return the items as judgments; the better answer is A in half of them, drawn by hash."""
        drawn = sorted(range(len(items)), key=lambda at: digest("order", items[at].key))
        better_is_a = frozenset(drawn[: len(items) // 2])
        named, replies_of_both = self.labelled_examples, self.better()
        found = []
        for at, item in enumerate(items):
            answers = None if named is None else named.answers_of(item)
            if answers is not None:
                a, b = answers if at in better_is_a else answers[::-1]
                shown = {
                    **self.shown(),
                    "prompt": item.prompt,
                    "reference": item.reference or "",
                    "answer_a": a,
                    "answer_b": b,
                }
                reply = replies_of_both[at not in better_is_a]
                found.append(WorkedExample(shown=shown, reply=reply))
        return tuple(found)

    def better(self) -> tuple[str, str]:
        """Return replies that call the answer shown first better, and the other one."""
        n = len(self.verdicts())
        return self.replied(n // 2 - 1), self.replied(n - n // 2)

    def of_dataset(self, item: Item) -> tuple[WorkedExample, ...]:
        """Return the reference against an answer that says nothing, in both orders."""
        reference = item.reference or ""
        shown = {**self.shown(), "prompt": item.messages[-1].content, "reference": reference}
        better, worse = self.extremes()
        return (
            WorkedExample(
                shown={**shown, "answer_a": reference, "answer_b": NOTHING}, reply=better
            ),
            WorkedExample(shown={**shown, "answer_a": NOTHING, "answer_b": reference}, reply=worse),
        )

    def shown(self) -> dict[str, str]:
        """Further values that the template may show."""
        return {}

    def extremes(self) -> tuple[str, str]:
        """Return replies for the answer shown first, and for the other one."""
        return self.replied(0), self.replied(-1)


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
        return [
            Combination(pair, judge)
            for judge in self.config.judges
            for pair in pairs_of(candidates, 2)
        ]

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
            pair_prompt(template, unit.item, first, second, **values)
            for n_turns in range(1, len(turns) + 1)
            for a, b in [tuple(zip(*turns[:n_turns], strict=True))]
            for first, second in ((a, b), (b, a))
        ]
        return turns, prompts


def pair_prompt(
    template: str, item: Item, first: Sequence[Turn], second: Sequence[Turn], **values: str
) -> Messages:
    """Return the prompt that shows two answers, turn by turn.

    `values` are further ones that the template may show.

    Raises:
        AskFailed: If the item lacks a field that the template needs.
    """
    fields = {
        "prompt": questions(first),
        "reference": references(item, first),
        "answer_a": replies(first),
        "answer_b": replies(second),
        **values,
    }
    return user_message(template, fields)


def pair_row(turns: tuple[Turn, ...], ab: Order, ba: Order) -> Row:
    """Return the columns that every comparison has: turn, `PREFERENCES` and `READING`."""
    a, b = turns
    found = judge_pair(ab.levels, ba.levels)
    return {
        "turn": a.number,
        "p_ab": list(ab.levels),
        "p_ba": list(reversed(ba.levels)),
        "coverage_ab": ab.coverage,
        "coverage_ba": ba.coverage,
        "prefer_a_ab": found.prefer_ab,
        "prefer_a_ba": found.prefer_ba,
        "prefer_a": found.prefer,
        "mean_pre": found.mean_pre,
        "mean_post": found.mean_post,
        "mode_pre": found.mode_pre,
        "mode_post": found.mode_post,
        "median_pre": found.median_pre,
        "median_post": found.median_post,
        "exact": ab.exact and ba.exact,
        "same_text": a.answer.text == b.answer.text,
        "n_traces": ab.n_traces + ba.n_traces,
        "n_silent": ab.n_silent + ba.n_silent,
    }
