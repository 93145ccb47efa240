"""TGI's own routes: `/generate` by text with the details of each token, its tokenizer.

Written against TGI 3.3, and read off its replies. It takes no token ids, so prompts are rendered by
the server (`/chat_tokenize`) and sent back as text.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.ask import GenerateAsk
from orchestrator.records import FloatArray, Generation, Messages, unparseable, unsupported
from orchestrator.wire._located import check_list
from orchestrator.wire.answers import (
    Alternative,
    Answer,
    ListedEntry,
    Logprobs,
    Message,
    withheld_at_end,
)
from orchestrator.wire.by_ids import Reading as NodeReading
from orchestrator.wire.drawn import Reading, drawn
from orchestrator.wire.failures import Failed, as_value
from orchestrator.wire.parsing import (
    Decoder,
    TokenId,
    Usage,
    error_in,
    logprob,
    logprob_array,
    no_logprobs,
    text_of,
)
from orchestrator.wire.requests import NOTHING, encode, messages_of

Ids = tuple[int, ...]

NO_PREFILL: Final = unsupported(
    "this TGI server returns no log-probabilities of prompts; start it with "
    "--enable-prefill-logprobs"
)

_MOST_SPELLED: Final = 2**20
_NO_LOGPROBS: Final = no_logprobs("the reply has no log-probabilities")


class _Token(msgspec.Struct, gc=False):
    id: TokenId = 0
    text: str = ""
    logprob: float | None = None
    special: bool = False


class _Details(msgspec.Struct, gc=False):
    finish_reason: str | None = None
    generated_tokens: int = 0
    prefill: list[_Token] = []
    tokens: list[_Token] = []
    top_tokens: list[list[_Token]] | None = None


class _Generated(msgspec.Struct, gc=False):
    generated_text: str | None = None
    details: _Details | None = None
    error: Any = None


class _Templated(msgspec.Struct, gc=False):
    templated_text: str | None = None
    tokenize_response: list[_Token] | None = None
    error: Any = None


_generated: Final = Decoder(_Generated)
_templated: Final = Decoder(_Templated)
_tokens: Final = Decoder(list[_Token])


class Templated(msgspec.Struct, frozen=True):
    """A prompt as the server renders it."""

    text: str
    ids: Ids


class Spelled(dict[int, bytes]):
    """Texts of tokens by id, gathered from replies: no route gives them."""

    def learn(self, tokens: Iterable[_Token], *, drawn: bool = False) -> None:
        """Keep the texts of tokens.

        A drawn token's is that which it adds to the answer, so a token that completes a character
        is given all of it: what is known already, or is no text of one token, is kept out.
        """
        for one in tokens:
            is_part = drawn and (one.id in self or not one.text or not one.text.isascii())
            if len(self) < _MOST_SPELLED and not is_part:
                self[one.id] = one.text.encode("utf-8", "replace")


# -- requests --------------------------------------------------------------------------------------


def template(messages: Messages, more: Mapping[str, object]) -> bytes:
    """Body of `/chat_tokenize`, with fields that the chat template depends on."""
    return encode({"model": "tgi", "messages": messages_of(messages), **more})


def tokenize(text: str, *, special: bool) -> bytes:
    """Body of `/tokenize`; `special` adds what the tokenizer puts around a text (BOS)."""
    return encode({"inputs": text, "add_special_tokens": special})


def draw(
    prompt: str, ask: GenerateAsk, seed: int, more: Mapping[str, object], *, special: bool
) -> bytes:
    """Body of `/generate` that draws one text after a rendered prompt; with `more` fields."""
    sampling = ask.sampling
    params: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens,
        "do_sample": sampling.temperature > 0,
        "return_full_text": False,
        "details": True,
        "decoder_input_details": False,
    }
    if sampling.temperature > 0:
        params |= {"temperature": sampling.temperature, "seed": seed}
        # Both are refused at the value that means "off".
        if sampling.top_p < 1:
            params["top_p"] = sampling.top_p
        if sampling.top_k:
            params["top_k"] = sampling.top_k
    if sampling.stop:
        params["stop"] = sampling.stop
    if ask.top_logprobs:
        params["top_n_tokens"] = ask.top_logprobs
    return _body(prompt, params, more, special=special)


def score(text: str, *, special: bool) -> bytes:
    """Body of `/generate` that reads the log-probabilities of a text's own tokens."""
    return _body(text, {**_ONE, "decoder_input_details": True}, special=special)


def look(prompt: str, top_n: int, allowed: Sequence[str] = (), *, special: bool) -> bytes:
    """Body of `/generate` that lists the most likely next tokens, of those allowed if any are."""
    params: dict[str, Any] = {**_ONE, "top_n_tokens": top_n}
    if allowed:
        pattern = "|".join(re.escape(text) for text in allowed)
        params["grammar"] = {"type": "regex", "value": f"({pattern})"}
    return _body(prompt, params, special=special)


