"""Pairwise ranking: a judge compares two answers, in both orders, with five symbols.

For every item and every pair of candidates the judge sees the answers as (A, B) and as (B, A). What
is read is not the symbol it would write but the whole distribution over `[[>>]] [[>]] [[=]] [[<]]
[[<<]]` where the symbol stands. P(A better) = P(>>) + P(>) + P(=)/2. Distributions of both orders
are averaged before a statistic is taken (pre-aggregation) and after (post-aggregation). Where an
item has several turns, there is one judgment a turn, of the conversations up to it.

Source: Wang, Zhang and Choi, "Improving LLM-as-a-Judge Inference with the Judgment Distribution"
(arXiv 2503.03064); formulas as in `docs/methods/pairwise_ranking.md`.

Deviations: with a chain of thought the trace is drawn by `reasoning` and the distribution is read
where the last symbol of the trace stands; a trace without a symbol is a failure, not a tie.
"""

import re
from collections.abc import Sequence
from itertools import combinations as pairs_of
from typing import Final, NamedTuple

from pydantic import BaseModel, Field, field_validator

from orchestrator.ask import Ask, AskFailed, ChooseAsk
from orchestrator.judgment.distribution import from_logprobs
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods import answers
from orchestrator.methods._base import (
    STATUS_COLUMNS,
    Combination,
    Drawing,
    MethodSettings,
    Stage,
)
from orchestrator.methods._conversation import Turn, converse, questions, references, replies
from orchestrator.prompts import PromptError, render, variables
from orchestrator.prompts.pairwise import PROMPTS, PairwisePrompt
from orchestrator.records import (
    NO_PREFIX,
    Choice,
    Failure,
    Generation,
    Message,
    Messages,
    Prefix,
    Row,
    Unit,
    labels,
)

VERSION: Final = 2
FRAME: Final = "judgments"
SYMBOLS: Final = ("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
LABELS: Final = labels(*SYMBOLS)
SCHEMA: Final = {
    "item": "str",
    "category": "str",
    "model_a": "str",
    "model_b": "str",
    "judge": "str",
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
    "exact": "bool",
    "same_text": "bool",
    **STATUS_COLUMNS,
}

SCORES: Final = {"prefer_a": 1}

FIELDS: Final = ("prompt", "reference", "answer_a", "answer_b")
"""What a template may show."""

_SYMBOL = re.compile(r"\[\[(?:>>|>|=|<|<<)\]\]")


class Config(MethodSettings):
    """Settings of `pairwise_ranking`."""

    candidates: tuple[str, ...] | None = Field(
        None, description="Models to rank; all that are not judges where left out.", min_length=2
    )
    judges: tuple[str, ...] = Field(description="Models that judge.", min_length=1)
    prompt: str = Field(
        "judgment_distribution",
        description="Name of a prompt (compact, judgment_distribution), or a Jinja template with "
        "prompt, reference, answer_a and answer_b.",
    )
    answer: Drawing = Field(Drawing(), description="How answers are drawn.")
    chain_of_thought: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="Let the judge reason first, then read the distribution at its verdict.",
    )
    reasoning: Drawing = Field(
        Drawing(max_tokens=1024), description="How the judge's reasoning is drawn."
    )

    @field_validator("prompt")
    @classmethod
    def _prompt_exists(cls, value: str) -> str:
        if value in PROMPTS:
            return value
        if "{{" not in value:
            names = ", ".join(sorted(PROMPTS))
            raise ValueError(f"no prompt named {value!r}; there are {names}, or write a template")
        try:
            used = variables(value)
        except PromptError as error:
            raise ValueError(str(error)) from error
        if unknown := sorted(used - set(FIELDS)):
            there = ", ".join(FIELDS)
            raise ValueError(f"the template uses {', '.join(unknown)}; there are {there}")
        if missing := sorted({"answer_a", "answer_b"} - used):
            raise ValueError(f"the template does not show {' and '.join(missing)}")
        return value

    def templates(self) -> PairwisePrompt:
        """The prompt by name, or the user's own for both modes."""
        return PROMPTS.get(self.prompt) or PairwisePrompt(self.prompt, self.prompt)


def combinations(candidates: Sequence[str], config: Config) -> list[Combination]:
    """Every pair of candidates with every judge, a judge's pairs together."""
    return [Combination(pair, judge) for judge in config.judges for pair in pairs_of(candidates, 2)]


def companions(config: Config) -> list[tuple[str, BaseModel]]:
    """The answers that are judged, as a frame of their own."""
    return [("answers", answers.Config(candidates=config.candidates, answer=config.answer))]


def stages(candidates: Sequence[str], config: Config) -> list[Stage]:
    """Two orders of each pair, and the reasoning before them where asked for."""
    n_pairs = len(candidates) * (len(candidates) - 1) // 2
    found = []
    for judge in config.judges:
        if config.chain_of_thought:
            tokens = config.reasoning.max_tokens
            # Equal answers make equal prompts, which are asked once.
            found.append(
                Stage("reasoning", judge, "generate", 2 * n_pairs, exact=False, max_tokens=tokens)
            )
        found.append(Stage("judgments", judge, "choose", 2 * n_pairs, exact=False))
    return found


