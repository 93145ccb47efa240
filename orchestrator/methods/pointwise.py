"""Pointwise: a judge rates one answer; what is read is the distribution over all scores.

For every item and candidate the judge sees one answer and is to write a score. What is read is the
probability of every score of the scale at the place where it stands, renormalised over the scale,
and from it the mean, which is what the source recommends, beside median, first percentile, mode
and rounded mean. Two models are compared by their distributions on the same item
(`orchestrator/summaries/_scores.py`).

Source: Wang, Zhang and Choi, "Improving LLM-as-a-Judge Inference with the Judgment Distribution"
(arXiv 2503.03064); formulas as in `docs/methods/pointwise.md`.

Deviations: a score is read with and without a space before it, and the two are summed; scores of
several tokens (10, 100) are read by the chain rule; what the labels do not hold is the coverage,
and never filled in. With several traces the distributions after each are averaged. A prefix is
added behind the reasoning, and the score is read there.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, field_validator, model_validator

from orchestrator.judgment.pointwise import describe_scores
from orchestrator.methods._drawing import converse, fields
from orchestrator.methods._examples import messages
from orchestrator.methods._judging import (
    JudgeMethod,
    JudgeSettings,
    examples_of,
    judge_prompts,
    stages_of,
)
from orchestrator.methods._own_labels import GradeLabels, Grades, ascending, check_shown, spanned
from orchestrator.plugin import Ask, Columns, Compared, Label, Row, ScoreColumns, Stage, Unit, typed
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.judging import POINTWISE_PROMPTS

FIELDS: Final = ("prompt", "reference", "answer", "low", "high")
"""Fields that a template may show."""

_MOST_SCORES: Final = 201
_COMPACT_SCALE: Final = (1, 9)
SCORE: Final = "SCORE"
"""Stands for the score in `verdict`."""


class Config(JudgeSettings):
    """Settings of `pointwise`."""

    PROMPTS: ClassVar = POINTWISE_PROMPTS
    NAMED: ClassVar = tuple(POINTWISE_PROMPTS)
    FIELDS: ClassVar = FIELDS
    SHOWN: ClassVar = ("answer",)

    prompt: TemplateText = Field(
        "judgment_distribution",
        description="Name of a prompt (compact, judgment_distribution), or a Jinja template "
        "(or a .j2 file) with prompt, reference, answer, low and high.",
    )
    scale: Annotated[tuple[int, int], ascending(_MOST_SCORES)] = Field(
        (1, 9), description="Lowest and highest score; every integer in this range is a label."
    )
    verdict: str = Field(
        SCORE,
        description="Format of a score in the text of the judge, with SCORE for the number, "
        'such as "[[SCORE]]".',
    )
    labels: GradeLabels = None

    _labels_span_the_scale = model_validator(mode="before")(spanned)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.labels is not None:
            self.grades().check()
            if self.prompt in POINTWISE_PROMPTS or self.verdict != SCORE:
                raise ValueError(
                    "labels of your own need a template as `prompt`, and exclude `verdict`"
                )
        if self.prompt == "compact" and self.scale != _COMPACT_SCALE:
            raise ValueError("the prompt compact asks for 1 to 9; omit scale")
        if self.prompt not in POINTWISE_PROMPTS:
            fields = {**dict.fromkeys(FIELDS, ""), **self.grades().ends()}
            check_shown(self.prompt, fields, self.verdicts(), self.elsewhere())
        return self

    @field_validator("verdict")
    @classmethod
    def _checked(cls, value: str) -> str:
        if value.count(SCORE) != 1:
            raise ValueError(f"the verdict must hold {SCORE} once, got {value!r}")
        return value

    def grades(self) -> Grades:
        """Return the scores and their labels."""
        return Grades(self.scale, self.labels)

    def verdicts(self) -> tuple[Label, ...]:
        """The scores as they are written, each with and without a space before it."""
        return self.grades().spelled(lambda score: self.verdict.replace(SCORE, str(score)))


class Kind(JudgeMethod[Config]):
    """A judge rates one answer; what is read is the distribution over all scores."""

    cites = ("wang2025judgment",)
    version = 2
    frame = "scores"
    unit_columns: ClassVar[Columns] = typed("item category model judge: str")
    columns: ClassVar[Columns] = typed(
        "turn: i64 | p: list[f64]",
        "mean mean_low mean_high mode rounded_mean median first_percentile std: f64",
        "lower_semideviation entropy coverage: f64 | exact: bool",
        "n_traces n_silent n_characters: i64",
    )
    scores: ClassVar = {"mean": 1}
    distribution = ScoreColumns(
        mean="mean", std="std", coverage="coverage", judge="judge", turn="turn"
    )

    def compared(self) -> Compared:
        """The mean score, on the scale."""
        low, high = self.config.scale
        return Compared("mean", low, high)

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """One judgment an answer, and the reasoning before it where asked for."""
        examples = examples_of(self.config, **self.config.grades().ends())
        return stages_of("pointwise", self.config, len(candidates), examples)

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """The answer and its rating, one row a turn."""
        config = self.config
        turns = [turn for (turn,) in await converse(unit.item, unit.models, ask, config.answer)]
        grades, template = config.grades(), config.template()
        prompts = [
            messages(template, fields(unit.item, turns[:n]) | grades.ends())
            for n in range(1, len(turns) + 1)
        ]
        read = await judge_prompts(ask, unit, prompts, config.verdicts(), config)
        scores, values = grades.scores(), grades.values()
        rows: list[Row] = []
        for turn, one in zip(turns, read, strict=True):
            p = grades.over_scale(one.probabilities)
            low, high = one.distribution.mean_bounds(values)
            rows.append(
                {
                    "turn": turn.number,
                    "p": list(p),
                    **describe_scores(p, scores),
                    "mean_low": low,
                    "mean_high": high,
                    "coverage": one.distribution.coverage,
                    "exact": one.distribution.exact,
                    "n_traces": len(one.traces),
                    "n_silent": one.n_silent,
                    "n_characters": len(turn.answer.text),
                }
            )
        return rows
