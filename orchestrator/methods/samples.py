"""Samples: many answers of a model to one question, each with its mean log-probability.

The observation that ProbDiff rests on: of N answers drawn for one question, a better model's have
nearly the same mean log-probability a token (a flat curve, small variance), a worse model's differ
more. The summary gives the curve and the variance within a question.

Source: Xia et al., "Language Models can Evaluate Themselves via Probability Discrepancy" (Findings
of ACL 2024), Figure 2: 10 questions of AlpacaEval, 100 answers each.

Deviations: the paper does not say at what temperature; the default is 1, at which the log-
probabilities of an answer are those it was drawn by. Where a question has several turns, the first
is asked.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from orchestrator.methods._drawing import Drawing, permanent
from orchestrator.methods._examples import drawn_example
from orchestrator.plugin import (
    Ask,
    Columns,
    Generation,
    Method,
    MethodSettings,
    Row,
    Scored,
    Stage,
    Unit,
    typed,
)


class Config(MethodSettings):
    """Settings of `samples`."""

    answer: Drawing = Field(Drawing(temperature=1.0), description="Sampling settings of answers.")
    n: int = Field(10, ge=2, le=10_000, description="Number of answers to each question.")
    logprobs: Literal["draw", "score"] = Field(
        "draw",
        description="draw: the log-probabilities that come with each answer, which cost nothing; "
        "score: each answer is scored afterwards, which servers that give other than raw "
        "log-probabilities need.",
    )

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, given: object) -> object:
        """A temperature that is left out is 1, also beside other settings of the drawing."""
        if isinstance(given, dict) and isinstance(given.get("answer"), dict):
            return {**given, "answer": {"temperature": 1.0, **given["answer"]}}
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.answer.can_vary:
            raise ValueError("answers sampled at temperature 0 are identical; raise it")
        return self


class Kind(Method[Config]):
    """Many answers of a model to one question, each with its mean log-probability."""

    cites = ("xia2024probdiff",)
    columns: ClassVar[Columns] = typed(
        "turn sample: i64 | text: str | ell: f64 | ell_by: str | n_tokens: i64",
        "truncated exact_match: bool",
    )

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """N draws a model; fewer where other methods draw the first of them too."""
        config = self.config
        draw = config.model_dump_json(include={"answer", "n"})
        tokens, n = config.answer.max_tokens, config.n
        found = []
        for model in candidates:
            is_scored = config.logprobs == "score"
            examples = () if is_scored else (drawn_example(model, config.answer),)
            drawn = Stage(
                "samples", model, "generate", n, exact=False, max_tokens=tokens, draw=draw,
                per_turn=False, examples=examples,
            )  # fmt: skip
            found.append(drawn)
            if is_scored:
                scored = Stage("scores", model, "score", n, exact=False, draw=draw, per_turn=False)
                found.append(scored)
        return found

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One row a sample."""
        config = self.config
        (model,), item = unit.models, unit.item
        sampling = config.answer.sampling(item.category)
        made: list[Generation] = await ask.all(
            *(
                ask.generate(
                    model, item.messages, sampling, item_key=item.key, repeat=repeat, turn=1
                )
                for repeat in range(config.n)
            )
        )
        scored: list[Generation | Scored] = list(made)
        if config.logprobs == "score":
            kept = [number for number, answer in enumerate(made) if answer.text]
            found = await ask.all(*(ask.score(model, item.messages, made[n]) for n in kept))
            for number, ell in zip(kept, found, strict=True):
                scored[number] = ell
        reference = item.reference_of(1)
        rows: list[Row] = []
        for number, (answer, score) in enumerate(zip(made, scored, strict=True)):
            if isinstance(score, Generation) and score.text and not score.raw:
                said = "this server's log-probabilities are not raw; use logprobs: score"
                raise permanent("no_logprobs", said)
            ell = score.mean_logprob
            n_tokens = 0 if score.token_ids is None else int(score.token_ids.size)
            equal = None if reference is None else answer.text.strip() == reference.strip()
            rows.append(
                {
                    "turn": 1,
                    "sample": number,
                    "text": answer.text,
                    "ell": ell if math.isfinite(ell) else None,
                    "ell_by": config.logprobs,
                    "n_tokens": n_tokens or answer.n_completion_tokens,
                    "truncated": answer.finish_reason == "length",
                    "exact_match": equal,
                }
            )
        return rows
