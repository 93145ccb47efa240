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
from typing import ClassVar

from orchestrator.methods import answers, pairwise_ranking
from orchestrator.methods._changed import (
    ChangedAnswers,
    ChangeJudge,
    changed_columns,
    changed_row,
    judge_changes,
)
from orchestrator.methods._drawing import blank_row
from orchestrator.methods._judging import stages_of
from orchestrator.methods._rewriting import RewritingSettings, rewrite, rewriting_stages
from orchestrator.plugin import Ask, Columns, Companion, Row, Stage, Unit


class Config(ChangeJudge, RewritingSettings):
    """Settings of `judged_rewrites`."""


class JudgedRewrites(ChangedAnswers[Config]):
    """A judge says whether rewriting an answer made it better, in both orders."""

    cites = ("xia2024probdiff",)
    version = 2
    columns: ClassVar[Columns] = {
        "turn": "i64",
        "answer": "str",
        "rewriting": "str",
        **changed_columns("rewriting"),
    }

    def companions(self) -> list[Companion]:
        """The answers that are rewritten, as a frame of their own."""
        return [answers.companion(self.config.candidates, self.config.answer)]

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
        turns = [turn for turn, _, _ in made]
        judged = await judge_changes(
            unit, ask, turns, [last for _, _, last in made], config.judging()
        )
        return [
            {
                **blank_row(JudgedRewrites.columns),
                **self.identify(unit),
                "turn": turn.number,
                "answer": first.text,
                "rewriting": last.text,
                **changed_row("rewriting", both),
            }
            for (turn, first, last), both in zip(made, judged, strict=True)
        ]
