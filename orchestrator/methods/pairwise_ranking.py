"""Pairwise ranking: a judge compares two answers, in both orders, with five, three or two labels.

For every item and every pair of candidates the judge sees the answers as (A, B) and as (B, A). What
is read is not the label it would write but the whole distribution over `[[>>]] [[>]] [[=]] [[<]]
[[<<]]` where the label stands. P(A better) = P(>>) + P(>) + P(=)/2. Distributions of both orders
are averaged before a statistic is taken (pre-aggregation) and after (post-aggregation). Where an
item has several turns, there is one judgment a turn, of the conversations up to it.

Source: Wang, Zhang and Choi, "Improving LLM-as-a-Judge Inference with the Judgment Distribution"
(arXiv 2503.03064); formulas as in `docs/methods/pairwise_ranking.md`. Three labels are `[[>]] [[=]]
[[<]]`; two are A and B, which become three levels as in the released code, whose tie is exactly
equal probabilities.

Deviations: with a chain of thought the distribution is read where the last label of each trace
stands, after the trace's own tokens, and averaged over traces; a trace without a label is missing,
and without any there is no judgment, which is not a tie.
"""

from collections.abc import Sequence
from functools import partial
from itertools import combinations as pairs_of
from typing import ClassVar, Final

from pydantic import Field

from orchestrator.ask import Ask, ChooseAsk
from orchestrator.contracts.method import Columns, Combination, Compared, ModelName, Stage
from orchestrator.judgment.pairwise import expand_two, judge_pair
from orchestrator.methods._conversation import Turn, converse, questions, references, replies
from orchestrator.methods._examples import example
from orchestrator.methods._judging import (
    Judged,
    JudgeMethod,
    JudgeSettings,
    example_place,
    judge_prompts,
    needs_of,
    stages_of,
    user_message,
)
from orchestrator.prompts import pairwise
from orchestrator.prompts.pairwise import LabelSet
from orchestrator.prompts.template import TemplateText
from orchestrator.records import Label, Messages, Row, Unit, labels
from orchestrator.roles import ESTIMATORS, PairColumns