_ONE: Final[Mapping[str, Any]] = {
    "max_new_tokens": 1,
    "do_sample": False,
    "return_full_text": False,
    "details": True,
    "decoder_input_details": False,
}


def _body(
    inputs: str,
    parameters: Mapping[str, object],
    more: Mapping[str, object] = NOTHING,
    *,
    special: bool,
) -> bytes:
    body = {"inputs": inputs, "add_special_tokens": special, "parameters": parameters}
    return encode({**body, **more})


# -- replies ---------------------------------------------------------------------------------------


@as_value
def rendered(body: bytes, secret: str) -> Templated:
    """The prompt in a reply of `/chat_tokenize`."""
    reply = _templated(body, secret)
    if reply.templated_text is None or reply.tokenize_response is None:
        raise Failed(error_in(body, secret))
    return Templated(
        text_of(reply.templated_text), tuple(one.id for one in reply.tokenize_response)
    )


@as_value
def token_ids(body: bytes, secret: str) -> Ids:
    """The ids in a reply of `/tokenize`."""
    if not body.lstrip().startswith(b"["):
        raise Failed(error_in(body, secret))
    return tuple(one.id for one in _tokens(body, secret))


@as_value
def generation(
    body: bytes, reading: Reading, ask: GenerateAsk, n_prompt: int, spelled: Spelled | None = None
) -> Generation:
    """A drawn text, without the stop string that the server leaves in it.

    Texts of its tokens go to `spelled`.

    Failures: "no_logprobs" where details are missing, and those of
    `orchestrator.wire.drawn.drawn`.
    """
    text, found = _details(body, reading.secret)
    if found.finish_reason == "stop_sequence":
        ends = [stop for stop in ask.sampling.stop if stop and text.endswith(stop)]
        text = text[: len(text) - max(map(len, ends), default=0)]
    if found.tokens and all(one.logprob is None for one in found.tokens):
        absent = withheld_at_end(found.finish_reason, reading.secret, text)
        raise Failed(absent or _NO_LOGPROBS)
    rows: Sequence[list[_Token]] = found.top_tokens or [[]] * len(found.tokens)
    if len(rows) != len(found.tokens):
        said = f"alternatives at {len(rows)} of {len(found.tokens)} tokens"
        raise Failed(unparseable(said))
    if spelled is not None:
        spelled.learn(one for row in rows for one in row)
        spelled.learn(found.tokens, drawn=True)
    entries = [
        ListedEntry(
            one.text,
            one.logprob,
            id=one.id,
            top_logprobs=[Alternative(other.text, other.logprob, other.id) for other in row],
        )
        for one, row in zip(found.tokens, rows, strict=True)
    ]
    answer = Answer(Message(text), Logprobs(entries), found.finish_reason)
    usage = Usage(prompt_tokens=n_prompt, completion_tokens=found.generated_tokens)
    return drawn(answer, usage, reading)


@as_value
def forced(body: bytes, secret: str, spelled: Spelled | None = None) -> tuple[Ids, FloatArray]:
    """Ids and ln p of a text's own tokens, from the reply to `score`; texts go to `spelled`.

    The first has no log-probability: nan. Failures: `NO_PREFILL` where the server gives none,
    "unparseable" where another one lacks its number.
    """
    tokens = _details(body, secret)[1].prefill
    if not tokens:
        raise Failed(NO_PREFILL)
    if spelled is not None:
        spelled.learn(tokens)
    values = logprob_array([one.logprob for one in tokens])
    if np.isnan(values[1:]).any():
        said = "the server returned no log-probability for a token of the prompt"
        raise Failed(unparseable(said))
    return tuple(one.id for one in tokens), values


@as_value
def listed(body: bytes, secret: str) -> NodeReading:
    """The first token's alternatives over what was allowed, from the reply to `look`."""
    rows = _details(body, secret)[1].top_tokens
    found = {one.id: logprob(one.logprob) for one in (rows[0] if rows else ())}
    found = {token: value for token, value in found.items() if not math.isnan(value)}
    if not found:
        raise Failed(no_logprobs("the reply lists no alternatives with log-probabilities"))
    check_list(found.values())
    return NodeReading(found, min(found.values()))


def _details(body: bytes, secret: str) -> tuple[str, _Details]:
    reply = _generated(body, secret)
    if reply.error or reply.generated_text is None:
        ended = (reply.details or _Details()).finish_reason
        raise Failed(withheld_at_end(ended, secret) or error_in(body, secret))
    if reply.details is None:
        raise Failed(_NO_LOGPROBS)
    return text_of(reply.generated_text), reply.details
