"""Peer evaluation: models judge each other by what their own answers are most like; no prompts.

For every pair (i, j) of candidates, every other candidate k (that is a voter) and every item: i
wins if s(o_i, o_k) > s(o_j, o_k), j wins if <, else it is a tie. With N candidates and M items
these are M * C(N, 2) * (N - 2) votes. s is the F-beta of BERTScore (or Rouge-L) with the judge's
answer o_k as the hypothesis; beta 0, the default, is its precision: how much of the judge's answer
is found in the candidate's. One row holds all the votes on one pair of answers to one turn.

Source: LLM-self-eval; formulas in `docs/methods/peer_elo.md`.

Deviations: all votes are taken (the source says "sample" and enumerates); a tie is a difference of
at most `ties_within`, since float32 can't tell less apart; the vote of an empty answer is
undefined, and an empty answer scores 0, where the source's code divides 0 by 0 and drops the vote.
A missing answer is left out and named, never a tie.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from pydantic import Field

from orchestrator.contracts.rows import failed_row
from orchestrator.contracts.settings import BertScoreSettings, Similarity, comparer_name
from orchestrator.contracts.settings import comparers as named_comparers
from orchestrator.judgment.similarity import f_beta_scores, peer_votes
from orchestrator.methods._drawing import (
    Drawing,
    OfAnswers,
    OfAnswersSettings,
    Turn,
    converse,
    permanent,
)
from orchestrator.plugin import (
    Ask,
    Columns,
    Combination,
    Comparer,
    Failure,
    ModelName,
    PairColumns,
    PairScores,
    Row,
    Stage,
    Unit,
    UsageError,
    typed,
)

FEWEST: Final = 3


class Config(OfAnswersSettings):
    """Settings of `peer_elo`."""

    candidates: tuple[ModelName, ...] | None = Field(
        None,
        description="Models that are rated and vote. Default: all that are not judges.",
        min_length=FEWEST,
    )
    voters: tuple[ModelName, ...] | None = Field(
        None,
        description="Those of them that vote; the others are rated alone. Default: all.",
        min_length=2,
    )
    answer: Drawing = Field(Drawing(), description="Sampling settings of answers.")
    similarity: Similarity = Field(BertScoreSettings(), description="Similarity of answers.")
    beta: float = Field(
        0.0, ge=0, description="Weight of recall against precision in F-beta; 0 is precision alone."
    )
    ties_within: float = Field(
        1e-6, ge=0, description="Maximum difference of similarities that counts as a tie."
    )
    baseline: float | None = Field(
        None,
        lt=1,
        description="Similarity of unrelated texts, used to rescale the similarities shown; votes "
        "do not depend on it.",
    )
    families: Mapping[str, str] = Field(
        {},
        description="Family of each model, for the tables on family bias; a model not listed is "
        "its own family.",
    )
    elo_orders: int = Field(
        1000,
        ge=0,
        description="Number of resamples of the votes for Elo as published; 0 for no Elo ratings.",
    )


class Kind(OfAnswers[Config]):
    """Models judge each other by what their own answers are most like; no prompts."""

    cites = ("llmselfeval",)
    frame = "peer_votes"
    unit_columns: ClassVar[Columns] = typed(
        "item category: str | turn: i64 | model_a model_b similarity: str"
    )
    columns: ClassVar[Columns] = typed(
        "judges: list[str] | votes: list[f64] | wins_a wins_b ties undefined: i64",
        "prefer_a f1: f64 | length_a length_b: i64 | same_text: bool | missing: list[str]",
        "n_truncated: i64",
    )
    scores: ClassVar = {"prefer_a": 1}
    pairs = PairColumns(turn="turn", same_text="same_text", ranked=False)

    def comparers(self) -> dict[str, Comparer]:
        """The back-end that compares the answers, by its name."""
        return named_comparers(self.config.similarity)

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """One unit an item: all candidates, and what compares them."""
        if len(candidates) < FEWEST:
            raise UsageError(
                f"peer_elo: {len(candidates)} candidates; at least {FEWEST} are needed, so "
                "that a third model can vote on each pair"
            )
        if strange := set(self.config.voters or ()).difference(candidates):
            raise UsageError(f"peer_elo: {min(strange)!r} is among 'voters', but is no candidate")
        return [Combination(tuple(candidates), comparer_name(self.config.similarity))]

    def stages(self, candidates: Sequence[str]) -> list[Stage]:  # noqa: ARG002 (one contract)
        """All answers of a turn are compared at once."""
        name = comparer_name(self.config.similarity)
        return [Stage("similarity", name, "similarity", 1, exact=False)]

    def identify(self, unit: Unit) -> Row:
        """Item, category and what compares the answers."""
        return {**super().identify(unit), "similarity": unit.judge}

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """All votes of all turns: one row a pair of answers."""
        rows: list[Row] = []
        turns = await converse(unit.item, unit.models, ask, self.config.answer, go_on=True)
        for number, turn in enumerate(turns, 1):
            if len(turn) < FEWEST:
                # A turn on which nobody could vote; earlier turns keep their rows.
                said = f"{len(turn)} answers; it takes {FEWEST} for a vote"
                if not rows:
                    raise permanent("too_few_answers", said)
                rows += [{"turn": number, **failed_row(Failure("too_few_answers", said))}]
                continue
            compared = await ask.similarity(unit.judge, [made.answer.text for made in turn])
            rows += _rows(unit, turn, compared, self.config)
        return rows


def _rows(unit: Unit, turn: Sequence[Turn], compared: PairScores, config: Config) -> list[Row]:
    """The rows of one turn.

    `compared.precision[k, i]` is the share of k's answer that is found in i's: s(o_i, o_k).
    """
    precision, recall = compared.precision, compared.recall
    scores = f_beta_scores(precision, recall, config.beta)
    can_judge = [bool(precision[k, k] > 0) for k in range(len(turn))]
    f1 = f_beta_scores(precision, recall, 1.0)
    if config.baseline is not None:
        # 0 for texts that have nothing to do with each other, as `bert-score` has it.
        f1 = (f1 - config.baseline) / (1.0 - config.baseline)
    models = [made.model for made in turn]
    shared = {
        "turn": turn[0].number,
        "missing": [model for model in unit.models if model not in models],
        "n_truncated": compared.n_truncated,
    }
    rows: list[Row] = []
    voters = config.voters or models
    for first, second, judges, given in peer_votes(scores, can_judge, config.ties_within):
        votes = {models[one]: vote for one, vote in zip(judges, given, strict=True)}
        votes = {model: vote for model, vote in votes.items() if model in voters}
        wins_a, wins_b, ties = (list(votes.values()).count(one) for one in (1.0, 0.0, 0.5))
        n = wins_a + wins_b + ties
        text_a, text_b = (turn[one].answer.text for one in (first, second))
        rows.append(
            {
                **shared,
                "model_a": models[first],
                "model_b": models[second],
                "judges": list(votes),
                "votes": [None if math.isnan(vote) else vote for vote in votes.values()],
                "wins_a": wins_a,
                "wins_b": wins_b,
                "ties": ties,
                "undefined": len(votes) - n,
                "prefer_a": (wins_a + 0.5 * ties) / n if n else None,
                # In characters: tokens of two models are not the same thing.
                "length_a": len(text_a),
                "length_b": len(text_b),
                "same_text": text_a == text_b,
                "f1": float(f1[first, second]),
            }
        )
    return rows
