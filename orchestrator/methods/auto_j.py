"""Auto-J: a judge writes a critique and rates an answer from 1 to 10, or decides between two.

`single`: the rating is the "Rating: [[x]]" of the greedy text. `pairwise`: what follows "final
decision is", in both orders; a winner counts only where both orders agree.

Source: Li et al. 2023, "Generative Judge for Evaluating Alignment" (arXiv 2310.05470) and its code
(commit 2ae17a39). `prompts: selfeval` is the wording printed in the glass-box paper (Figure 7,
and 8 for several turns), whose Auto-J baseline this is; Auto-J's own are read from its
`constants_prompt.py`. `prompts: first_line` is what that paper prints under the caption Auto-J
(Figures 5 and 6): the rating is alone in the first line.

Deviations: a text without one clear verdict is missing, and so is a rating outside 1..10; the
conventions `auto_j` (no rating is 0.0) and `selfeval` (5.0) take the last match, as those codes do.
Orders that disagree are a tie here; Auto-J's agreement counts them as wrong
(`judgment.harness.critique_llm.pairwise_agreement`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from orchestrator.methods import _formats, _harness
from orchestrator.methods._drawing import Turn
from orchestrator.methods._harness import NamedJudges, NamedJudgesSettings
from orchestrator.plugin import Ask, AskFailed, Failure, Item, Messages, Row, Unit
from orchestrator.prompts import compact
from orchestrator.prompts.files import ONLY, Wording, wordings_from
from orchestrator.prompts.glass_box import FIRST_LINE, selfeval

WHERE: Final = (
    "Auto-J's is codes/usage/constants_prompt.py in the repository GAIR-NLP/auto-j; there are also "
    "`prompts: selfeval` and `first_line` (mode single) and, for the bundled judge, "
    "`prompts: compact`"
)
NAMES: Final = {"single": "single", "pairwise": "pairwise_tie"}
"""Names of the templates in Auto-J's file."""
BUILT_IN: Final = {
    ("selfeval", "single"): selfeval(1),
    ("first_line", "single"): FIRST_LINE[1],
    ("compact", "single"): Wording(user=compact.RATING, form="jinja"),
    ("compact", "pairwise"): Wording(user=compact.PAIRWISE, form="jinja"),
}
_FORMATS: Final = {
    ("compact", "single"): _formats.COMPACT_RATING,
    ("compact", "pairwise"): _formats.COMPACT_SYMBOL,
    ("first_line", "single"): _formats.FIRST_LINE_RATING,
    ("", "single"): _formats.AUTO_J_RATING,
    ("", "pairwise"): _formats.AUTO_J_DECISION,
}


class Config(NamedJudgesSettings):
    """Settings of `auto_j`."""

    mode: Literal["single", "pairwise"] = Field(
        "single", description="Rate answers, or decide between two."
    )
    prompts: Annotated[
        Literal["selfeval", "first_line", "compact"] | dict[str, Wording],
        wordings_from(WHERE, "selfeval", "first_line", "compact"),
    ] = Field(
        "selfeval",
        description="selfeval (the glass-box paper's wording), first_line (the one that it prints "
        "as Auto-J's), compact, Auto-J's constants_prompt.py, or a file of one template.",
    )
    convention: Literal["auto_j", "selfeval"] | None = Field(
        None,
        description="auto_j, selfeval: the last match counts, no rating is 0.0 or 5.0; null: a "
        "text without one clear verdict is missing.",
    )

    @property
    def pairwise(self) -> bool:
        """True if the judge compares two answers."""
        return self.mode == "pairwise"

    @model_validator(mode="after")
    def _has_wording(self) -> "Config":
        found(self.prompts, self.mode)
        if self.prompts == "first_line" and self.convention is not None:
            raise ValueError("'convention' is not for prompts: first_line, whose form differs")
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


class AutoJ(NamedJudges[Config]):
    """A judge writes a critique and rates an answer from 1 to 10, or decides between two."""

    cites = ("li2023generative",)
    version = 4
    published_as = "Auto-J"

    def needs(self) -> frozenset[str]:
        """The reference, where the wording shows it."""
        return found(self.config.prompts, self.config.mode).shows({"reference"})

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One rating, or one decision in both orders, a turn."""
        config = self.config
        own = config.prompts if config.prompts in ("compact", "first_line") else ""
        form = _FORMATS[own, config.mode]
        prompt_of = partial(messages, unit.item, config.prompts, config.mode)
        return await self.verdicts(unit, ask, form, prompt_of, config.convention)


def messages(
    item: Item, prompts: str | dict[str, Wording], mode: str, shown: Sequence[Sequence[Turn]]
) -> Messages:
    """The judge's prompt for the turns so far.

    Raises:
        AskFailed: If the wording does not show as many turns.
    """
    wording, n_turns = found(prompts, mode), len(shown[0])
    if prompts == "selfeval":
        wording = selfeval(n_turns)
    elif prompts == "first_line":
        if n_turns not in FIRST_LINE:
            said = f"the wording shows {len(FIRST_LINE)} turns, this item has {n_turns}"
            raise AskFailed(Failure("bad_item", said, permanent=True))
        wording = FIRST_LINE[n_turns]
    return _harness.messages(wording, _harness.fields(item, shown))
