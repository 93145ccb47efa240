"""Requests of a probe: chat completions, and the tokenise routes of each kind of server."""

from typing import Any, Final

import msgspec

from orchestrator.probing.record import ALTERNATIVES
from orchestrator.probing.replies import HttpReply, ids_in
from orchestrator.records import Message, Messages
from orchestrator.wire import rulings
from orchestrator.wire.parsing import text_of
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


class Tokenising(msgspec.Struct, frozen=True):
    """The tokenise routes of a kind of server.

    Attributes:
        chat_path: Takes messages, gives ids or a rendered text.
        text_path: Takes a text, gives ids; empty for none.
        text_field: Of the text in that request.
        text_extra: More fields of that request.
        back_path: Takes ids, gives their text; empty for none.
        back_field: Of the text in that reply.
        rendered_field: Of the rendered chat in the reply of `chat_path`; empty where there is none.
    """

    chat_path: str
    text_path: str = ""
    text_field: str = "prompt"
    text_extra: dict[str, Any] = {}
    back_path: str = ""
    back_field: str = "prompt"
    rendered_field: str = ""


_PLAIN: Final = {"add_special_tokens": False}
_VLLM: Final = Tokenising("/tokenize", "/tokenize", text_extra=_PLAIN, back_path="/detokenize")
TOKENISING: Final = {
    "vllm": _VLLM,
    "embedded": _VLLM,
    "fake": _VLLM,
    "openai": _VLLM,
    "sglang": Tokenising(
        "/v1/tokenize",
        "/v1/tokenize",
        text_extra=_PLAIN,
        back_path="/v1/detokenize",
        back_field="text",
    ),
    "llamacpp": Tokenising(
        "/apply-template",
        "/tokenize",
        text_field="content",
        back_path="/detokenize",
        back_field="content",
        rendered_field="prompt",
    ),
    "tgi": Tokenising("/chat_tokenize", rendered_field="templated_text"),
}
"""By kind; kinds that are not here have no tokeniser that can be asked."""


def ids(reply: HttpReply) -> tuple[int, ...] | None:
    """The ids in the reply of any tokenise route; None where there are none."""
    table = reply.table() if reply.status == 200 else {}
    entries = table.get("tokens", table.get("tokenize_response"))
    if isinstance(entries, list) and entries and isinstance(entries[0], dict):
        entries = [entry.get("id") if isinstance(entry, dict) else None for entry in entries]
    return ids_in(entries)


def text(reply: HttpReply, field: str) -> str | None:
    """A text in a reply; None where there is none."""
    found = reply.table().get(field) if reply.status == 200 and field else None
    return text_of(found) if isinstance(found, str) else None