SYMBOLS: Final = ("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
LABELS: Final[dict[LabelSet, tuple[Label, ...]]] = {
    "five": labels(*SYMBOLS),
    "three": labels("[[>]]", "[[=]]", "[[<]]"),
    "two": (Label("A", ("A", " A")), Label("B", ("B", " B"))),
}
"""From "A much better" to "B much better"."""


FIELDS: Final = ("prompt", "reference", "answer_a", "answer_b")
"""Fields that a template may show."""


class Config(JudgeSettings):
    """Settings of `pairwise_ranking`."""

    NAMED: ClassVar = pairwise.NAMES
    FIELDS: ClassVar = FIELDS
    SHOWN: ClassVar = ("answer_a", "answer_b")

    candidates: tuple[ModelName, ...] | None = Field(
        None, description="Models to rank. Default: all that are not judges.", min_length=2
    )
    prompt: TemplateText = Field(
        "judgment_distribution",
        description="Name of a prompt (compact, judgment_distribution), or a Jinja template "
        "(or a .j2 file) with prompt, reference, answer_a and answer_b.",
    )
    labels: LabelSet = Field(
        "five",
        description="five: [[>>]] [[>]] [[=]] [[<]] [[<<]]; three: [[>]] [[=]] [[<]]; two: A, B "
        "(one token each, also for servers that list only the alternatives of one token).",
    )

    def template(self) -> str:
        """The template of the mode that is asked for."""
        if self.prompt not in pairwise.NAMES:
            return self.prompt
        named = pairwise.prompt(self.prompt, self.labels)
        return named.form(chain_of_thought=self.chain_of_thought)


class PairwiseRanking(JudgeMethod[Config]):
    """A judge compares two answers, in both orders, with five, three or two labels."""

    version = 4
    frame = "judgments"
    unit_columns: ClassVar[Columns] = {
        "item": "str",
        "category": "str",
        "model_a": "str",
        "model_b": "str",
        "judge": "str",
    }
    columns: ClassVar[Columns] = {
        "turn": "i64",
        "p_ab": "list[f64]",
        "p_ba": "list[f64]",
        "coverage_ab": "f64",
        "coverage_ba": "f64",
        "prefer_a_ab": "f64",
        "prefer_a_ba": "f64",
        "prefer_a": "f64",
        "mean_pre": "f64",
        "mean_post": "f64",
        "mode_pre": "f64",
        "mode_post": "f64",
        "median_pre": "f64",
        "median_post": "f64",
        "exact": "bool",
        "same_text": "bool",
        "n_traces": "i64",
        "n_silent": "i64",
    }
    scores: ClassVar = {"prefer_a": 1}
    pairs = PairColumns(
        judge="judge",
        turn="turn",
        preference_ab="prefer_a_ab",
        preference_ba="prefer_a_ba",
        p_ab="p_ab",
        p_ba="p_ba",
        coverage_ab="coverage_ab",
        coverage_ba="coverage_ba",
        exact="exact",
        same_text="same_text",
        estimators=ESTIMATORS,
    )

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """Every pair of candidates with every judge, a judge's pairs together."""
        return [
            Combination(pair, judge)
            for judge in self.config.judges
            for pair in pairs_of(candidates, 2)
        ]

    def needs(self) -> frozenset[str]:
        """The reference, where the prompt can't be made without it."""
        return needs_of(self.config.template(), FIELDS)

    def compared(self) -> Compared:
        """P(A better), the mean of both orders."""
        return Compared("prefer_a", 0.0, 1.0)

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Two orders of each pair, and the reasoning before them where asked for."""
        n = len(candidates) * (len(candidates) - 1)
        return stages_of(
            "pairwise_ranking", self.config, n, partial(examples_of, config=self.config)
        )

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Both answers, both orders, one row a turn."""
        config = self.config
        turns = await converse(unit.item, unit.models, ask, config.answer)
        prompts = [
            _messages(unit, config, first, second)
            for n_turns in range(1, len(turns) + 1)
            for a, b in [tuple(zip(*turns[:n_turns], strict=True))]
            for first, second in ((a, b), (b, a))
        ]
        labels_used = LABELS[config.labels]
        read = await judge_prompts(ask, unit.judge, prompts, labels_used, config, unit.item)
        return [
            _row(made, ab, ba) for made, ab, ba in zip(turns, read[::2], read[1::2], strict=True)
        ]


def examples_of(judge: str, config: Config) -> tuple[ChooseAsk, ...]:
    """A made-up comparison."""
    begun, asked = example_place(config, LABELS[config.labels])
    return example(judge, config.template(), asked, begun=begun)


def _messages(
    unit: Unit, config: Config, first: Sequence[Turn], second: Sequence[Turn]
) -> Messages:
    fields = {
        "prompt": questions(first),
        "reference": references(unit.item, first),
        "answer_a": replies(first),
        "answer_b": replies(second),
    }
    return user_message(config.template(), fields)


def _levels(read: Judged) -> tuple[float, ...]:
    """An odd number of levels, the answer shown first much better at index 0."""
    p = read.probabilities
    return p if len(p) % 2 else expand_two(*p)


def _row(turns: tuple[Turn, ...], ab: Judged, ba: Judged) -> Row:
    a, b = turns
    p_ab, p_ba = _levels(ab), _levels(ba)
    judged = judge_pair(p_ab, p_ba)
    return {
        "turn": a.number,
        "p_ab": list(p_ab),
        "p_ba": list(reversed(p_ba)),
        "coverage_ab": ab.distribution.coverage,
        "coverage_ba": ba.distribution.coverage,
        "prefer_a_ab": judged.prefer_ab,
        "prefer_a_ba": judged.prefer_ba,
        "prefer_a": judged.prefer,
        "mean_pre": judged.mean_pre,
        "mean_post": judged.mean_post,
        "mode_pre": judged.mode_pre,
        "mode_post": judged.mode_post,
        "median_pre": judged.median_pre,
        "median_post": judged.median_post,
        "exact": ab.distribution.exact and ba.distribution.exact,
        "same_text": a.answer.text == b.answer.text,
        "n_traces": ab.n_traces + ba.n_traces,
        "n_silent": ab.n_silent + ba.n_silent,
    }
