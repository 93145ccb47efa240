"""Judged rewrites: a judge says whether rewriting an answer made it better, in both orders.

The answers and rewritings are those of `probdiff` with the same settings, drawn once for both. The
judge sees the rewriting and the answer as (A, B) and as (B, A), and what is read is its whole
distribution over the labels of `pairwise_ranking`, or over labels of one's own. So d can be held
against a judge: the conflict degree of Table 6 is the analysis `conflict`.

Source: Xia et al., "Language Models can Evaluate Themselves via Probability Discrepancy" (Findings
of ACL 2024), section 5.2, which has GPT-4 and people say whether a rewriting improved an answer.

Deviations: the paper does not print its judge's prompt, nor how it asked; this judge compares, and
its verdict is the likeliest label of both orders together. Equal texts are not judged: 0.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods import pairwise_ranking
from orchestrator.methods._drawing import Drawing, Judges, OfAnswers, fields
from orchestrator.methods._examples import messages
from orchestrator.methods._judging import (
    checked_prompt,
    examples_of,
    judge_prompts,
    needs_of,
    stages_of,
)
from orchestrator.methods._leading import LedSettings
from orchestrator.methods._own_labels import PairLabels
from orchestrator.methods._pairwise import FIELDS, Order
from orchestrator.methods._rewriting import RewritingSettings, rewrite, rewriting_stages
from orchestrator.plugin import Ask, Columns, Label, Row, Stage, Unit, typed
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.judging import PAIRWISE_PROMPTS, LabelSet

_SHOWN: Final = ("answer_a", "answer_b")


class Config(LedSettings, RewritingSettings):
    """Settings of `judged_rewrites`."""

    judges: Judges
    judge_prompt: TemplateText = Field(
        "judgment_distribution",
        description="Name of a judge's prompt (compact, judgment_distribution), or a Jinja "
        "template (or a .j2 file) with prompt, reference, answer_a and answer_b.",
    )
    labels: LabelSet | PairLabels = Field(
        "five",
        description="Labels of the judge: five, three, two, or a list of your own, as in "
        "pairwise_ranking.",
    )
    chain_of_thought: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description=(
            "If true, let the judge reason first, then read the distribution at its verdict."
        ),
    )
    reasoning: Drawing = Field(
        Drawing(max_tokens=1024), description="Sampling settings of the reasoning of the judge."
    )

    @field_validator("judge_prompt")
    @classmethod
    def _judge_prompt_exists(cls, value: str) -> str:
        return checked_prompt(value, tuple(PAIRWISE_PROMPTS), FIELDS, _SHOWN)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        shown = {"judge_prompt": self.judge_prompt}
        pairwise_ranking.check_labels(self.labels, shown, self.elsewhere())
        self.check_examples(FIELDS, _SHOWN, reasoned=self.chain_of_thought)
        return self

    @model_serializer(mode="wrap")
    def _without_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        set_ones = super()._without_unset(write)
        return {k: v for k, v in set_ones.items() if (k, v) != ("labels", "five")}

    def verdicts(self) -> tuple[Label, ...]:
        """Return the labels, from "A much better" to "B much better"."""
        return pairwise_ranking.verdicts_of(self.labels)

    def judging(self) -> pairwise_ranking.Config:
        """Return the settings of the judge alone."""
        return pairwise_ranking.Config(
            judges=self.judges,
            prompt=self.judge_prompt,
            labels=self.labels,
            chain_of_thought=self.chain_of_thought,
            reasoning=self.reasoning,
            prefix=self.prefix,
            system=self.system,
            examples=self.examples,
        )


class Kind(OfAnswers[Config]):
    """A judge says whether rewriting an answer made it better, in both orders."""

    cites = ("xia2024probdiff",)
    version = 2
    unit_columns: ClassVar[Columns] = typed("item category model judge: str")
    columns: ClassVar[Columns] = typed(
        "turn: i64 | answer rewriting: str | same_text: bool | p_ab p_ba: list[f64]",
        "coverage_ab coverage_ba prefer_rewriting_ab prefer_rewriting_ba: f64",
        "prefer_rewriting verdict: f64 | exact: bool",
    )

    def needs(self) -> frozenset[str]:
        """Return the reference if the judge's prompt can't be made without it."""
        return needs_of(self.config.judging().template(), dict.fromkeys(FIELDS, ""))

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """K rewritings a model, and two judgments of each, where it changed anything."""
        config = self.config
        judging = config.judging()
        return [
            *rewriting_stages(candidates, config),
            *stages_of(
                f"judged_rewrites {config.model_dump_json(exclude={'name', 'judges'})}",
                judging,
                2 * len(candidates),
                examples_of(judging),
            ),
        ]

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Judge each turn's rewriting against its answer."""
        config = self.config
        (made,) = await rewrite(unit, ask, config)
        turns, judging = [turn for turn, _ in made], config.judging()
        # Equal texts are not judged; earlier turns are the same in both.
        changed = [at for at, (turn, copy) in enumerate(made) if turn.answer.text != copy.text]
        prompts = [
            messages(judging.template(), fields(unit.item, *both))
            for at in changed
            for copy in [turns[at]._replace(answer=made[at][1])]
            for copied, answered in [([*turns[:at], copy], turns[: at + 1])]
            for both in ((copied, answered), (answered, copied))
        ]
        read = await judge_prompts(ask, unit, prompts, judging.verdicts(), judging)
        orders = [pairwise_ranking.order_of(one, judging.labels) for one in read]
        judged = dict(zip(changed, zip(orders[::2], orders[1::2], strict=True), strict=True))
        return [
            {
                **dict.fromkeys(Kind.columns),
                "turn": turn.number,
                "answer": turn.answer.text,
                "rewriting": copy.text,
                **_row(judged.get(at)),
            }
            for at, (turn, copy) in enumerate(made)
        ]


def _row(judged: tuple[Order, Order] | None) -> Row:
    """Return the columns of a judgment, all in the view of the rewriting.

    Equal texts have the verdict 0 and nothing else.
    """
    if judged is None:
        return {"same_text": True, "verdict": 0.0}
    ab, ba = judged
    found = judge_pair(ab.levels, ba.levels)
    return {
        "same_text": False,
        "p_ab": list(ab.levels),
        "p_ba": list(reversed(ba.levels)),
        "coverage_ab": ab.coverage,
        "coverage_ba": ba.coverage,
        "prefer_rewriting_ab": found["prefer_a_ab"],
        "prefer_rewriting_ba": found["prefer_a_ba"],
        "prefer_rewriting": found["prefer_a"],
        "verdict": found["mode_pre"],
        "exact": ab.exact and ba.exact,
    }
