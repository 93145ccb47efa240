"""ProbDiff: a model rewrites its own answer; how much less likely that is tells how good it is.

With ell(y|q) the mean natural-log probability of the tokens of y after the query q, x the model's
answer and x^(K) what K rounds of rewriting made of it:

    d(q) = ell(x^(K)|q) - ell(x|q)                                         (Eq. 2)
    confidence = share of queries with d(q) >= delta, for a delta <= 0     (Eq. 3 and 4)

Larger is better: a model that is at its best already finds nothing much less likely to say. Both
texts are scored under the *original* conversation, never under the prompt that asks for the
rewriting, at temperature 1 whatever they were drawn at, and without the token that ends the turn.
With several `rewritings`, d is the mean over them, which section 3.2 calls a more accurate estimate
and leaves aside.

Source: Xia et al., "Language Models can Evaluate Themselves via Probability Discrepancy" (Findings
of ACL 2024). Its Eq. 1 lacks the logarithm that its text and its code have.

Deviations from the released code: the drawn token ids are scored, not the text tokenised anew; d of
an empty text is undefined and not -1 (the published confidence counts it as a fail all the same);
the second turn of a conversation is scored after its own first turn. All of them, with reasons:
`docs/methods/probdiff.md`.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from orchestrator.methods._drawing import OfAnswers, Turn
from orchestrator.methods._rewriting import PRESETS, RewritingSettings, rewrite, rewriting_stages
from orchestrator.plugin import (
    Ask,
    Columns,
    Generation,
    RewriteColumns,
    Row,
    Scored,
    Stage,
    Unit,
    typed,
)
from orchestrator.statistics.confidence import TIE_THRESHOLD


class Config(RewritingSettings):
    """Settings of `probdiff`."""

    deltas: tuple[float, ...] = Field(
        PRESETS["acl_findings"]["deltas"],
        min_length=1,
        description="Thresholds of the confidence; the first is the main one.",
    )
    tau: float = Field(
        TIE_THRESHOLD, ge=0, description="Maximum difference of d at which models tie on a prompt."
    )
    rewritings: int = Field(
        1,
        ge=1,
        le=100,
        description="Number of rewritings of each answer, over which d is averaged; more than one "
        "need a `revision` at a temperature above 0.",
    )

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a single rewriting, so that rows from before the setting stay valid."""
        found: dict[str, Any] = handler(self)
        if found.get("rewritings") == 1:
            del found["rewritings"]
        return found

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.rewritings > 1 and not self.revision.can_vary:
            raise ValueError("several rewritings are identical at revision.temperature 0; raise it")
        return self


class Kind(OfAnswers[Config]):
    """A model rewrites its own answer; how much less likely that is tells how good it is."""

    cites = ("xia2024probdiff",)
    columns: ClassVar[Columns] = typed(
        "turn: i64 | answer rewriting: str | ell_first ell_last d: f64 | undefined: str",
        "unchanged: bool | n_tokens_first n_tokens_last: i64",
        "marker_leak empty_answer empty_rewriting truncated_answer truncated_rewriting: bool",
    )
    scores: ClassVar = {"d": 1}
    derived = ("confidence",)
    rewriting = RewriteColumns(
        title="ProbDiff",
        answer="answer",
        rewriting="rewriting",
        before="ell_first",
        after="ell_last",
        change="d",
        unchanged="unchanged",
    )

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return the rewritings and scores; a rewriting that equals the answer needs one score."""
        n = self.config.rewritings
        drawn = rewriting_stages(candidates, self.config, n)
        scores = [
            Stage("scores", one.model, "score", 1 + n, exact=False, draw=one.draw) for one in drawn
        ]
        return [*drawn, *scores]

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """The discrepancy d, one row a turn."""
        n = self.config.rewritings
        often = await rewrite(unit, ask, self.config, n)
        # For each turn the answer, then its rewritings.
        turns = [
            (made[0][0], (made[0][0].answer, *(text for _, text in made)))
            for made in zip(*often, strict=True)
        ]
        texts = [(turn, text) for turn, found in turns for text in found]
        asks = [ask.score(unit.models[0], turn.messages, x) for turn, x in texts if not _empty(x)]
        # x^(K) = x makes two equal asks, which are sent as one: d is then exactly 0.
        scored = iter(await ask.all(*asks))
        read = [(x, None if _empty(x) else next(scored)) for _, x in texts]
        return [
            _row(self.config, turn, *read[begin : begin + 1 + n])
            for (turn, _), begin in zip(turns, range(0, len(read), 1 + n), strict=True)
        ]


_Text = tuple[Generation, Scored | None]
"""A text and its score; None where it is empty."""


def _ell(text: _Text) -> float | None:
    """Mean log-probability a token; None where it is undefined."""
    mean = math.nan if text[1] is None else text[1].mean_logprob
    return mean if math.isfinite(mean) else None


def _row(config: Config, turn: Turn, first: _Text, *rewritings: _Text) -> Row:
    """Return one row; of several rewritings the text of the first and the mean of the scores."""
    ell_first, ell_last = _ell(first), _mean([_ell(one) for one in rewritings])
    d = undefined = None
    if ell_first is not None and ell_last is not None:
        d = ell_last - ell_first
    elif _empty(first[0]):
        undefined = "empty answer"
    elif any(_empty(text) for text, _ in rewritings):
        undefined = "empty rewriting"
    else:
        undefined = "a token has no finite log-probability"
    answer, markers = first[0].text, config.markers()
    last = [text for text, _ in rewritings]
    n_first, n_last = (
        0 if scored is None else int(scored.token_ids.size) for _, scored in (first, rewritings[0])
    )
    return {
        "turn": turn.number,
        "answer": answer,
        "rewriting": last[0].text,
        "ell_first": ell_first,
        "ell_last": ell_last,
        "d": d,
        "undefined": undefined,
        "unchanged": all(one.text == answer for one in last),
        "n_tokens_first": n_first,
        "n_tokens_last": n_last,
        "marker_leak": any(leaks(markers, answer, one.text) for one in last),
        "empty_answer": _empty(first[0]),
        "empty_rewriting": any(map(_empty, last)),
        "truncated_answer": first[0].finish_reason == "length",
        "truncated_rewriting": any(one.finish_reason == "length" for one in last),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if any value is undefined, since the others would be favoured."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return known[0] if len(known) == 1 else sum(known) / len(known)


def leaks(markers: Sequence[str], answer: str, rewriting: str) -> bool:
    """Return True if a rewriting repeats a marker of its prompt that the answer did not have."""
    before, after = answer.lower(), rewriting.lower()
    return any(marker in after and marker not in before for marker in markers)


def _empty(text: Generation) -> bool:
    return not text.text.strip()
