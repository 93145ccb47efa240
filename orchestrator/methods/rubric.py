"""Rubric: a judge scores one answer by several criteria, each read by its whole distribution.

For every item and candidate the judge scores the answer by each criterion of the rubric, and
answers each question of the item's checklist if there is one. Of each, the probability of every
label is read and renormalised; its expectation, in points from 0 to 100, is the criterion's score.
The score of the answer is their weighted mean. Scales may be fine: numbers, letters (`A-T`), or
labels of one's own. Repeats are reasonings (`traces`), each with a reading of its own, averaged.

Criteria are asked one by one, or all in one reply (`together`): then each is read where it stands
in the reply, given what stands before it, earlier verdicts included.

Sources: Kwok et al., "LLM-as-a-Verifier" (arXiv 2607.05391), R = 1/(CK) sum over C criteria, K
repeats and all score tokens of p(v) phi(v); Lin et al., "WildBench" (ICLR 2025), for checklists of
an item; Cook et al., "TICKing All the Boxes" (arXiv 2410.03608), for their questions asked one by
one.

Deviations: criteria may have weights and scales of their own; all spellings of a label are summed;
each answer is scored alone, where the first source shows two in one prompt; a criterion without
probability on its labels is missing, and so is then the score. All of them:
`docs/methods/rubric.md`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from orchestrator.contracts.rows import FAILED
from orchestrator.judgment.distribution import LabelDistribution, mixture
from orchestrator.judgment.rubric import (
    HIGHEST,
    CriterionReading,
    bounds_with_missing,
    read_criterion,
    score_rubric,
)
from orchestrator.methods._criteria import (
    MOST_CRITERIA,
    AskedCriterion,
    Checklist,
    Criterion,
    Scale,
    graded,
)
from orchestrator.methods._drawing import Turn, converse, fields
from orchestrator.methods._examples import FIELDS as EXAMPLE
from orchestrator.methods._examples import REASONED, example, messages
from orchestrator.methods._judging import (
    JudgeMethod,
    JudgeSettings,
    at_places,
    needs_of,
    places,
    reason,
    stages_of,
)
from orchestrator.methods._leading import continued, lead
from orchestrator.methods._own_labels import GradeLabels, check_shown, spanned
from orchestrator.methods._verdicts import distributions, slot_of, slots_by_name, spelled
from orchestrator.plugin import (
    Ask,
    ChooseAsk,
    Columns,
    Compared,
    Item,
    Label,
    Messages,
    Prefix,
    Row,
    ScoreColumns,
    Stage,
    Unit,
    typed,
)
from orchestrator.prompts import variables
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.judging import ALL_CRITERIA, ONE_CRITERION

_ONE: Final = ("criterion", "description", "scale", "low", "high")
FIELDS: Final = ("prompt", "reference", "answer", *_ONE, "criteria")
"""Fields that a template may show."""
RUBRIC: Final = "rubric"
"""Name of the prompt of this project."""
_NUMBERED: Final = re.compile(r"question \d+")
_QUESTION: Final = "Does the answer name the capital?"


class Config(JudgeSettings):
    """Settings of `rubric`."""

    NAMED: ClassVar = (RUBRIC,)
    FIELDS: ClassVar = FIELDS
    SHOWN: ClassVar = ("answer",)

    prompt: TemplateText = Field(
        RUBRIC,
        description="Name of a prompt (rubric), or a Jinja template (or a .j2 file) with prompt, "
        "reference, answer, and criterion, description, scale, low and high; with `together` it "
        "has `criteria` instead, a list with key, description, scale, worst and best.",
    )
    criteria: tuple[Criterion, ...] = Field(
        (), max_length=MOST_CRITERIA, description="Criteria that all answers are scored by."
    )
    checklist: Checklist | None = Field(
        None, description="Questions that each item brings along. Default: none."
    )
    scale: Scale = Field(
        (1, 9),
        description="Scale of criteria without their own: lowest and highest score, or the worst "
        "and the best letter, such as A-T, or T-A if A is the best.",
    )
    labels: GradeLabels = None
    together: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="If true, ask for all criteria in one reply, and read each at its place in it; "
        "else each criterion has a request of its own.",
    )

    _labels_span_the_scale = model_validator(mode="before")(spanned)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.criteria and self.checklist is None:
            raise ValueError("give criteria, or a checklist")
        names = [one.name.casefold() for one in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError("two criteria have the same name")
        if self.checklist is not None and any(map(_NUMBERED.fullmatch, names)):
            raise ValueError("names such as 'Question 1' stand for questions of the checklist")
        asked = self.asked()
        if self.prefix and (self.together or self.chain_of_thought):
            other = "together" if self.together else "chain_of_thought"
            raise ValueError(f"prefix and {other} exclude each other: it leads to a label at once")
        if self.prompt == RUBRIC:
            return self
        shown = variables(self.prompt)
        if self.together and "criteria" not in shown:
            raise ValueError("the template does not show criteria, which together needs")
        if not self.together and not shown & {"criterion", "description"}:
            raise ValueError("the template shows neither criterion nor description")
        for one in () if self.together else asked:
            given = {**dict.fromkeys(FIELDS, ""), **one.shown()}
            check_shown(self.prompt, given, one.labels, self.elsewhere())
        return self

    def template(self) -> str:
        """Return the template of the mode that is asked for."""
        if self.prompt != RUBRIC:
            return self.prompt
        named = ALL_CRITERIA if self.together else ONE_CRITERION
        return named[self.chain_of_thought]

    def asked(self, item: Item | None = None) -> tuple[AskedCriterion, ...]:
        """Return the criteria of an item, the questions of its checklist last.

        Weights sum to 1. Without an item the checklist is a made-up question.

        Raises:
            AskFailed: If the item has no checklist, where there has to be one.
        """
        default = graded(self.scale, self.labels)
        found = [
            AskedCriterion(one.name, one.name, one.description, one.weight, one.grades(default))
            for one in self.criteria
        ]
        if (checklist := self.checklist) is not None:
            questions = (_QUESTION,) if item is None else checklist.questions(item)
            weight, grades = checklist.weight / len(questions), checklist.grades()
            found += [
                AskedCriterion(f"Question {number}", question, "", weight, grades)
                for number, question in enumerate(questions, 1)
            ]
        total = sum(one.weight for one in found)
        return tuple(one._replace(weight=one.weight / total) for one in found)

    def verdicts(self) -> tuple[Label, ...]:
        """Return all labels of all criteria, each once."""
        every = {label.name: label for one in self.asked() for label in one.labels}
        return tuple(every.values())


class Kind(JudgeMethod[Config]):
    """A judge scores one answer by several criteria, each read by its whole distribution."""

    cites = ("kwok2026verifier", "lin2025wildbench", "cook2024ticking")
    frame = "rubrics"
    unit_columns: ClassVar[Columns] = typed("item category model judge: str")
    columns: ClassVar[Columns] = typed(
        "turn: i64 | mean mean_low mean_high std std_high: f64 | p: list[f64] | coverage: f64",
        "exact: bool | criteria: list[str]",
        "weights criteria_mean criteria_std criteria_coverage criteria_p: list[f64]",
        "n_missing n_traces n_silent n_characters: i64",
    )
    scores: ClassVar = {"mean": 1}
    distribution = ScoreColumns(
        mean="mean", std="std", coverage="coverage", judge="judge", turn="turn"
    )

    def compared(self) -> Compared:
        """Return the score in points."""
        return Compared("mean", 0, HIGHEST)

    def needs(self) -> frozenset[str]:
        """Return the reference if the prompt can't be made without it."""
        shown = _shown(self.config.asked(), self.config)
        template = self.config.template()
        return frozenset().union(*(needs_of(template, {**EXAMPLE, **one}) for one in shown))

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return one judgment a criterion and answer, with the reasoning that was asked for."""
        config = self.config
        n = len(config.criteria) + (config.checklist.most if config.checklist else 0)
        n_prompts, n_reads = (1, n) if config.together else (n, 1)
        return stages_of(
            "rubric", config, n_prompts * len(candidates), self._examples(), n_reads=n_reads
        )

    def _examples(self) -> tuple[ChooseAsk, ...]:
        config = self.config
        asked = config.asked()
        found: list[ChooseAsk] = []
        for one, shown in zip(asked, _shown(asked, config) * len(asked), strict=False):
            labels, begun = continued(one.labels, config.prefix), config.prefix
            if config.chain_of_thought:
                labels, begun = spelled(one.labels, "\n"), REASONED
            if config.together:
                labels, begun = one.labels, f"{begun}\n{one.key}:".lstrip()
            found += example(config.template(), labels, begun=begun, **shown)
        return tuple(found)

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Draw and score the answer; return one row a turn."""
        config = self.config
        asked = config.asked(unit.item)
        turns = [turn for (turn,) in await converse(unit.item, unit.models, ask, config.answer)]
        prompts = _prompts(unit, config, asked, turns)
        if config.together and not config.chain_of_thought:
            read = await _in_one_reply(ask, unit, asked, prompts)
        else:
            read = await _read(ask, unit, config, asked, prompts)
        return [_row(turn, one, asked, config) for turn, one in zip(turns, read, strict=True)]


