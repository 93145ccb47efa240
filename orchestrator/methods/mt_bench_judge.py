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

Deviations: a text without one clear verdict is missing, and so is a rating outside 1..10; with
`convention: fastchat` the first match counts, no rating is -1 (left out of means, as there) and no
range is checked. The distribution over the labels, where asked for, is ours. `compact` is the
bundled judge's wording.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from orchestrator.judgment.harness.mt_bench import NEEDS_REFERENCE
from orchestrator.methods import _formats, _harness, answers
from orchestrator.methods._drawing import Turn
from orchestrator.methods._harness import NamedJudges, NamedJudgesSettings
from orchestrator.plugin import (
    Ask,
    AskFailed,
    Combination,
    Companion,
    Failure,
    Item,
    Messages,
    ModelName,
    Row,
    Unit,
)
from orchestrator.prompts import compact
from orchestrator.prompts.files import ONLY, Wording, wordings_from
from orchestrator.prompts.glass_box import GPT

WHERE: Final = (
    "FastChat's is fastchat/llm_judge/data/judge_prompts.jsonl in the repository "
    "lm-sys/FastChat (Apache-2.0); there are also `prompts: selfeval` (mode single) and, for the "
    "bundled judge, `prompts: compact`"
)
NAMES: Final = {"single": ("single-v1", "single-math-v1"), "pairwise": ("pair-v2", "pair-math-v1")}
"""FastChat's names: the general wording, and the one with a reference; `-multi-turn` is added."""
_COMPACT: Final = {
    "single": Wording(user=compact.RATING, form="jinja"),
    "pairwise": Wording(user=compact.PAIRWISE, form="jinja"),
}
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
        tuple(sorted(NEEDS_REFERENCE)),
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

    @property
    def pairwise(self) -> bool:
        """True if the judge compares two answers."""
        return self.mode == "pairwise"

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        if self.prompts == "selfeval" and self.mode == "pairwise":
            raise ValueError(f"'prompts: selfeval' has no wording for mode pairwise; {WHERE}")
        if not isinstance(self.prompts, str) and ONLY not in self.prompts:
            names = [name + more for name in NAMES[self.mode] for more in ("", _SUFFIX)]
            if lacking := [name for name in names if name not in self.prompts]:
                raise ValueError(f"'prompts' has no {', '.join(lacking)}; {WHERE}")
        if self.baseline is not None and self.mode == "single":
            raise ValueError("'baseline' can be used only with mode: pairwise")
        return self


class MTBenchJudge(NamedJudges[Config]):
    """A judge rates each answer from 1 to 10, or compares two in two games."""

    cites = ("zheng2023judging",)
    version = 3
    published_as = "MT-Bench"

    def combinations(self, candidates: Sequence[str]) -> Sequence[Combination]:
        """Every model, or every pair (or every model with the baseline), with every judge."""
        baseline = self.config.baseline
        if baseline is None:
            return super().combinations(candidates)
        return [
            Combination((model, baseline), judge)
            for judge in self.judges
            for model in candidates
            if model != baseline
        ]

    def companions(self) -> list[Companion]:
        """The answers that are judged, as a frame of their own."""
        named, baseline = self.config.candidates, self.config.baseline
        if named is not None and baseline is not None:
            named = tuple(dict.fromkeys((*named, baseline)))
        return [answers.companion(named, self.config.answer)]

    def needs(self) -> frozenset[str]:
        """The reference, where the wording shows it whatever the category."""
        return frozenset({"reference"} if self.config.prompts == "compact" else ())

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One rating, or one comparison in both orders, a turn."""
        config = self.config
        prompt_of = partial(_messages, unit.item, config)
        built_in = config.prompts == "compact"
        if config.mode == "single":
            form = _formats.COMPACT_RATING if built_in else _formats.FASTCHAT_RATING
        else:
            form = _formats.COMPACT_SYMBOL if built_in else _formats.FASTCHAT_WINNER
        return await self.verdicts(unit, ask, form, prompt_of, config.convention)


def _messages(item: Item, config: Config, shown: Sequence[Sequence[Turn]]) -> Messages:
    wording = _wording(item, config, n_turns=len(shown[0]))
    return _harness.messages(wording, _harness.fields(item, shown))


def _wording(item: Item, config: Config, n_turns: int) -> Wording:
    if config.prompts == "compact":
        return _COMPACT[config.mode]
    if not isinstance(config.prompts, str) and ONLY in config.prompts:
        return config.prompts[ONLY]
    if n_turns > _MOST_TURNS:
        whose = "selfeval's" if config.prompts == "selfeval" else "FastChat's"
        said = f"{whose} wordings show {_MOST_TURNS} turns, this item has {n_turns}"
        raise AskFailed(Failure("bad_item", said, permanent=True))
    if isinstance(config.prompts, str):
        return GPT[n_turns]
    guided = item.category in config.reference_categories
    return config.prompts[NAMES[config.mode][guided] + (_SUFFIX if n_turns > 1 else "")]
