"""Answers: every candidate answers every item once, turn by turn; nothing is judged.

On its own it generates answers with their mean log-probability; other methods bring it along, so
that their answers stand in a frame of their own. Exact match is reported where the item has a
reference for the turn: equal after stripping white space at both ends. What a reasoning model
thinks is no part of its answer: neither of its text nor of its log-probabilities nor of `n_tokens`.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from orchestrator.methods._drawing import AnswersConfig, answer_stage, converse
from orchestrator.plugin import (
    AnswerColumns,
    Ask,
    Columns,
    Generation,
    Method,
    Row,
    Stage,
    Unit,
    typed,
)


class Kind(Method[AnswersConfig]):
    """Every candidate answers every item once, turn by turn; nothing is judged."""

    version = 2
    feeds_others = True
    columns: ClassVar[Columns] = typed(
        "turn: i64 | prompt text reference: str | exact_match: bool",
        "mean_logprob mean_top_mass: f64 | observed: str | n_tokens n_thinking_tokens: i64",
        "finish_reason: str",
    )
    scores: ClassVar = {"mean_logprob": 1}
    answers = AnswerColumns(exact_match="exact_match", turn="turn")

    @property
    def top_logprobs(self) -> int:
        """Number of alternatives that are observed at each token."""
        return self.config.top_logprobs

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """One draw a model, and one for each further turn an item has."""
        config = self.config
        return [answer_stage(model, config.answer, config.top_logprobs) for model in candidates]

    def identify(self, unit: Unit) -> Row:
        """Item, category and model."""
        shown = {"prompt": unit.item.prompt, "reference": unit.item.reference}
        return {**super().identify(unit), **shown}

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """The model's answer as a row, one a turn."""
        turns = await converse(
            unit.item, unit.models, ask, self.config.answer, top_logprobs=self.config.top_logprobs
        )
        rows: list[Row] = []
        for (turn,) in turns:
            answer = turn.answer
            reference = unit.item.reference_of(turn.number)
            equal = None if reference is None else answer.text.strip() == reference.strip()
            mean, n_thinking = answer.mean_logprob, answer.n_thinking_tokens
            # Without its thinking; None where nobody counted them.
            n_tokens: int | None = answer.n_completion_tokens - (n_thinking or 0)
            is_uncounted = not answer.n_completion_tokens and answer.token_ids is None
            if is_uncounted or (answer.thinking and n_thinking is None):
                n_tokens = None
            rows.append(
                {
                    "turn": turn.number,
                    "prompt": turn.messages[-1].content,
                    "text": answer.text,
                    "reference": reference,
                    "exact_match": equal,
                    "mean_logprob": mean if math.isfinite(mean) else None,
                    "mean_top_mass": _mean_top_mass(answer),
                    "observed": answer.observed,
                    "n_tokens": n_tokens,
                    "n_thinking_tokens": n_thinking,
                    "finish_reason": answer.finish_reason,
                }
            )
        return rows


def _mean_top_mass(answer: Generation) -> float | None:
    """Mean over the tokens of the probability that the listed alternatives hold together.

    A server may list fewer than were asked for; None where it lists none of a token.
    """
    if answer.top is None or not answer.top.logprobs.size:
        return None
    logprobs = answer.top.logprobs.astype(np.float64)
    if np.isnan(logprobs).all(axis=1).any():
        return None
    return float(np.nansum(np.exp(logprobs), axis=1).mean())
