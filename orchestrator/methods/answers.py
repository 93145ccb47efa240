"""Answers: every candidate answers every item once, turn by turn; nothing is judged.

On its own it generates answers with their mean log-probability; other methods bring it along, so
that their answers stand in a frame of their own. Exact match is reported where the item has a
reference for the turn: equal after stripping white space at both ends. What a reasoning model
thinks is no part of its answer: neither of its text nor of its log-probabilities nor of `n_tokens`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from pydantic import BaseModel, Field

from orchestrator.ask import Ask
from orchestrator.methods._base import (
    STATUS_COLUMNS,
    Combination,
    Drawing,
    MethodSettings,
    Stage,
)
from orchestrator.methods._conversation import Turn, converse
from orchestrator.records import GIVEN, Generation, Row, Unit

VERSION: Final = 2
FRAME: Final = "answers"
# Its units draw what other units of the item ask for: those are opened when these have ended.
FEEDS_OTHERS: Final = True
SCHEMA: Final = {
    "item": "str",
    "category": "str",
    "model": "str",
    "turn": "i64",
    "prompt": "str",
    "text": "str",
    "reference": "str",
    "exact_match": "bool",
    "mean_logprob": "f64",
    "mean_top_mass": "f64",
    "observed": "str",
    "n_tokens": "i64",
    "n_thinking_tokens": "i64",
    "finish_reason": "str",
    **STATUS_COLUMNS,
}

SCORES: Final = {"mean_logprob": 1}


class Config(MethodSettings):
    """Settings of `answers`."""

    candidates: tuple[str, ...] | None = Field(
        None, description="Models that answer; all that are not judges where left out."
    )
    answer: Drawing = Field(Drawing(), description="How answers are drawn.")
    top_logprobs: int = Field(
        0, ge=0, description="Alternatives to observe at each token; 0 observes none."
    )


def combinations(candidates: Sequence[str], config: Config) -> list[Combination]:  # noqa: ARG001
    """One unit a model."""
    return [Combination((model,)) for model in candidates]


def companions(config: Config) -> list[tuple[str, BaseModel]]:  # noqa: ARG001
    """None."""
    return []


def stages(candidates: Sequence[str], config: Config) -> list[Stage]:
    """One draw a model, and one for each further turn an item has."""
    drawing = config.answer
    draw, tokens = drawing.model_dump_json(), drawing.max_tokens
    top = config.top_logprobs
    return [
        Stage("answers", model, "generate", 1, max_tokens=tokens, draw=draw, top_logprobs=top)
        for model in candidates
    ]


def columns(unit: Unit) -> Row:
    """Item, category and model."""
    return {
        "item": unit.item.key,
        "category": unit.item.category,
        "model": unit.models[0],
        "prompt": unit.item.prompt,
        "reference": unit.item.reference,
    }


async def evaluate(unit: Unit, ask: Ask, config: Config) -> list[Row]:
    """The model's answer as a row, one a turn."""
    turns = await converse(
        unit.item, unit.models, ask, config.answer, top_logprobs=config.top_logprobs
    )
    return [_row(unit, turn) for (turn,) in turns]


def _row(unit: Unit, turn: Turn) -> Row:
    answer = turn.answer
    reference = unit.item.reference_of(turn.number)
    mean = answer.mean_logprob
    return {
        **columns(unit),
        "turn": turn.number,
        "prompt": turn.messages[-1].content,
        "text": answer.text,
        "reference": reference,
        "exact_match": None if reference is None else answer.text.strip() == reference.strip(),
        "mean_logprob": None if mean != mean else mean,
        "mean_top_mass": _mean_top_mass(answer),
        "observed": answer.observed,
        "n_tokens": _n_tokens(answer),
        "n_thinking_tokens": answer.n_thinking_tokens,
        "finish_reason": answer.finish_reason,
        "status": "ok",
    }


def _n_tokens(answer: Generation) -> int | None:
    """Tokens of the answer without its thinking; None where nobody counted them."""
    if answer.finish_reason == GIVEN or (answer.thinking and answer.n_thinking_tokens is None):
        return None
    return answer.n_completion_tokens - (answer.n_thinking_tokens or 0)


def _mean_top_mass(answer: Generation) -> float | None:
    """Mean over the tokens of the probability that the listed alternatives hold together."""
    if answer.top is None or not answer.top.logprobs.size:
        return None
    return float(np.exp(answer.top.logprobs.astype(np.float64)).sum(axis=1).mean())
