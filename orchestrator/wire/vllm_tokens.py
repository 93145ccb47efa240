"""vLLM's tokenizer as its server offers it: `/tokenize` and `/detokenize` (vLLM 0.32)."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchestrator.records import Failure, Messages
from orchestrator.wire.parsing import Decoder, TokenId, error_in
from orchestrator.wire.requests import encode, messages_of
from orchestrator.wire.trie import Path


class _Tokenized(msgspec.Struct, gc=False):
    tokens: list[TokenId] | None = None
    token_strs: list[str] | None = None
    error: Any = None


class _Detokenized(msgspec.Struct, gc=False):
    prompt: str | None = None
    error: Any = None


_tokenized: Final = Decoder(_Tokenized)
_detokenized: Final = Decoder(_Detokenized)


def tokenize_chat(
    model: str,
    messages: Messages,
    template: Mapping[str, object],
    *,
    opens: bool = True,
    goes_on: bool = False,
    strings: bool = False,
) -> bytes:
    """Body of `/tokenize` for a chat.

    Args:
        model: The server's name for it.
        messages: The chat.
        template: Arguments of the chat template.
        opens: Whether the assistant's turn is opened.
        goes_on: Whether the last message is left open.
        strings: Whether the tokens' texts are wanted too.

    Raises:
        UnicodeEncodeError: If a message holds a lone surrogate, which is no text.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": messages_of(messages),
        "add_generation_prompt": opens,
        "continue_final_message": goes_on,
    }
    if template:
        body["chat_template_kwargs"] = template
    if strings:
        body["return_token_strs"] = True
    return encode(body)


def tokenize_text(model: str, text: str, *, special: bool = False, strings: bool = False) -> bytes:
    """Body of `/tokenize` for a text; `special` adds what the tokenizer puts around one (BOS).

    Raises:
        UnicodeEncodeError: If the text holds a lone surrogate.
    """
    body: dict[str, Any] = {"model": model, "prompt": text, "add_special_tokens": special}
    if strings:
        body["return_token_strs"] = True
    return encode(body)


def detokenize(model: str, ids: Path) -> bytes:
    """Body of `/detokenize`."""
    return encode({"model": model, "tokens": ids})


def token_ids(body: bytes, secret: str) -> tuple[int, ...] | Failure:
    """The ids in a reply of `/tokenize`."""
    reply = _tokenized(body, secret)
    if isinstance(reply, Failure):
        return reply
    return error_in(body, secret) if reply.tokens is None else tuple(reply.tokens)


def token_texts(body: bytes, secret: str) -> tuple[str, ...] | Failure:
    """The tokens' texts in a reply of `/tokenize`, as the vocabulary spells them."""
    reply = _tokenized(body, secret)
    if isinstance(reply, Failure):
        return reply
    return error_in(body, secret) if reply.token_strs is None else tuple(reply.token_strs)


def text(body: bytes, secret: str) -> str | Failure:
    """The text in a reply of `/detokenize`."""
    reply = _detokenized(body, secret)
    if isinstance(reply, Failure):
        return reply
    return error_in(body, secret) if reply.prompt is None else reply.prompt
