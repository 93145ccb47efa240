"""ProbDiff: a model rewrites its own answer; how much less likely that is tells how good it is.

With ell(y|q) the mean natural-log probability of the tokens of y after the query q, x the model's
answer and x^(K) what K rounds of rewriting made of it:

    d(q) = ell(x^(K)|q) - ell(x|q)                                         (Eq. 2)
    confidence = share of queries with d(q) >= delta, for a delta <= 0     (Eq. 3 and 4)

Larger is better: a model that is at its best already finds nothing much less likely to say. Both
texts are scored under the *original* conversation, never under the prompt that asks for the
rewriting, at temperature 1 whatever they were drawn at, and without the token that ends the turn.

Source: Xia et al., "Language Models can Evaluate Themselves via Probability Discrepancy" (Findings
of ACL 2024). Its Eq. 1 lacks the logarithm that its text and its code have.

Deviations from the released code: the drawn token ids are scored, not the text tokenised anew; d of
an empty text is undefined and not -1 (the published confidence counts it as a fail all the same);
the second turn of a conversation is scored after its own first turn. All of them, with reasons:
`docs/methods/probdiff.md`.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from pydantic import Field

from orchestrator.ask import Ask
from orchestrator.contracts.method import Columns, Companion, Method, Stage
from orchestrator.methods import answers
from orchestrator.methods._conversation import Turn
from orchestrator.methods._rewriting import PRESETS, RewritingSettings, rewrite, rewriting_stages
from orchestrator.records import Generation, Row, Scored, Unit
from orchestrator.roles import RewriteColumns
from orchestrator.statistics.confidence import TIE_THRESHOLD


class Config(RewritingSettings):
    """Settings of `probdiff`."""

    deltas: tuple[float, ...] = Field(
        PRESETS["acl_findings"]["deltas"],
        min_length=1,
        description="Thresholds of the confidence; the first is the main one.",
    )
    tau: float = Field(
        TIE_THRESHOLD,
        ge=0,
        description="Maximum difference of d at which models tie on a prompt.",
    )


class ProbDiff(Method[Config]):
    """A model rewrites its own answer; how much less likely that is tells how good it is."""

    cites = ("xia2024probdiff",)
    columns: ClassVar[Columns] = {
        "turn": "i64",
        "answer": "str",
        "rewriting": "str",
        "ell_first": "f64",
        "ell_last": "f64",
        "d": "f64",
        "undefined": "str",
        "unchanged": "bool",
        "n_tokens_first": "i64",
        "n_tokens_last": "i64",
        "marker_leak": "bool",
        "empty_answer": "bool",
        "empty_rewriting": "bool",
        "truncated_answer": "bool",
        "truncated_rewriting": "bool",
    }
    scores: ClassVar = {"d": 1}
    rewriting = RewriteColumns(
        title="ProbDiff",
        answer="answer",
        rewriting="rewriting",
        before="ell_first",
        after="ell_last",
        change="d",
        unchanged="unchanged",
    )

    def companions(self) -> list[Companion]:
        """The answers that are rewritten, as a frame of their own."""
        return [answers.companion(self.config.candidates, self.config.answer)]

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """K rewritings and two scores a model; one score where the rewriting equals the answer."""
        drawn = rewriting_stages(candidates, self.config)
        scores = [
            Stage("scores", one.model, "score", 2, exact=False, draw=one.draw) for one in drawn
        ]
        return [*drawn, *scores]

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """The discrepancy d, one row a turn."""
        made = await rewrite(unit, ask, self.config)
        texts = [(turn, text) for turn, *both in made for text in both]
        asks = [ask.score(unit.models[0], turn.messages, x) for turn, x in texts if not _empty(x)]
        # x^(K) = x makes two equal asks, which are sent as one: d is then exactly 0.
        scored = iter(await ask.all(*asks))
        ell = [_Text(x, None if _empty(x) else next(scored)) for _, x in texts]
        return [
            _row(self.config, turn, first, last)
            for (turn, *_), first, last in zip(made, ell[::2], ell[1::2], strict=True)
        ]


class _Text(NamedTuple):
    """A text and its score; None where it is empty."""

    generation: Generation
    scored: Scored | None

    @property
    def ell(self) -> float | None:
        """Mean log-probability a token; None where it is undefined."""
        mean = math.nan if self.scored is None else self.scored.mean_logprob
        return mean if math.isfinite(mean) else None

    @property
    def n_tokens(self) -> int:
        """Tokens that were scored."""
        return 0 if self.scored is None else int(self.scored.token_ids.size)


def _row(config: Config, turn: Turn, first: _Text, last: _Text) -> Row:
    ell_first, ell_last = first.ell, last.ell
    d = undefined = None
    if ell_first is not None and ell_last is not None:
        d = ell_last - ell_first
    elif _empty(first.generation):
        undefined = "empty answer"
    elif _empty(last.generation):
        undefined = "empty rewriting"
    else:
        undefined = "a token has no finite log-probability"
    answer, rewriting = first.generation.text, last.generation.text
    return {
        "turn": turn.number,
        "answer": answer,
        "rewriting": rewriting,
        "ell_first": ell_first,
        "ell_last": ell_last,
        "d": d,
        "undefined": undefined,
        "unchanged": rewriting == answer,
        "n_tokens_first": first.n_tokens,
        "n_tokens_last": last.n_tokens,
        "marker_leak": leaks(config.rewrite_prompt().markers, answer, rewriting),
        "empty_answer": _empty(first.generation),
        "empty_rewriting": _empty(last.generation),
        "truncated_answer": first.generation.finish_reason == "length",
        "truncated_rewriting": last.generation.finish_reason == "length",
    }


def leaks(markers: Sequence[str], answer: str, rewriting: str) -> bool:
    """Return True if a rewriting repeats a marker of its prompt that the answer did not have."""
    before, after = answer.lower(), rewriting.lower()
    return any(marker in after and marker not in before for marker in markers)


def _empty(text: Generation) -> bool:
    return not text.text.strip()
