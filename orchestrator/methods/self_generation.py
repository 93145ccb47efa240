"""Self-Generation: a model rates its own answer from 1 to 10 in words.

The baseline of the glass-box paper: the model that answered is asked to criticise and rate that
answer with Auto-J's wording (its Figure 7), and the last "Rating: [[x]]" is its score. Compare with
what its probabilities say of the same answer (`glass_box`).

Source: the glass-box self-evaluation paper, section 4, Figure 7, and Figure 8 for several turns;
SelfEval (commit d73bd7ef).

Deviations: a text without a rating is missing; with `convention: selfeval` it counts as 5.0, as in
the released code.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from orchestrator.methods import auto_j
from orchestrator.methods._harness import HarnessJudge, HarnessSettings
from orchestrator.plugin import Combination, Item
from orchestrator.prompts.files import Wording, wordings_from


class Config(HarnessSettings):
    """Settings of `self_generation`."""

    prompts: Annotated[
        Literal["selfeval", "compact"] | dict[str, Wording],
        wordings_from(auto_j.WHERE, "selfeval", "compact"),
    ] = Field(
        "selfeval",
        description="selfeval (the paper's wording), compact, Auto-J's constants_prompt.py, or a "
        "file of one template.",
    )
    convention: Literal["selfeval"] | None = Field(
        None,
        description="selfeval: the last match counts, no rating is 5.0; null: a text without one "
        "clear rating is missing.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        auto_j.wording(self.prompts, "single", 1)
        return self

    def wording(self, item: Item, n_turns: int) -> Wording:  # noqa: ARG002 (one contract)
        """Return Auto-J's template for one answer."""
        return auto_j.wording(self.prompts, "single", n_turns)


class Kind(HarnessJudge[Config]):
    """A model rates its own answer from 1 to 10 in words."""

    cites = ("huang2024glassbox",)
    version = 4
    published_as = "self-generation"
    forms = (auto_j.RATING,)

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """Every model is its own judge."""
        return [Combination((model,), model) for model in candidates]
