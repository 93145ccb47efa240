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
from functools import partial
from typing import Any, ClassVar, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from orchestrator.ask import Ask
from orchestrator.contracts.method import Columns, Companion, Method, ModelName, Stage
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods import answers, pairwise_ranking
from orchestrator.methods._drawing import Drawing, blank_row
from orchestrator.methods._judging import (
    checked_prompt,
    judge_prompts,
    needs_of,
    stages_of,
)
from orchestrator.methods._own_labels import PairLabels
from orchestrator.methods._pairwise import FIELDS, pair_prompt
from orchestrator.methods._rewriting import RewritingSettings, rewrite, rewriting_stages
from orchestrator.prompts import pairwise
from orchestrator.prompts.pairwise import LabelSet
from orchestrator.prompts.template import TemplateText
from orchestrator.records import Messages, Row, Unit


class Config(RewritingSettings):
    """Settings of `judged_rewrites`."""

    judges: tuple[ModelName, ...] = Field(description="Models that act as judges.", min_length=1)
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
        shown = ("answer_a", "answer_b")
        return checked_prompt(value, pairwise.NAMES, FIELDS, shown)

    @model_validator(mode="after")
    def _labels_are_shown(self) -> Self:
        pairwise_ranking.check_labels(self.labels, {"judge_prompt": self.judge_prompt})
        return self

    @model_serializer(mode="wrap")
    def _without_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A fingerprint is made of the settings: one that came later must not change it unset.
        return {k: v for k, v in write(self).items() if (k, v) != ("labels", "five")}

    def judging(self) -> pairwise_ranking.Config:
        """The settings of the judge alone."""
        return pairwise_ranking.Config(
            judges=self.judges,
            prompt=self.judge_prompt,
            labels=self.labels,
            chain_of_thought=self.chain_of_thought,
            reasoning=self.reasoning,
        )


class JudgedRewrites(Method[Config]):
    """A judge says whether rewriting an answer made it better, in both orders."""

    cites = ("xia2024probdiff",)
    version = 2
    unit_columns: ClassVar[Columns] = {
        "item": "str",
        "category": "str",
        "model": "str",
        "judge": "str",
    }
    columns: ClassVar[Columns] = {
        "turn": "i64",
        "answer": "str",
        "rewriting": "str",
        "same_text": "bool",
        "p_ab": "list[f64]",
        "p_ba": "list[f64]",
        "coverage_ab": "f64",
        "coverage_ba": "f64",
        "prefer_rewriting_ab": "f64",
        "prefer_rewriting_ba": "f64",
        "prefer_rewriting": "f64",
        "verdict": "f64",
        "exact": "bool",
    }

    @property
    def judges(self) -> tuple[str, ...]:
        """Models that judge."""
        return self.config.judges

    def companions(self) -> list[Companion]:
        """The answers that are rewritten, as a frame of their own."""
        return [answers.companion(self.config.candidates, self.config.answer)]

    def needs(self) -> frozenset[str]:
        """The reference, where the judge's prompt can't be made without it."""
        return needs_of(self.config.judging().template(), FIELDS)

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
                partial(pairwise_ranking.examples_of, config=judging),
            ),
        ]

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Judge each turn's rewriting against its answer."""
        config = self.config
        made = await rewrite(unit, ask, config)
        turns = [found.turn for found in made]
        judging = config.judging()
        template, verdicts = judging.template(), judging.verdicts()
        prompts: list[Messages] = []
        for at, (turn, first, last) in enumerate(made):
            if first.text != last.text:
                rewritten = [*turns[:at], turn._replace(answer=last)]
                answered = turns[: at + 1]
                # Earlier turns are the same in both.
                prompts.append(pair_prompt(template, unit.item, rewritten, answered))
                prompts.append(pair_prompt(template, unit.item, answered, rewritten))
        read = await judge_prompts(ask, unit.judge, prompts, verdicts, judging, unit)
        orders = iter([pairwise_ranking.order_of(one, config.labels) for one in read])
        rows = []
        for turn, first, last in made:
            row = {
                **blank_row(JudgedRewrites.columns),
                **self.identify(unit),
                "turn": turn.number,
                "answer": first.text,
                "rewriting": last.text,
                "same_text": first.text == last.text,
            }
            rows.append(row)
            if first.text == last.text:
                row["verdict"] = 0.0
                continue
            ab, ba = next(orders), next(orders)
            judged = judge_pair(ab.levels, ba.levels)
            row |= {
                "p_ab": list(ab.levels),
                "p_ba": list(reversed(ba.levels)),
                "coverage_ab": ab.coverage,
                "coverage_ba": ba.coverage,
                "prefer_rewriting_ab": judged.prefer_ab,
                "prefer_rewriting_ba": judged.prefer_ba,
                "prefer_rewriting": judged.prefer,
                "verdict": judged.mode_pre,
                "exact": ab.exact and ba.exact,
            }
        return rows
