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
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, Field, field_validator, model_validator

from orchestrator.ask import Ask, AskFailed, GenerateAsk
from orchestrator.methods import answers
from orchestrator.methods._base import (
    STATUS_COLUMNS,
    Combination,
    Drawing,
    MethodSettings,
    Stage,
)
from orchestrator.methods._conversation import Turn, converse
from orchestrator.prompts import PromptError, render, variables
from orchestrator.prompts.rewriting import PROMPTS, RewritePrompt, markers_of
from orchestrator.records import Failure, Generation, Item, Message, Messages, Row, Scored, Unit

VERSION: Final = 1
FRAME: Final = "probdiff"
SCORES: Final = {"d": 1}
SCHEMA: Final = {
    "item": "str",
    "category": "str",
    "model": "str",
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
    **STATUS_COLUMNS,
}

FIELDS: Final = ("prompt", "answer")
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "acl_findings": {
        "answer": {"max_tokens": 1024, "temperature": 0.7},
        "revision": {"max_tokens": 1024, "temperature": 0.1},
        "deltas": (-0.05, 0.0, -0.1, -0.02),
    },
    "submission": {
        "answer": {"max_tokens": 1024, "temperature": 0.7, "top_p": 0.8},
        "revision": {"max_tokens": 1024, "temperature": 0.1, "top_p": 0.9},
        "deltas": (-0.05, -0.02),
    },
}
"""What the two versions of the paper say. Version 1 has -0.02 for generation tasks (translation,
summaries) and -0.05 for chat benchmarks; both are shown."""


