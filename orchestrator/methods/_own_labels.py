"""Scores and labels of one's own for judges, and prompts that show them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.plugin import Label, Settings
from orchestrator.prompts import PromptError, render

MOST_LABELS: Final = 32
MOST_LEVEL: Final = 10


class OwnLabel(Settings):
    """A label: what the judge may write, and what it is worth."""

    name: str = Field(
        min_length=1, max_length=100, description="The label as the prompt asks for it."
    )
    spellings: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(
        (),
        max_length=16,
        description="All spellings whose probabilities are summed. Default: the name, with and "
        "without a space before it.",
    )
    value: int = Field(
        description="Worth of the label: of two answers, above 0 if the first is better, 0 for a "
        "tie, and below 0 if the second is; of one answer, its score."
    )

    def label(self) -> Label:
        """The label with all its spellings."""
        return Label(self.name, self.spellings or (self.name, f" {self.name}"))


def _named(entries: Any) -> Any:  # noqa: ANN401 (what a recipe holds)
    """Names alone, best first, get values: 1, -1 of two; 1, 0, -1 of three; 2, 1, 0, … of five."""
    if not isinstance(entries, list | tuple) or not all(isinstance(one, str) for one in entries):
        return entries
    half, is_odd = divmod(len(entries), 2)
    values = [*range(half, 0, -1), *([0] * is_odd), *range(-1, -half - 1, -1)]
    return [{"name": name, "value": value} for name, value in zip(entries, values, strict=True)]


PairLabels = Annotated[
    tuple[OwnLabel, ...], BeforeValidator(_named), Field(min_length=2, max_length=MOST_LABELS)
]
"""Labels of a comparison of two answers, from the first one better to the second one better."""


def refuse_alike(labels: Sequence[Label]) -> None:
    """Refuse labels of which one is read as the beginning of another.

    Raises:
        ValueError: If there are such labels.
    """
    forms = [(form.strip(), at) for at, label in enumerate(labels) for form in label.spellings]
    if not all(form for form, _ in forms):
        raise ValueError("a spelling of a label must hold more than white space")
    for form, at in forms:
        for other, other_at in forms:
            if at != other_at and other.startswith(form):
                raise ValueError(
                    f"the labels {labels[at].name!r} and {labels[other_at].name!r} can't be told "
                    f"apart: {form!r} begins {other!r}"
                )


GradeLabels = Annotated[
    tuple[OwnLabel, ...] | None,
    Field(
        min_length=2,
        max_length=MOST_LABELS,
        description="Labels of your own instead of numbers, from worst to best: mappings of name, "
        "spellings and value, the score. `scale` goes from the lowest value to the highest.",
    ),
]
"""Labels that stand for scores of an answer; None for the numbers themselves."""


def ascending(most: int) -> AfterValidator:
    """Return a check of a scale: it ascends from at least 0 and has at most `most` scores."""

    def checked(scale: tuple[int, int]) -> tuple[int, int]:
        low, high = scale
        if low < 0 or high <= low or high - low + 1 > most:
            raise ValueError(
                f"a scale goes from a lower to a higher whole number, at least 0 and with at most "
                f"{most} scores; got {low} to {high}"
            )
        return scale

    return AfterValidator(checked)


class Grades(NamedTuple):
    """The scores of a scale and the labels that a judge writes for them.

    Attributes:
        scale: Lowest and highest score; every whole number between them is a score.
        labels: From worst to best, K of them; None where the numbers are the labels.
    """

    scale: tuple[int, int]
    labels: tuple[OwnLabel, ...] | None = None

    def scores(self) -> range:
        """Return the scores, ascending."""
        return range(self.scale[0], self.scale[1] + 1)

    def ends(self) -> dict[str, str]:
        """Return the lowest and the highest score, as a template may show them."""
        low, high = map(str, self.scale)
        return {"low": low, "high": high}

    def values(self) -> tuple[int, ...]:
        """Return the score that each label stands for, shape (K,)."""
        return tuple(self.scores() if self.labels is None else (one.value for one in self.labels))

    def spelled(self, write: Callable[[int], str] = str) -> tuple[Label, ...]:
        """Return the labels as they are written; numbers with and without a space before them."""
        if self.labels is not None:
            return tuple(one.label() for one in self.labels)
        names = [write(score) for score in self.scores()]
        return tuple(Label(name, (name, f" {name}")) for name in names)

    def over_scale(self, probabilities: Sequence[float]) -> tuple[float, ...]:
        """Return the probability of every score; 0 where no label stands for it."""
        if self.labels is None:
            return tuple(probabilities)
        scores = self.scores()
        found = [0.0] * len(scores)
        for p, value in zip(probabilities, self.values(), strict=True):
            found[value - scores[0]] += p
        return tuple(found)

    def check(self) -> None:
        """Check the labels."""
        if self.labels is None:
            return
        values = list(self.values())
        if values != sorted(values) or values[0] == values[-1]:
            raise ValueError("labels go from worst to best: their values ascend")
        if (values[0], values[-1]) != tuple(self.scale):
            raise ValueError(
                f"scale must go from the lowest value of a label to the highest, "
                f"{values[0]} to {values[-1]}; omit it"
            )
        refuse_alike(self.spelled())


def levels_of(probabilities: Sequence[float], labels: tuple[OwnLabel, ...]) -> tuple[float, ...]:
    """Return probabilities of levels: those of labels with equal values are summed.

    Labels run from the first answer better to the second. Returns 2h+1 probabilities, where h is
    the highest value; 0 on a level that no label has.
    """
    half = labels[0].value
    return Grades((-half, half), labels).over_scale(probabilities)[::-1]


def spanned(data: Any) -> Any:  # noqa: ANN401 (of a recipe)
    """Settings whose `scale` goes from the lowest value of their `labels` to the highest."""
    entries = data.get("labels") if isinstance(data, dict) else None
    if not isinstance(entries, list | tuple) or "scale" in data:
        return data
    given = [one.get("value") for one in entries if isinstance(one, dict)]
    values = [value for value in given if type(value) is int]
    if len(values) == len(entries) > 1:
        return {**data, "scale": (min(values), max(values))}
    return data


def check_shown(
    template: str,
    fields: Mapping[str, str],
    labels: Sequence[Label],
    elsewhere: Sequence[str],
) -> None:
    """Refuse a prompt that shows none of the labels: the judge could only guess their form.

    `elsewhere` are other texts that the judge is shown, the first its system prompt.

    Raises:
        ValueError: If none of these texts shows a label.
    """
    try:
        shown = render(template, dict(fields))
    except PromptError:
        # It depends on what an item holds; the judge's coverage will tell.
        return
    texts = (shown, *elsewhere)
    forms = []
    for form in (form.strip() for label in labels for form in label.spellings):
        # As a word of its own
        before = r"(?<!\w)" if form[:1].isalnum() else ""
        after = r"(?!\w)" if form[-1:].isalnum() else ""
        forms.append(re.compile(before + re.escape(form) + after))
    if labels and not any(form.search(text) for text in texts for form in forms):
        names = ", ".join(label.name for label in labels[:5])
        raise ValueError(
            f"the template shows none of the labels ({names}{', …' if labels[5:] else ''}); name "
            "them in it, or in `system`"
        )
