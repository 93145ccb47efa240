"""Requests of a probe: chat completions."""

from typing import Final

from orchestrator.probing.record import ALTERNATIVES
from orchestrator.probing.replies import HttpReply
from orchestrator.records import Message, Messages
from orchestrator.wire import rulings
from orchestrator.wire.requests import messages_of

PROMPT: Final[Messages] = (Message("user", "Name three things that one finds by the sea."),)
"""Prompt of a probe; short, and every model has something to say."""
QUESTION: Final[Messages] = (
    Message(
        "user",
        "Which is the largest animal? A: a mouse. B: a whale. C: a cat. Answer with one letter, "
        "A, B or C, and nothing else.",
    ),
)
"""Prompt of a probe of labels."""
SCORED_TOKENS: Final = 8
SAMPLED_TOKENS: Final = 12

_OFFICIAL: Final = frozenset(
    {"frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens",
     "messages", "model", "seed", "stream", "temperature", "top_logprobs", "top_p"}
)  # fmt: skip


def chat(model: str, **more: object) -> dict[str, object]:
    """A chat completion of one greedy token with alternatives, changed as `more` says."""
    return {
        "model": model,
        "messages": messages_of(PROMPT),
        "max_tokens": 1,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
        "stream": False,
        "logprobs": True,
        "top_logprobs": ALTERNATIVES,
        "return_token_ids": True,
        **more,
    }


def plainer(body: dict[str, object], refused: HttpReply) -> dict[str, object] | None:
    """Return a simpler request in place of a refused one; None if there is none left to try.

    Hosted endpoints refuse what others ignore: fields of vLLM first, then those that a reasoning
    model does not take.
    """
    if refused.status not in {400, 422}:
        return None
    official = {name: value for name, value in body.items() if name in _OFFICIAL}
    if len(official) < len(body):
        return official
    if "max_tokens" in body and "max_completion_tokens" in refused.words:
        renamed = {"max_tokens": "max_completion_tokens"}
        return {renamed.get(name, name): value for name, value in body.items()}
    is_none = refused.failure is not None and refused.failure.cause == "no_logprobs"
    field = {rulings.field_in(refused.words)} & {"seed"}
    left_out = {"logprobs", "top_logprobs"} if is_none else field
    plain = {name: value for name, value in body.items() if name not in left_out}
    return plain if len(plain) < len(body) else None
