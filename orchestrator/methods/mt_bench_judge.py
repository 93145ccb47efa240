"""MT-Bench: a judge rates each answer from 1 to 10, or compares two in two games.

`single`: the rating is the `[[x]]` of the judge's greedy text; a model's score is the mean over
questions and turns. `pairwise`: two games with the answers swapped; a win counts only where
both agree, all else is a tie. Turn 2 is judged with the whole conversation in view. Questions of
math, reasoning and coding are judged against a reference answer.

Source: Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena"
(arXiv 2306.05685); FastChat `llm_judge` (commit 0e6d3e4b), whose eight prompts are read from its
`judge_prompts.jsonl`. In mode `single` this is also the GPT judge of the glass-box paper, whose
wordings (Figures 3 and 4: no references, the instruction not in the system prompt) are
`prompts: selfeval`.

Deviations: FastChat takes the first match, and a number in single brackets where there is none, so
that a judge that quotes an example, denies a verdict ("not [[A]]") or cites "[1]" is misread, as it
is here with `convention: fastchat`: no rating is then -1 (left out of means, as there) and no range
is checked. Without it a text has a verdict only where all matches agree, none is denied, and a
number in single brackets is announced as the rating; a rating outside 1..10 is missing too. The
distribution over the labels, where asked for, is ours. `compact` is the bundled judge's wording.
The agreement with human votes is `orchestrator.statistics.agreement.raw_agreement`.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from orchestrator.judgment import verdicts
from orchestrator.methods._drawing import pairs_by_judge, permanent, with_baseline
from orchestrator.methods._harness import (
    COMPACT,
    PAIR,
    RATINGS,
    TEN,
    Format,
    HarnessJudge,
    NamedJudgesSettings,
)
from orchestrator.plugin import Combination, Item, ModelName
from orchestrator.prompts.files import ONLY, Wording, wordings_from
from orchestrator.prompts.glass_box import GPT

_RATING = re.compile(rf"\[\[({verdicts.NUMBER})\]\]")
_SINGLE = re.compile(rf"\[({verdicts.NUMBER})\]")
_ANNOUNCED = re.compile(rf"(?i:\b(?:rating|score)(?: is)?)[\s:*_=]{{1,4}}\[({verdicts.NUMBER})\]")
_WINNERS: Final[dict[str, verdicts.Winner]] = {"A": "A", "B": "B", "C": "tie"}
_WINNER = re.compile(r"\[\[([ABC])\]\]")


def published_rating(text: str) -> verdicts.Match | None:
    """The rating that FastChat reads: the first `[[x]]`, else the first `[x]`, of any range."""
    found = _RATING.search(text) or _SINGLE.search(text)
    return None if found is None else verdicts.number(found)


def read_rating(text: str) -> verdicts.Reading:
    """The one rating in a text: `[[x]]`, else an announced `[x]` or nothing but `[x]`."""
    read = [*_RATING.finditer(text)] or _ANNOUNCED.finditer(text)
    found = [*map(verdicts.number, read)]
    if not found and (cited := _SINGLE.search(text)):
        if cited.group() != text.strip():
            said = f"has no [[rating]]; {cited.group()} may be a citation"
            return verdicts.Reading(cause=verdicts.AMBIGUOUS, message=said)
        found = [verdicts.number(cited)]
    return verdicts.on_scale(verdicts.agreed(text, found), 1.0, 10.0)


def _winners(text: str) -> list[verdicts.Match]:
    return [verdicts.matched(one, _WINNERS[one[1]]) for one in _WINNER.finditer(text)]


RATING: Final = Format(
    read_rating, TEN, RATINGS, published_rating, {"fastchat": -1.0}, dropped=-1.0
)
WINNER: Final = Format(
    lambda text: verdicts.agreed(text, _winners(text)),
    tuple(_WINNERS),
    PAIR,
    # "[[A]]" is looked for before "[[B]]" before "[[C]]", wherever they stand.
    lambda text: verdicts.first_named(_winners(text), _WINNERS),
)

WHERE: Final = (
    "FastChat's is fastchat/llm_judge/data/judge_prompts.jsonl in the repository "
    "lm-sys/FastChat (Apache-2.0); there are also `prompts: selfeval` (mode single) and, for the "
    "bundled judge, `prompts: compact`"
)
NAMES: Final = {"single": ("single-v1", "single-math-v1"), "pairwise": ("pair-v2", "pair-math-v1")}
"""FastChat's names: the general wording, and the one with a reference; `-multi-turn` is added."""
_SUFFIX: Final = "-multi-turn"
_MOST_TURNS: Final = 2


