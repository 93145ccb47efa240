"""Criteria of a rubric: their settings, the questions of an item's checklist, and their labels."""

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from pydantic import Field, model_validator

from orchestrator.methods._drawing import permanent
from orchestrator.methods._own_labels import (
    MOST_LABELS,
    GradeLabels,
    Grades,
    OwnLabel,
    ascending,
    spanned,
)
from orchestrator.plugin import Item, Label, Settings

MOST_CRITERIA: Final = 64
_MOST_SCORES: Final = 201
_MOST_CHARACTERS: Final = 4000

Letters = Annotated[str, Field(pattern=r"^[A-Z]-[A-Z]$")]
"""A scale of letters: the worst and the best, such as A-T."""
Scale = Annotated[tuple[int, int], ascending(_MOST_SCORES)] | Letters
"""Lowest and highest score, or the worst and the best letter."""
YES_NO: Final = (
    OwnLabel(name="No", spellings=("No", " No", "no", " no"), value=0),
    OwnLabel(name="Yes", spellings=("Yes", " Yes", "yes", " yes"), value=1),
)
"""Answers to a question of a checklist."""


def graded(scale: tuple[int, int] | str, labels: tuple[OwnLabel, ...] | None) -> Grades:
    """Return the scores of a scale and their labels.

    Letters are the worst one and the best, such as "A-T", or "T-A" if A is the best; they are worth
    1, 2, and so on.

    Raises:
        ValueError: If the labels are not ordered, do not span the scale, or can't be told apart.
    """
    if isinstance(scale, str):
        if labels is not None:
            raise ValueError("labels and a scale of letters exclude each other; omit one of them")
        worst, best = ord(scale[0]), ord(scale[-1])
        if worst == best:
            raise ValueError(
                f"a scale of letters needs two different ones, such as A-T; got {scale}"
            )
        step = 1 if best > worst else -1
        letters = map(chr, range(worst, best + step, step))
        labels = tuple(OwnLabel(name=letter, value=at) for at, letter in enumerate(letters, 1))
        return Grades((1, len(labels)), labels)
    grades = Grades(scale, labels)
    grades.check()
    return grades


class Criterion(Settings):
    """A criterion that a judge scores an answer by."""

    name: str = Field(
        min_length=1,
        max_length=100,
        pattern=r"^\S(?:[^\n\r:=]*[^\s:=])?$",
        description="Name, as the judge is shown it; no colon or equals sign, one line.",
    )
    description: str = Field(
        "", max_length=_MOST_CHARACTERS, description="Explanation of the criterion for the judge."
    )
    weight: float = Field(
        1.0, gt=0, le=1e6, description="Weight, relative to the others; their sum counts as 1."
    )
    scale: Scale | None = Field(
        None,
        description="Scale of this criterion, such as [1, 5] or A-T. Default: that of the rubric.",
    )
    labels: GradeLabels = None

    _labels_span_the_scale = model_validator(mode="before")(spanned)

    def grades(self, default: Grades) -> Grades:
        """Return the scores and labels of this criterion, by default those of the rubric."""
        return default if self.scale is None else graded(self.scale, self.labels)


class Checklist(Settings):
    """Questions that each item brings along, such as those of WildBench."""

    column: str = Field(
        "checklist",
        description="Column of the dataset with the questions of an item: a list of texts, or one "
        "text with a question on each line.",
    )
    weight: float = Field(
        1.0,
        gt=0,
        le=1e6,
        description="Weight of the checklist beside the criteria; its questions share it equally.",
    )
    most: int = Field(
        20,
        ge=1,
        le=200,
        description="Most questions that an item may have; an item with more of them fails.",
    )
    labels: GradeLabels = Field(
        YES_NO,
        min_length=2,
        max_length=MOST_LABELS,
        description="Answers to a question, from worst to best. Default: No and Yes.",
    )

    def grades(self) -> Grades:
        """Return the answers to a question."""
        labels = self.labels or YES_NO
        return Grades((labels[0].value, labels[-1].value), labels)

    def questions(self, item: Item) -> tuple[str, ...]:
        """Return the questions of an item.

        Raises:
            AskFailed: If there are none, too many, or the column does not hold texts.
        """
        given = item.fields.get(self.column)
        found = given.splitlines() if isinstance(given, str) else given
        if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
            raise permanent("bad_item", f"column {self.column!r} has no list of questions")
        questions = tuple(one.strip() for one in found if one.strip())
        if not questions:
            raise permanent("bad_item", f"the checklist in column {self.column!r} is empty")
        if len(questions) > self.most:
            said = f"{len(questions)} questions in the checklist; checklist.most: {self.most}"
            raise permanent("bad_item", said)
        if len(set(questions)) < len(questions):
            raise permanent("bad_item", "a question of the checklist is there twice")
        return questions


class AskedCriterion(NamedTuple):
    """One criterion as a judge is asked for it.

    Attributes:
        key: Its name in a reply of several verdicts.
        text: The criterion, or the question.
        description: Explanation; empty for none.
        weight: Of all criteria of the item, which sum to 1.
        grades: Scores and labels.
    """

    key: str
    text: str
    description: str
    weight: float
    grades: Grades

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels as they are spelled."""
        return self.grades.spelled()

    def shown(self) -> dict[str, str]:
        """Return the values of the fields of a prompt that are about this criterion."""
        names = [label.name for label in self.labels]
        # The words that ask for a label
        scale = f"one of {', '.join(names)}, from {names[0]} (worst) to {names[-1]} (best)"
        if self.grades.labels is None:
            scale = f"an integer score from {names[0]} (worst) to {names[-1]} (best)"
        elif len(names) == 2:
            scale = f"{names[1]} or {names[0]}"
        return {
            "criterion": self.text,
            "description": self.description,
            "scale": scale,
            "low": names[0],
            "high": names[-1],
        }

    def listed(self) -> Mapping[str, str]:
        """Return the values of the fields of a prompt that lists several criteria."""
        shown = self.shown()
        is_question = self.key != self.text
        return {
            "key": self.key,
            "description": self.text if is_question else self.description,
            "scale": shown["scale"],
            "worst": shown["low"],
            "best": shown["high"],
        }
