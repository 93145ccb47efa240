"""Consistency: a model is asked again, in the same conversation, and again; does it say the same?

After the answer x to a question the user says "Answer this question again.", which gives x_1, and
once more, which gives x_2. x is compared with each: exact match, overlap of words, and similarity
of embeddings where an encoder is named.

Source: Xia et al., "Language Models can Evaluate Themselves via Probability Discrepancy" (Findings
of ACL 2024), Table 1, which asks the first questions of MT-Bench.

Deviations: the paper names neither its measure of similarity nor its temperatures. Exact match is
up to white space at both ends. Where an item has several turns, the first is asked again.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from orchestrator.contracts.settings import Similarity, comparer_name
from orchestrator.contracts.settings import comparers as named_comparers
from orchestrator.judgment.similarity import f_beta_scores, token_f1
from orchestrator.methods._drawing import Drawing, OfAnswers, OfAnswersSettings
from orchestrator.plugin import (
    Ask,
    Columns,
    Combination,
    Comparer,
    Generation,
    Message,
    Row,
    Stage,
    Unit,
    typed,
)


class Config(OfAnswersSettings):
    """Settings of `consistency`."""

    answer: Drawing = Field(Drawing(), description="Sampling settings of all answers.")
    times: int = Field(2, ge=1, le=100, description="Number of times to repeat the question.")
    question: str = Field(
        "Answer this question again.",
        min_length=1,
        description="Text of the user that repeats the question.",
    )
    similarity: Similarity | None = Field(
        None, description="Additional similarity of answers. Default: none."
    )


class Kind(OfAnswers[Config]):
    """A model is asked again, in the same conversation, and again; does it say the same?"""

    cites = ("xia2024probdiff",)
    columns: ClassVar[Columns] = typed(
        "turn again: i64 | answer answer_again: str | exact_match: bool",
        "token_f1 similarity: f64 | n_truncated: i64",
    )
    scores: ClassVar = {"exact_match": 1, "token_f1": 1}

    def comparers(self) -> dict[str, Comparer]:
        """The back-end that compares the answers, by its name."""
        return {} if self.config.similarity is None else named_comparers(self.config.similarity)

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """One unit a model, with what compares its answers."""
        name = "" if self.config.similarity is None else comparer_name(self.config.similarity)
        return [Combination((model,), name) for model in candidates]

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """The further answers, and a comparison of them all."""
        config = self.config
        tokens = config.answer.max_tokens
        draw = config.model_dump_json(exclude={"candidates", "name"})
        # What a second answer is asked after is not known before the first is there.
        exact = config.times == 1
        found = [
            Stage(
                "answers again",
                model,
                "generate",
                config.times,
                exact,
                tokens,
                draw=draw,
                per_turn=False,
            )
            for model in candidates
        ]
        if config.similarity is not None:
            name, n = comparer_name(config.similarity), len(candidates)
            found.append(
                Stage("similarity", name, "similarity", n, exact=False, draw=draw, per_turn=False)
            )
        return found

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """The answer against each further one: one row each."""
        config = self.config
        (model,) = unit.models
        sampling = config.answer.sampling(unit.item.category)
        messages, texts = unit.item.messages, list[str]()
        for number in range(config.times + 1):
            answer: Generation = await ask.generate(
                model, messages, sampling, item_key=unit.item.key, turn=0 if number else 1
            )
            texts.append(answer.text)
            messages = (
                *messages,
                Message("assistant", answer.text),
                Message("user", config.question),
            )
        compared = await ask.similarity(unit.judge, texts) if unit.judge else None
        rows: list[Row] = []
        for again, other in enumerate(texts[1:], 1):
            row: Row = {
                **dict.fromkeys(self.columns),
                "turn": 1,
                "again": again,
                "answer": texts[0],
                "answer_again": other,
                "exact_match": texts[0].strip() == other.strip(),
                "token_f1": token_f1(texts[0], other),
            }
            if compared is not None:
                # F1 of the first answer and another is the same in both directions.
                f1 = float(f_beta_scores(compared.precision, compared.recall, 1.0)[0, again])
                row["similarity"] = f1 if math.isfinite(f1) else None
                row["n_truncated"] = compared.n_truncated
            rows.append(row)
        return rows