class Config(NamedJudgesSettings):
    """Settings of `mt_bench_judge`."""

    mode: Literal["single", "pairwise"] = Field(
        "single", description="Rate answers, or compare two."
    )
    prompts: Annotated[
        Literal["compact", "selfeval"] | dict[str, Wording],
        wordings_from(WHERE, "compact", "selfeval"),
    ] = Field(
        description="FastChat's judge_prompts.jsonl (beside the recipe or in ORCHESTRATOR_DATA), "
        "a file of one template, selfeval (mode single; the glass-box paper's wording, without "
        "references), or compact."
    )
    reference_categories: tuple[str, ...] = Field(
        ("coding", "math", "reasoning"),
        description="Categories that are judged against a reference answer.",
    )
    baseline: ModelName | None = Field(
        None, description="Model to compare all others with, instead of every pair."
    )
    convention: Literal["fastchat"] | None = Field(
        None,
        description="fastchat: the first match counts, -1 for no rating, no range check; null: a "
        "text without one clear verdict is missing.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.prompts == "selfeval" and self.mode == "pairwise":
            raise ValueError(f"'prompts: selfeval' has no wording for mode pairwise; {WHERE}")
        if not isinstance(self.prompts, str) and ONLY not in self.prompts:
            names = [name + more for name in NAMES[self.mode] for more in ("", _SUFFIX)]
            if lacking := [name for name in names if name not in self.prompts]:
                raise ValueError(f"'prompts' has no {', '.join(lacking)}; {WHERE}")
        if self.baseline is not None and self.mode == "single":
            raise ValueError("'baseline' can be used only with mode: pairwise")
        return self

    def wording(self, item: Item, n_turns: int) -> Wording:
        """Return the template, by the item's category and the number of turns."""
        if self.prompts == "compact":
            return COMPACT[self.pairwise]
        if not isinstance(self.prompts, str) and ONLY in self.prompts:
            return self.prompts[ONLY]
        if n_turns > _MOST_TURNS:
            whose = "selfeval's" if self.prompts == "selfeval" else "FastChat's"
            said = f"{whose} wordings show {_MOST_TURNS} turns, this item has {n_turns}"
            raise permanent("bad_item", said)
        if isinstance(self.prompts, str):
            return GPT[n_turns]
        guided = item.category in self.reference_categories
        return self.prompts[NAMES[self.mode][guided] + (_SUFFIX if n_turns > 1 else "")]


class Kind(HarnessJudge[Config]):
    """A judge rates each answer from 1 to 10, or compares two in two games."""

    cites = ("zheng2023judging",)
    version = 3
    published_as = "MT-Bench"
    forms = (RATING, WINNER)

    def combinations(self, candidates: Sequence[str]) -> Sequence[Combination]:
        """Every model, or every pair (or every model with the baseline), with every judge."""
        if self.config.baseline is None:
            return super().combinations(candidates)
        return pairs_by_judge(candidates, self.judges, self.config.baseline)

    @property
    def answering(self) -> tuple[ModelName, ...] | None:
        """Models whose answers are drawn, the baseline among them."""
        return with_baseline(self.config.candidates, self.config.baseline)