def needs(config: Config) -> frozenset[str]:
    """The reference, where the prompt can't be made without it."""
    templates = config.templates()
    template = templates.chain_of_thought if config.chain_of_thought else templates.direct
    fields: dict[str, str | None] = dict.fromkeys(FIELDS, "")
    try:
        render(template, {**fields, "reference": None})
    except PromptError:
        return frozenset({"reference"})
    return frozenset()


def columns(unit: Unit) -> Row:
    """Item, category, the two models and the judge."""
    return {
        "item": unit.item.key,
        "category": unit.item.category,
        "model_a": unit.models[0],
        "model_b": unit.models[1],
        "judge": unit.judge,
    }


async def evaluate(unit: Unit, ask: Ask, config: Config) -> list[Row]:
    """Both answers, both orders, one row a turn."""
    turns = await converse(unit.item, unit.models, ask, config.answer)
    prompts = [
        _messages(unit, config, first, second)
        for n_turns in range(1, len(turns) + 1)
        for a, b in [tuple(zip(*turns[:n_turns], strict=True))]
        for first, second in ((a, b), (b, a))
    ]
    if config.chain_of_thought:
        asks = await _after_reasoning(unit, ask, config, prompts)
    else:
        asks = [ask.choose(unit.judge, messages, LABELS) for messages in prompts]
    read = [_read(choice) for choice in await ask.all(*asks)]
    return [
        _row(unit, made, ab, ba) for made, ab, ba in zip(turns, read[::2], read[1::2], strict=True)
    ]


def _messages(
    unit: Unit, config: Config, first: Sequence[Turn], second: Sequence[Turn]
) -> Messages:
    templates = config.templates()
    fields = {
        "prompt": questions(first),
        "reference": references(unit.item, first),
        "answer_a": replies(first),
        "answer_b": replies(second),
    }
    template = templates.chain_of_thought if config.chain_of_thought else templates.direct
    try:
        return (Message("user", render(template, fields)),)
    except PromptError as error:
        raise AskFailed(Failure("bad_item", str(error), permanent=True)) from error


async def _after_reasoning(
    unit: Unit, ask: Ask, config: Config, prompts: Sequence[Messages]
) -> list[ChooseAsk]:
    sampling = config.reasoning.sampling()
    traces = await ask.all(
        *(
            ask.generate(unit.judge, messages, sampling, item_key=unit.item.key)
            for messages in prompts
        )
    )
    return [
        ask.choose(unit.judge, messages, LABELS, prefix=_up_to_verdict(trace))
        for messages, trace in zip(prompts, traces, strict=True)
    ]


def _up_to_verdict(trace: Generation) -> Prefix:
    """What the judge wrote before its last symbol.

    Raises:
        AskFailed: If there is none: no verdict is not a tie.
    """
    found = [match.start() for match in _SYMBOL.finditer(trace.text)]
    if not found:
        why = "was cut off" if trace.finish_reason == "length" else "ended"
        raise AskFailed(
            Failure("no_verdict", f"the judge's reasoning {why} without a symbol", permanent=True)
        )
    text = trace.text[: found[-1]]
    return Prefix(text) if text else NO_PREFIX


class _Order(NamedTuple):
    """What the judge said in one presentation order, in that order's own frame."""

    probabilities: tuple[float, ...]
    coverage: float | None
    exact: bool


def _read(choice: Choice) -> _Order:
    """The distribution of one order.

    Raises:
        AskFailed: If nothing is known about any label.
    """
    distribution = from_logprobs(choice.logprobs, choice.upper)
    if distribution.probabilities is None:
        raise AskFailed(
            Failure("no_logprobs", "the server gave the probability of no symbol", permanent=True)
        )
    return _Order(distribution.probabilities, distribution.coverage, distribution.exact)


def _row(unit: Unit, turns: tuple[Turn, ...], ab: _Order, ba: _Order) -> Row:
    a, b = turns
    judged = judge_pair(ab.probabilities, ba.probabilities)
    return {
        **columns(unit),
        "turn": a.number,
        "p_ab": list(ab.probabilities),
        "p_ba": list(reversed(ba.probabilities)),
        "coverage_ab": ab.coverage,
        "coverage_ba": ba.coverage,
        "prefer_a_ab": judged.prefer_ab,
        "prefer_a_ba": judged.prefer_ba,
        "prefer_a": judged.prefer,
        "mean_pre": judged.mean_pre,
        "mean_post": judged.mean_post,
        "mode_pre": judged.mode_pre,
        "mode_post": judged.mode_post,
        "exact": ab.exact and ba.exact,
        "same_text": a.answer.text == b.answer.text,
        "status": "ok",
    }