Replies = list[list[LabelDistribution | None]]
"""By reply, the distribution over the labels of each criterion; None where it has no verdict."""


def _shown(asked: Sequence[AskedCriterion], config: Config) -> list[dict[str, Any]]:
    """Return the fields of criteria for each prompt: of one criterion, or of all together."""
    if config.together:
        return [{"criteria": [one.listed() for one in asked]}]
    return [dict(one.shown()) for one in asked]


def _prompts(
    unit: Unit, config: Config, asked: Sequence[AskedCriterion], turns: Sequence[Turn]
) -> list[Messages]:
    """Return the prompts turn by turn, of each turn one a criterion, or one."""
    found = []
    for n in range(1, len(turns) + 1):
        about = fields(unit.item, turns[:n])
        found += [messages(config.template(), {**about, **one}) for one in _shown(asked, config)]
    return list(lead(found, config.template(), config))


async def _read(
    ask: Ask,
    unit: Unit,
    config: Config,
    asked: Sequence[AskedCriterion],
    prompts: Sequence[Messages],
) -> list[Replies]:
    """Each criterion in a reply of its own, or where it stands in the judge's own reply.

    There it is given all that stands before it.
    """
    n, every = len(asked), [one.labels for one in asked]
    if config.together:
        # A slot of each criterion in each trace of the one prompt of a turn.
        keys = [one.key for one in asked]
        slots = [
            list(of_criterion)
            for drawn in await reason(ask, unit, prompts, config)
            for of_criterion in zip(*(slots_by_name(t, keys, every) for t in drawn), strict=True)
        ]
        prompts = [prompt for prompt in prompts for _ in asked]
    elif config.chain_of_thought:
        traces = await reason(ask, unit, prompts, config)
        slots = [[slot_of(one, every[at % n]) for one in drawn] for at, drawn in enumerate(traces)]
    else:
        slots = await places(ask, unit, prompts, every, config)
    labels = every * (len(prompts) // n)
    read = await at_places(ask, unit, prompts, labels, config, slots)
    of_turns = (read[at : at + n] for at in range(0, len(read), n))
    return [[list(reply) for reply in zip(*of_turn, strict=True)] for of_turn in of_turns]


async def _in_one_reply(
    ask: Ask, unit: Unit, asked: Sequence[AskedCriterion], prompts: Sequence[Messages]
) -> list[Replies]:
    """Read all criteria in a reply that goes on with the most likely label of each.

    A criterion without a verdict ends the reply: what would follow it is not known.
    """
    texts: list[str | None] = [""] * len(prompts)
    found: list[list[LabelDistribution | None]] = [[] for _ in prompts]
    for one in asked:
        going = [at for at, text in enumerate(texts) if text is not None]
        asks = [
            ask.choose(unit.judge, prompts[at], one.labels, prefix=Prefix(f"{texts[at]}{one.key}:"))
            for at in going
        ]
        read = dict(zip(going, await distributions(ask, asks), strict=True))
        for at, text in enumerate(texts):
            seen = read.get(at)
            found[at].append(seen)
            if seen is None or seen.probabilities is None:
                texts[at] = None
                continue
            p = seen.probabilities
            written = one.labels[p.index(max(p))].spellings[0].strip()
            texts[at] = f"{text}{one.key}: {written}\n"
    return [[reply] for reply in found]


def _row(turn: Turn, read: Replies, asked: Sequence[AskedCriterion], config: Config) -> Row:
    replies = [
        [one if one is not None and one.probabilities is not None else None for one in reply]
        for reply in read
    ]
    n_silent = sum(one is None for reply in replies for one in reply)
    whole = [reply for reply in replies if None not in reply]
    if config.together and whole:
        # What is said of the criteria and of their sum is of the same replies.
        replies = whole
    marginals = [_averaged([reply[at] for reply in replies], one) for at, one in enumerate(asked)]
    weights = [one.weight for one in asked]
    missing = [one.text for one, seen in zip(asked, marginals, strict=True) if seen is None]

    def each(read: Callable[[CriterionReading], float]) -> list[float | None]:
        return [None if one is None else read(one) for one in marginals]

    row: Row = {
        "turn": turn.number,
        "criteria": [one.text for one in asked],
        "weights": weights,
        "criteria_mean": each(lambda one: one.mean),
        "criteria_std": each(lambda one: one.variance**0.5),
        "criteria_coverage": each(lambda one: one.distribution.coverage),
        # The probabilities of all labels of all criteria, one after the other.
        "criteria_p": [
            p
            for one, criterion in zip(marginals, asked, strict=True)
            for p in (
                one.probabilities if one is not None else [None] * len(criterion.grades.values())
            )
        ],
        "n_missing": len(missing),
        "n_traces": len(read) if config.chain_of_thought else 0,
        "n_silent": n_silent if config.chain_of_thought else 0,
        "n_characters": len(turn.answer.text),
    }
    known = [one for one in marginals if one is not None]
    if missing:
        low, high = bounds_with_missing(marginals, weights)
        said = f"no verdict on {len(missing)} of {len(asked)} criteria: {', '.join(missing)}"
        return row | {
            "mean_low": low,
            "mean_high": high,
            "status": FAILED,
            "cause": "missing_criterion",
            "message": said[:500],
        }
    replies_read = [known]
    if config.together:
        # The criteria as read in each reply that has all of them.
        read_of = [[_averaged([d], c) for d, c in zip(r, asked, strict=True)] for r in whole]
        replies_read = [[one for one in reply if one is not None] for reply in read_of]
    return row | {
        **score_rubric(replies_read, known, weights),
        "coverage": min(one.distribution.coverage for one in known),
        "exact": all(one.distribution.exact for one in known),
    }


def _averaged(
    seen: Sequence[LabelDistribution | None], criterion: AskedCriterion
) -> CriterionReading | None:
    known = [one for one in seen if one is not None]
    return read_criterion(mixture(known), criterion.grades.values()) if known else None
