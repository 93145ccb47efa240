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

Labels of one's own have whole numbers as values, from h to -h; those with equal values are summed
to one of 2h+1 levels.

Deviations: with a chain of thought the distribution is read where the last label of each trace
stands, after the trace's own tokens, and averaged over traces; a trace without a label is missing,
and without any there is no judgment, which is not a tie. A prefix is added behind each trace, and
the distribution is read there.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Self

import numpy as np
from msgspec.structs import replace
from pydantic import Field, model_validator

from orchestrator.judgment.pairwise import expand_two
from orchestrator.methods._judging import Judged, examples_of, judge_prompts, stages_of
from orchestrator.methods._own_labels import (
    MOST_LEVEL,
    OwnLabel,
    PairLabels,
    check_shown,
    levels_of,
    refuse_alike,
)
from orchestrator.methods._pairwise import (
    FIELDS,
    PAIR_COLUMNS,
    PREFERENCES,
    READING,
    Order,
    PairwiseJudge,
    PairwiseSettings,
    pair_row,
)
from orchestrator.plugin import Ask, Columns, Label, Row, Stage, Unit, labels
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.judging import PAIRWISE_PROMPTS, LabelSet

SYMBOLS: Final = ("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
LABELS: Final[dict[LabelSet, tuple[Label, ...]]] = {
    "five": labels(*SYMBOLS),
    "three": labels("[[>]]", "[[=]]", "[[<]]"),
    "two": (Label("A", ("A", " A")), Label("B", ("B", " B"))),
}
"""From "A much better" to "B much better"."""

_TWO: Final = 2


def verdicts_of(chosen: LabelSet | Sequence[OwnLabel]) -> tuple[Label, ...]:
    """Return the labels of a set, from "A much better" to "B much better"."""
    return LABELS[chosen] if isinstance(chosen, str) else tuple(one.label() for one in chosen)


def check_labels(
    chosen: LabelSet | Sequence[OwnLabel],
    prompt: Mapping[str, str],
    elsewhere: Sequence[str],
) -> None:
    """Check labels of a comparison, and that the judge is shown them.

    Labels are the name of a set or one's own; `prompt` is the setting with the prompt, and its
    value.

    Raises:
        ValueError: If they can't work, or are not shown.
    """
    ((setting, template),) = prompt.items()
    is_named = template in PAIRWISE_PROMPTS
    if not isinstance(chosen, str):
        values = [one.value for one in chosen]
        if values != sorted(values, reverse=True):
            raise ValueError("labels go from the first answer better to the second: values descend")
        if values[0] != -values[-1] or not 1 <= values[0] <= MOST_LEVEL:
            raise ValueError(
                "the highest value of a label and the lowest must be opposites, such as 2 and -2, "
                f"and at most {MOST_LEVEL}; got {values[0]} and {values[-1]}"
            )
        refuse_alike(verdicts_of(chosen))
        if is_named:
            raise ValueError(
                f"labels of your own need a template as `{setting}`; {template} asks for other "
                "labels"
            )
    if not is_named:
        check_shown(template, dict.fromkeys(FIELDS, ""), verdicts_of(chosen), elsewhere)


class Config(PairwiseSettings):
    """Settings of `pairwise_ranking`."""

    NAMED: ClassVar = tuple(PAIRWISE_PROMPTS)
    FIELDS: ClassVar = FIELDS

    prompt: TemplateText = Field(
        "judgment_distribution",
        description="Name of a prompt (compact, judgment_distribution), or a Jinja template "
        "(or a .j2 file) with prompt, reference, answer_a and answer_b.",
    )
    labels: LabelSet | PairLabels = Field(
        "five",
        description="five: [[>>]] [[>]] [[=]] [[<]] [[<<]]; three: [[>]] [[=]] [[<]]; two: A, B "
        "(one token each, also for servers that list only the alternatives of one token). Or a "
        "list of your own, from the first answer better to the second: names, or mappings of "
        "name, spellings and value.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_labels(self.labels, {"prompt": self.prompt}, self.elsewhere())
        return self

    def verdicts(self) -> tuple[Label, ...]:
        """The labels, from "A much better" to "B much better"."""
        return verdicts_of(self.labels)

    def template(self) -> str:
        """The template of the mode that is asked for."""
        if self.prompt not in PAIRWISE_PROMPTS or not isinstance(self.labels, str):
            return self.prompt
        return PAIRWISE_PROMPTS[self.prompt][self.labels][self.chain_of_thought]


class Kind(PairwiseJudge[Config]):
    """A judge compares two answers, in both orders, with five, three or two labels."""

    cites = ("wang2025judgment",)
    version = 5
    frame = "judgments"
    columns: ClassVar[Columns] = {"turn": "i64", **PREFERENCES, **READING, "traces": "list[f64]"}
    pairs = replace(PAIR_COLUMNS, traces="traces")

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Two orders of each pair, and the reasoning before them where asked for."""
        n = len(candidates) * (len(candidates) - 1)
        return stages_of("pairwise_ranking", self.config, n, examples_of(self.config))

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Both answers, both orders, one row a turn."""
        config = self.config
        turns, prompts = await self.both_orders(unit, ask)
        read = await judge_prompts(ask, unit, prompts, config.verdicts(), config)
        return [
            pair_row(made, order_of(ab, config.labels), order_of(ba, config.labels))
            | {"traces": _verdicts(ab, ba, config.labels) if config.chain_of_thought else None}
            for made, ab, ba in zip(turns, read[::2], read[1::2], strict=True)
        ]


def order_of(read: Judged, labels: LabelSet | tuple[OwnLabel, ...]) -> Order:
    """Return the judgment of one prompt as levels."""
    levels, seen = _levels(read.probabilities, labels), read.distribution
    return Order(levels, seen.coverage, seen.exact, len(read.traces), read.n_silent)


def _levels(p: tuple[float, ...], labels: LabelSet | tuple[OwnLabel, ...]) -> tuple[float, ...]:
    if len(p) == _TWO:
        # Two labels, whatever their values, are the released code's A and B.
        return expand_two(*p)
    return p if isinstance(labels, str) else levels_of(p, labels)


def _verdicts(ab: Judged, ba: Judged, labels: LabelSet | tuple[OwnLabel, ...]) -> list[float]:
    """Count the traces of both orders that find A's answer better, neither, and B's better."""
    turned = [_levels(p, labels)[::-1] for p in ba.traces]
    found = np.array([_levels(p, labels) for p in ab.traces] + turned)
    half = found.shape[1] // 2
    better, worse = found[:, :half].sum(axis=1), found[:, half + 1 :].sum(axis=1)
    # A check of a recipe imports this file, and what it computes with takes long to import.
    from orchestrator.statistics.judgments import decisions  # noqa: PLC0415

    verdicts = decisions(better, found[:, half], worse)
    return [float((verdicts == verdict).sum()) for verdict in (1.0, 0.0, -1.0)]
