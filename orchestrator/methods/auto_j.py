"""Auto-J: a judge writes a critique and rates an answer from 1 to 10, or decides between two.

`single`: the rating is the "Rating: [[x]]" of the greedy text. `pairwise`: what follows "final
decision is", in both orders; a winner counts only where both orders agree.

Source: Li et al. 2023, "Generative Judge for Evaluating Alignment" (arXiv 2310.05470) and its code
(commit 2ae17a39). `prompts: selfeval` is the wording printed in the glass-box paper (Figure 7),
whose Auto-J baseline this is; Auto-J's own are read from its `constants_prompt.py`.

Deviations: a text without one clear verdict is missing, and so is a rating outside 1..10; the
conventions `auto_j` (no rating is 0.0) and `selfeval` (5.0) take the last match, as those codes do.
Orders that disagree are a tie here; Auto-J's agreement counts them as wrong
(`judgment.harness.critique_llm.pairwise_agreement`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from orchestrator.ask import Ask
from orchestrator.contracts.method import Combination, ModelName, Stage
from orchestrator.methods import _formats, _harness
from orchestrator.methods._conversation import Turn
from orchestrator.methods._harness import HarnessJudge, HarnessSettings
from orchestrator.prompts import compact
from orchestrator.prompts.auto_j import SELFEVAL
from orchestrator.prompts.files import ONLY, Wording, wordings_from
from orchestrator.records import Item, Messages, Row, Unit

WHERE: Final = (
    "Auto-J's is codes/usage/constants_prompt.py in the repository GAIR-NLP/auto-j; there are also "
    "`prompts: selfeval` (mode single) and, for the bundled judge, `prompts: compact`"
)
NAMES: Final = {"single": "single", "pairwise": "pairwise_tie"}
"""Names of the templates in Auto-J's file."""
BUILT_IN: Final = {
    ("selfeval", "single"): SELFEVAL,
    ("compact", "single"): Wording(user=compact.RATING, form="jinja"),
    ("compact", "pairwise"): Wording(user=compact.PAIRWISE, form="jinja"),
}
_FORMATS: Final = {
    ("compact", "single"): _formats.COMPACT_RATING,
    ("compact", "pairwise"): _formats.COMPACT_SYMBOL,
    ("", "single"): _formats.AUTO_J_RATING,
    ("", "pairwise"): _formats.AUTO_J_DECISION,
}


class Config(HarnessSettings):
    """Settings of `auto_j`."""

    judges: tuple[ModelName, ...] = Field(description="Models that act as judges.", min_length=1)
    mode: Literal["single", "pairwise"] = Field(
        "single", description="Rate answers, or decide between two."
    )
    prompts: Annotated[
        Literal["selfeval", "compact"] | dict[str, Wording],
        wordings_from(WHERE, "selfeval", "compact"),
    ] = Field(
        "selfeval",
        description="selfeval (the glass-box paper's wording), compact, Auto-J's "
        "constants_prompt.py, or a file of one template.",
    )
    convention: Literal["auto_j", "selfeval"] | None = Field(
        None,
        description="auto_j, selfeval: the last match counts, no rating is 0.0 or 5.0; null: a "
        "text without one clear verdict is missing.",
    )

    @model_validator(mode="after")
    def _has_wording(self) -> "Config":
        found(self.prompts, self.mode)
        return self


def found(prompts: str | dict[str, Wording], mode: str) -> Wording:
    """The wording of a mode.

    Raises:
        ValueError: If there is none.
    """
    if isinstance(prompts, str):
        wording = BUILT_IN.get((prompts, mode))
    else:
        wording = prompts.get(NAMES[mode]) or prompts.get(ONLY)
    if wording is None:
        raise ValueError(f"'prompts' have no wording for mode {mode}; {WHERE}")
    return wording


class AutoJ(HarnessJudge[Config]):
    """A judge writes a critique and rates an answer from 1 to 10, or decides between two."""

    version = 3

    @property
    def judges(self) -> tuple[str, ...]:
        """Models that judge."""
        return self.config.judges

    @property
    def convention(self) -> str | None:
        """Whose rules say what a text without one clear verdict counts as."""
        return self.config.convention

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """Every model, or every pair of models, with every judge."""
        return _harness.combinations(
            candidates, self.config.judges, pairwise=self.config.mode == "pairwise"
        )

    def needs(self) -> frozenset[str]:
        """The reference, where the wording shows it."""
        return found(self.config.prompts, self.config.mode).shows({"reference"})

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """One text a rating, two a decision."""
        n_orders = 2 if self.config.mode == "pairwise" else 1
        judged = self.combinations(candidates)
        return _harness.stages("Auto-J", self.config, judged, n_orders=n_orders)

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One rating, or one decision in both orders, a turn."""
        config = self.config
        form = _FORMATS["compact" if config.prompts == "compact" else "", config.mode]
        prompt_of = partial(_messages, unit.item, found(config.prompts, config.mode))
        if config.mode == "single":
            return await self.rate(unit, ask, form, prompt_of)
        return await self.compare(unit, ask, form, prompt_of)


def _messages(item: Item, wording: Wording, shown: Sequence[Sequence[Turn]]) -> Messages:
    return _harness.messages(wording, _harness.fields(item, shown))
