"""Auto-J: a judge writes a critique and rates an answer from 1 to 10, or decides between two.

`single`: the rating is the "Rating: [[x]]" of the greedy text. `pairwise`: what follows "final
decision is", in both orders; a winner counts only where both orders agree.

Source: Li et al. 2023, "Generative Judge for Evaluating Alignment" (arXiv 2310.05470) and its code
(commit 2ae17a39). `prompts: selfeval` is the wording printed in the glass-box paper (Figure 7,
and 8 for several turns), whose Auto-J baseline this is; Auto-J's own are read from its
`constants_prompt.py`. `prompts: first_line` is what that paper prints under the caption Auto-J
(Figures 5 and 6): the rating is alone in the first line.

Deviations: a text has a verdict only where all matches agree, and a rating outside 1..10 is missing
too; the conventions `auto_j` (no rating is 0.0) and `selfeval` (5.0, as in SelfEval's copy of the
code, commit d73bd7ef) take the last match, as those codes do.
Orders that disagree are a tie here; Auto-J's agreement counts them as wrong.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from orchestrator.judgment import verdicts
from orchestrator.methods._drawing import permanent
from orchestrator.methods._harness import (
    COMPACT,
    PAIR,
    RATINGS,
    TEN,
    Format,
    HarnessJudge,
    NamedJudgesSettings,
)
from orchestrator.plugin import Item
from orchestrator.prompts.files import ONLY, Wording, wordings_from
from orchestrator.prompts.glass_box import FIRST_LINE, selfeval

_BEFORE_RATING: Final = "Rating: [["
_RATING = re.compile(rf"Rating: \[\[\s{{0,4}}({verdicts.NUMBER})\s{{0,4}}\]\]")
_FIRST_LINE = re.compile(rf"\s{{0,8}}({verdicts.NUMBER})(?=[ \t]{{0,8}}(?:\r?\n|\Z))")
_DECISIONS: Final[dict[str, verdicts.Winner]] = {"Response 1": "A", "Response 2": "B", "Tie": "tie"}
# In any case of ASCII letters; other letters have no such case.
_DECISION = re.compile(rf"final decision is \s*+(?ai:({'|'.join(_DECISIONS)}))?")


def _ratings(text: str) -> list[verdicts.Match]:
    """Every "Rating: [[x]]" of a critique; none where an unfinished one is the last."""
    found = [*map(verdicts.number, _RATING.finditer(text))]
    return found if found and text.rfind(_BEFORE_RATING) == found[-1].start else []


def _winners(text: str) -> list[verdicts.Match]:
    """Every decision after a "final decision is"; none where the last of these has none."""
    announced = list(_DECISION.finditer(text))
    if not announced or announced[-1][1] is None:
        return []
    named = [one for one in announced if one[1] is not None]
    return [verdicts.matched(one, _DECISIONS[one[1].capitalize()]) for one in named]


def read_rating(text: str) -> verdicts.Reading:
    """The rating of a text whose first line is to hold nothing else, as in the glass-box paper."""
    found = [*map(verdicts.number, filter(None, [_FIRST_LINE.match(text)]))]
    return verdicts.on_scale(verdicts.agreed(text, found), 1.0, 10.0)


def _last(found: list[verdicts.Match]) -> verdicts.Match | None:
    return found[-1] if found else None


RATING: Final = Format(
    lambda text: verdicts.on_scale(verdicts.agreed(text, _ratings(text), at=-1), 1.0, 10.0),
    TEN,
    RATINGS,
    lambda text: _last(_ratings(text)),
    {"auto_j": 0.0, "selfeval": 5.0},
)
DECISION: Final = Format(
    lambda text: verdicts.agreed(text, _winners(text), at=-1),
    tuple(_DECISIONS),
    PAIR,
    lambda text: _last(_winners(text)),
)

WHERE: Final = (
    "Auto-J's is codes/usage/constants_prompt.py in the repository GAIR-NLP/auto-j; there are also "
    "`prompts: selfeval` and `first_line` (mode single) and, for the bundled judge, "
    "`prompts: compact`"
)
NAMES: Final = {"single": "single", "pairwise": "pairwise_tie"}
"""Names of the templates in Auto-J's file."""


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

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wording(self.prompts, self.mode, 1)
        if self.prompts == "first_line" and self.convention is not None:
            raise ValueError("'convention' is not for prompts: first_line, whose form differs")
        return self

    def wording(self, item: Item, n_turns: int) -> Wording:  # noqa: ARG002 (one contract)
        """Return the template of the mode."""
        return wording(self.prompts, self.mode, n_turns)


def wording(prompts: str | dict[str, Wording], mode: str, n_turns: int) -> Wording:
    """Return the template of a mode.

    Raises:
        ValueError: If there is none.
        AskFailed: If it does not show as many turns.
    """
    found: Wording | None = None
    if not isinstance(prompts, str):
        found = prompts.get(NAMES[mode]) or prompts.get(ONLY)
    elif prompts == "compact":
        found = COMPACT[mode == "pairwise"]
    elif mode == "single":
        found = selfeval(n_turns) if prompts == "selfeval" else FIRST_LINE.get(n_turns)
        if found is None:
            said = f"the wording shows {len(FIRST_LINE)} turns, this item has {n_turns}"
            raise permanent("bad_item", said)
    if found is None:
        raise ValueError(f"'prompts' have no wording for mode {mode}; {WHERE}")
    return found


class Kind(HarnessJudge[Config]):
    """A judge writes a critique and rates an answer from 1 to 10, or decides between two."""

    cites = ("li2023generative",)
    version = 4
    published_as = "Auto-J"
    forms = (RATING, DECISION)

    def form(self) -> Format:
        """Return how verdicts are written."""
        is_first = self.config.prompts == "first_line"
        return Format(read_rating, TEN, RATINGS) if is_first else super().form()