class Config(MethodSettings):
    """Settings of `probdiff`."""

    candidates: tuple[str, ...] | None = Field(
        None, description="Models to evaluate; all that are not judges where left out."
    )
    preset: str = Field(
        "acl_findings",
        description="acl_findings or submission (version 1 of the paper): fills in what is left "
        "out of answer, revision and deltas.",
    )
    answer: Drawing = Field(
        Drawing.model_validate(PRESETS["acl_findings"]["answer"]),
        description="How answers are drawn.",
    )
    revision: Drawing = Field(
        Drawing.model_validate(PRESETS["acl_findings"]["revision"]),
        description="How rewritings are drawn.",
    )
    rounds: int = Field(1, ge=1, le=100, description="Rounds of rewriting; only the last counts.")
    prompt: str = Field(
        "refinement",
        description="What asks for a rewriting: refinement (the paper's), refinement_code, simple "
        "(appendix C), compact (bundled models), or a Jinja template with prompt and answer.",
    )
    deltas: tuple[float, ...] = Field(
        PRESETS["acl_findings"]["deltas"],
        min_length=1,
        description="Thresholds of the confidence; the first is the main one.",
    )
    tau: float = Field(
        0.05, ge=0, description="Models tie on a prompt where their d differ by no more than this."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:  # noqa: ANN401 (whatever was written)
        """Settings that the preset has and the user left out, also inside `answer`."""
        if not isinstance(given, dict):
            return given
        preset = PRESETS.get(str(given.get("preset", "acl_findings")), {})
        filled = dict(given)
        for name, value in preset.items():
            own = given.get(name)
            if own is None:
                filled[name] = value
            elif isinstance(own, dict):
                filled[name] = {**value, **own}
        return filled

    @field_validator("preset")
    @classmethod
    def _preset_exists(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"no preset named {value!r}; there are {', '.join(PRESETS)}")
        return value

    @field_validator("deltas")
    @classmethod
    def _finite(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(map(math.isfinite, value)):
            raise ValueError("thresholds are finite numbers")
        return value

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
            raise ValueError(f"the template uses {', '.join(unknown)}; there are prompt, answer")
        if "answer" not in used:
            raise ValueError("the template does not show answer")
        return value

    def rewrite_prompt(self) -> RewritePrompt:
        """The prompt by name, or the user's own."""
        return PROMPTS.get(self.prompt) or RewritePrompt(self.prompt, markers_of(self.prompt))


def combinations(candidates: Sequence[str], config: Config) -> list[Combination]:  # noqa: ARG001
    """One unit a model."""
    return [Combination((model,)) for model in candidates]


def companions(config: Config) -> list[tuple[str, BaseModel]]:
    """The answers that are rewritten, as a frame of their own."""
    return [("answers", answers.Config(candidates=config.candidates, answer=config.answer))]


def stages(candidates: Sequence[str], config: Config) -> list[Stage]:
    """K rewritings and two scores a model; one score where the rewriting equals the answer."""
    draw = config.model_dump_json(include={"answer", "revision", "rounds", "prompt"})
    tokens = config.revision.max_tokens
    # A greedy rewriting that changed nothing is not asked for again.
    exact = config.rounds == 1
    return [
        stage
        for model in candidates
        for stage in (
            Stage("rewritings", model, "generate", config.rounds, exact, tokens, draw=draw),
            Stage("scores", model, "score", 2, exact=False, draw=draw),
        )
    ]


def columns(unit: Unit) -> Row:
    """Item, category and model."""
    return {
        "item": unit.item.key,
        "category": unit.item.category,
        "model": unit.models[0],
    }


async def evaluate(unit: Unit, ask: Ask, config: Config) -> list[Row]:
    """The discrepancy d, one row a turn."""
    turns = [turn for (turn,) in await converse(unit.item, unit.models, ask, config.answer)]
    first = last = [turn.answer for turn in turns]
    for number in range(config.rounds):
        prompts = [_refine(unit.item, *pair, config) for pair in zip(turns, last, strict=True)]
        last = await ask.all(*(_rewriting(unit, ask, config, p, number) for p in prompts))
    # Equal texts are one text: d is then 0 whatever their tokens, and one score is asked for.
    last = [x if x.text == y.text else y for x, y in zip(first, last, strict=True)]
    ell = await _score(unit, ask, [*zip(turns, first, strict=True), *zip(turns, last, strict=True)])
    n = len(turns)
    return [
        _row(unit, config, turn, _Text(x, ell_x), _Text(y, ell_y))
        for turn, x, ell_x, y, ell_y in zip(turns, first, ell[:n], last, ell[n:], strict=True)
    ]


async def _score(
    unit: Unit, ask: Ask, texts: Sequence[tuple[Turn, Generation]]
) -> list[Scored | None]:
    """Each text under the original conversation of its turn; None for an empty one."""
    asks = [
        ask.score(unit.models[0], turn.messages, text) for turn, text in texts if not _empty(text)
    ]
    scored = iter(await ask.all(*asks))
    return [None if _empty(text) else next(scored) for _, text in texts]


def _rewriting(
    unit: Unit, ask: Ask, config: Config, messages: Messages, number: int
) -> GenerateAsk:
    # Rounds are draws of their own, also where one changed nothing; greedy ones can't differ.
    repeat = number if config.revision.temperature else 0
    sampling = config.revision.sampling()
    return ask.generate(unit.models[0], messages, sampling, item_key=unit.item.key, repeat=repeat)


def _refine(item: Item, turn: Turn, answer: Generation, config: Config) -> Messages:
    """The conversation that asks for a rewriting: the item's system prompt, one user message."""
    fields: dict[str, str | None] = {"prompt": _question(item, turn), "answer": answer.text}
    try:
        text = render(config.rewrite_prompt().template, fields)
    except PromptError as error:
        raise AskFailed(Failure("bad_item", str(error), permanent=True)) from error
    system = tuple(message for message in turn.messages if message.role == "system")
    return (*system, Message("user", text))


def _question(item: Item, turn: Turn) -> str:
    """What the rewriting prompt shows as the prompt: the question, or the conversation so far."""
    spoken = [message for message in turn.messages if message.role != "system"]
    if len(spoken) == 1 and not item.followups:
        return spoken[0].content
    said = [f"{message.role.upper()}: {message.content}\n\n" for message in spoken]
    return f"{''.join(said)}ASSISTANT: "


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


def _row(unit: Unit, config: Config, turn: Turn, first: _Text, last: _Text) -> Row:
    ell_first, ell_last = first.ell, last.ell
    known = ell_first is not None and ell_last is not None
    d = ell_last - ell_first if ell_first is not None and ell_last is not None else None
    answer, rewriting = first.generation.text, last.generation.text
    return {
        **columns(unit),
        "turn": turn.number,
        "answer": answer,
        "rewriting": rewriting,
        "ell_first": ell_first,
        "ell_last": ell_last,
        "d": d,
        "undefined": None if known else _undefined(first, last),
        "unchanged": rewriting == answer,
        "n_tokens_first": first.n_tokens,
        "n_tokens_last": last.n_tokens,
        "marker_leak": leaks(config.rewrite_prompt().markers, answer, rewriting),
        "empty_answer": _empty(first.generation),
        "empty_rewriting": _empty(last.generation),
        "truncated_answer": first.generation.finish_reason == "length",
        "truncated_rewriting": last.generation.finish_reason == "length",
        "status": "ok",
    }


def leaks(markers: Sequence[str], answer: str, rewriting: str) -> bool:
    """Whether a rewriting repeats a marker of its prompt that the answer did not have."""
    before, after = answer.lower(), rewriting.lower()
    return any(marker in after and marker not in before for marker in markers)


def _empty(text: Generation) -> bool:
    return not text.text.strip()


def _undefined(first: _Text, last: _Text) -> str:
    if _empty(first.generation):
        return "empty answer"
    if _empty(last.generation):
        return "empty rewriting"
    return "a token has no finite log-probability"
