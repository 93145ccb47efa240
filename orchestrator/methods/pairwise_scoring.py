"""Pairwise scoring: a judge rates two answers in one reply, in both orders.

For every item and every pair of candidates the judge sees the answers as (A, B) and as (B, A) and
is to write two scores, the one of the answer shown first and then the other. The first score's
distribution is read where it stands; the second one's behind the most likely first score, since it
is written after it. With x the first one's argmax, the difference of the scores has 2K-1 levels,
and preferences are taken from it as in pairwise ranking: from the average of both orders
(pre-aggregation) and per order (post-aggregation).

Source: Wang, Zhang and Choi, "Improving LLM-as-a-Judge Inference with the Judgment Distribution"
(arXiv 2503.03064) and their released inference formulas (`docs/methods/pairwise_scoring.md`).
`score_a` and `score_b` are the simpler variant that a write-up of the paper describes: each
answer's mean score, averaged over both orders.

Labels of one's own have whole numbers as values, which are the scores; the second one is read
behind the likeliest label of the score x.

Deviations: the prompt of this setting was not at hand (2026-11-28); the wording is ours. A score
that can't be read is missing (the released code makes it a tie).
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Self

import msgspec
from pydantic import Field, model_validator

from orchestrator.judgment.distribution import mixture
from orchestrator.methods._drawing import Turn
from orchestrator.methods._examples import REASONED, example
from orchestrator.methods._judging import Judged, at_places, examples_of, judged, places, stages_of
from orchestrator.methods._leading import lead
from orchestrator.methods._own_labels import GradeLabels, Grades, ascending, check_shown, spanned
from orchestrator.methods._pairwise import (
    FIELDS,
    PREFERENCES,
    READING,
    Order,
    PairwiseJudge,
    PairwiseSettings,
    pair_row,
)
from orchestrator.methods._verdicts import BETWEEN, distributions, slot_of_two
from orchestrator.plugin import Ask, ChooseAsk, Columns, Label, Messages, Prefix, Row, Stage, Unit
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.judging import SCORING_PROMPTS

_MOST_SCORES: Final = 101


class Config(PairwiseSettings):
    """Settings of `pairwise_scoring`."""

    PROMPTS: ClassVar = SCORING_PROMPTS
    NAMED: ClassVar = tuple(SCORING_PROMPTS)
    FIELDS: ClassVar = (*FIELDS, "low", "high")

    prompt: TemplateText = Field(
        "two_scores",
        description="Name of a prompt (compact, two_scores), or a Jinja template (or a .j2 file) "
        "with prompt, reference, answer_a, answer_b, low and high; the judge must write two scores "
        "with a space between them.",
    )
    scale: Annotated[tuple[int, int], ascending(_MOST_SCORES)] = Field(
        (1, 9), description="Lowest and highest score; every integer in this range is a label."
    )
    labels: GradeLabels = None

    _labels_span_the_scale = model_validator(mode="before")(spanned)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.prefix:
            raise ValueError(
                "prefix can't be used: it leads to one label, and a reply has two scores; show the "
                "form of a reply by `examples`"
            )
        if self.labels is not None:
            self.grades().check()
            if self.prompt in SCORING_PROMPTS:
                raise ValueError("labels of your own need a template as `prompt`")
        if self.prompt not in SCORING_PROMPTS:
            fields = {**dict.fromkeys(self.FIELDS, ""), **self.grades().ends()}
            check_shown(self.prompt, fields, self.verdicts(), self.elsewhere())
        return self

    def grades(self) -> Grades:
        """Return the scores and their labels."""
        return Grades(self.scale, self.labels)

    def likeliest(self, probabilities: Sequence[float]) -> int:
        """Return which label is the most likely one of the most likely score."""
        grades = self.grades()
        values, scores = grades.values(), grades.over_scale(probabilities)
        return max(
            range(len(values)),
            key=lambda at: (scores[values[at] - self.scale[0]], probabilities[at], -at),
        )

    def verdicts(self) -> tuple[Label, ...]:
        """The first score as it is written, with and without a space before it."""
        return self.grades().spelled()

    def second_labels(self) -> tuple[Label, ...]:
        """The second score as it is written behind the first."""
        return tuple(
            Label(
                f"{BETWEEN}{label.name.lstrip()}",
                tuple(dict.fromkeys(f"{BETWEEN}{form.lstrip()}" for form in label.spellings)),
            )
            for label in self.verdicts()
        )


class Kind(PairwiseJudge[Config]):
    """A judge rates two answers in one reply, in both orders."""

    cites = ("wang2025judgment",)
    version = 2
    frame = "pair_scores"
    columns: ClassVar[Columns] = {
        "turn": "i64",
        "p_first_ab": "list[f64]",
        "p_second_ab": "list[f64]",
        "p_first_ba": "list[f64]",
        "p_second_ba": "list[f64]",
        **PREFERENCES,
        "score_a": "f64",
        "score_b": "f64",
        **READING,
    }
    pairs = msgspec.structs.replace(
        PairwiseJudge.pairs, score_a="score_a", score_b="score_b", verdicts=False
    )

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Two scores in two orders of each pair, and the reasoning before them where asked for."""
        n = len(candidates) * (len(candidates) - 1)
        return stages_of("pairwise_scoring", self.config, n, _examples(self.config), n_reads=2)

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Both answers, both orders, one row a turn."""
        config = self.config
        turns, prompts = await self.both_orders(unit, ask, **config.grades().ends())
        read = await _orders(unit, ask, config, prompts)
        return [
            _row(made, ab, ba, config)
            for made, ab, ba in zip(turns, read[::2], read[1::2], strict=True)
        ]


def _examples(config: Config) -> tuple[ChooseAsk, ...]:
    """A first score, and a second one behind it."""
    ends, best = config.grades().ends(), config.verdicts()[-1].name
    behind = f"{REASONED}\n{best}" if config.chain_of_thought else best
    second = example(config.template(), config.second_labels(), begun=behind, **ends)
    return (*examples_of(config, **ends), *second)


_Scores = tuple[tuple[float, ...], tuple[float, ...], Order]
"""Both scores in one presentation order: K probabilities of the scores of the answer shown first, K
of the other's, behind the most likely first score, and the 2K-1 levels of their differences, whose
coverage is the mass on the scores in both places, multiplied."""


async def _orders(
    unit: Unit, ask: Ask, config: Config, prompts: Sequence[Messages]
) -> list[_Scores]:
    """Both scores of each prompt, the second behind the most likely first one."""
    prompts, labels = lead(prompts, config.template(), config), config.verdicts()
    every = [labels] * len(prompts)
    slots = await places(ask, unit, prompts, every, config, slot_of_two)
    read = await at_places(ask, unit, prompts, every, config, slots)
    known = [(at, *slot) for at, of in enumerate(slots) for slot in of if slot is not None]
    firsts = [judged([one]) for of in read for one in of if one is not None]
    asks = []
    for (at, prefix, lead_in), first in zip(known, firsts, strict=True):
        # The reply up to the first score and with it, as text: the server finds its tokens.
        score = labels[config.likeliest(first.probabilities)].spellings[0]
        # Characters of a score's own token stand for the white space before it.
        begun = prefix.text + (lead_in + score.lstrip() if lead_in else score)
        asks.append(
            ask.choose(unit.judge, prompts[at], config.second_labels(), prefix=Prefix(begun))
        )
    seconds = [judged([one]) for one in await distributions(ask, asks)]
    by_prompt: dict[int, list[tuple[Judged, Judged]]] = {}
    for (at, *_), first, second in zip(known, firsts, seconds, strict=True):
        by_prompt.setdefault(at, []).append((first, second))
    n_drawn = config.traces if config.chain_of_thought else 0
    return [_averaged(pairs, n_drawn, config) for pairs in by_prompt.values()]


def _averaged(pairs: Sequence[tuple[Judged, Judged]], n_drawn: int, config: Config) -> _Scores:
    """The average over traces of one prompt's scores and of their difference."""
    grades, lowest = config.grades(), config.scale[0]
    values = grades.values()
    levels = [
        _levels(
            values[config.likeliest(one.probabilities)] - lowest,
            grades.over_scale(two.probabilities),
        )
        for one, two in pairs
    ]
    first, second = (
        mixture([read.distribution for read in side]) for side in zip(*pairs, strict=True)
    )
    coverages = [one.distribution.coverage * two.distribution.coverage for one, two in pairs]
    n = len(pairs)
    order = Order(
        tuple(sum(column) / n for column in zip(*levels, strict=True)),
        sum(coverages) / n,
        first.exact and second.exact,
        n if n_drawn else 0,
        n_drawn - n if n_drawn else 0,
    )
    return (
        grades.over_scale(first.probabilities or ()),
        grades.over_scale(second.probabilities or ()),
        order,
    )


def _levels(first: int, second: Sequence[float]) -> list[float]:
    """The shares of the 2K-1 differences of both scores, from the least.

    `first` is the first score, counted from the lowest; `second` has the shares of the K others.
    """
    n_scores = len(second)
    levels = [0.0] * (2 * n_scores - 1)
    start = n_scores - 1 - first
    levels[start : start + n_scores] = second
    return levels


def _row(turns: tuple[Turn, ...], ab: _Scores, ba: _Scores, config: Config) -> Row:
    scores = config.grades().scores()
    first_ab, second_ab, order_ab = ab
    first_ba, second_ba, order_ba = ba
    return {
        **pair_row(turns, order_ab, order_ba),
        "p_first_ab": list(first_ab),
        "p_second_ab": list(second_ab),
        "p_first_ba": list(first_ba),
        "p_second_ba": list(second_ba),
        "score_a": 0.5 * (_mean(first_ab, scores) + _mean(second_ba, scores)),
        "score_b": 0.5 * (_mean(second_ab, scores) + _mean(first_ba, scores)),
    }


def _mean(probabilities: Sequence[float], scores: Sequence[int]) -> float:
    return sum(p * score for p, score in zip(probabilities, scores, strict=True))
