"""Settings that name the better of two answers, and that calibrate judges by it."""

from typing import Literal

from pydantic import Field, model_validator

from orchestrator.contracts.given_file import GivenFile
from orchestrator.settings import Settings


class Winner(Settings):
    """The source of the better answer; exactly one way is named."""

    exact_match: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description=(
            "If true, the answer that equals the reference is better if the other one does not."
        ),
    )
    model: str | None = Field(
        None,
        description="The model whose answers are always better, such as the column of chosen "
        "answers of a benchmark for judges.",
    )
    order: tuple[str, ...] = Field(
        (),
        description="Models from the best to the worst, such as the columns of ranked answers of "
        "`nectar`; pairs with another model have no winner.",
    )
    field: str | None = Field(
        None, description="Column of the dataset that names the better answer, or a tie."
    )
    labels: GivenFile | None = Field(
        None,
        description="A file of labels, relative to the recipe: item, model_a, model_b, label (the "
        "winner's name, a or b, or tie), and annotator; the majority of several decides.",
    )
    values: dict[str, str] = Field(
        {},
        description='Meaning of the values of `field` or `labels`: a model\'s name or "tie". A '
        "value that is a model's name needs no entry.",
    )

    @model_validator(mode="after")
    def _one(self) -> "Winner":
        others = (self.model, self.order or None, self.field, self.labels)
        if self.exact_match + sum(one is not None for one in others) != 1:
            raise ValueError("give one of 'exact_match: true', 'model', 'order', 'field', 'labels'")
        return self


class Calibrate(Settings):
    """Calibration of each judge's probabilities before they are used."""

    by: Literal["temperature", "platt", "isotonic"] = Field(
        description="temperature (one parameter), platt (two) or isotonic (any rising map; some "
        "hundred pairs with a known winner)."
    )
    winner: Winner | None = Field(
        None,
        description="Source of the better answer of the pairs that are learned from. Default: that "
        "of the analysis, or else the answer that equals the reference.",
    )
