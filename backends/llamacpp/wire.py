"""llama-server's own routes: forced tokens, distributions after a prompt, its tokenizer.

Read off the source of llama.cpp as vendored in llama-cpp-python 0.3.36, and off its replies. Its
log-probabilities are those of the raw softmax, whatever biases, grammars and samplers do, so a
token that was forced by one of them shows what it would have weighed unforced. Every entry names
its token's id. A token after which the text ends inside a character has no entry at all.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from orchestrator.ask import GenerateAsk
from orchestrator.records import Messages
from orchestrator.wire.by_ids import Path
from orchestrator.wire.failures import Failed, as_value, known
from orchestrator.wire.parsing import Decoder, TokenId, error_in, field, text_of
from orchestrator.wire.requests import encode, messages_of

FORCE: Final = 1000.0
"""Added to the logit of a token that must be drawn."""

_FIELDS: Final = (
    "content", "tokens", "stop_type", "tokens_predicted", "tokens_evaluated", "truncated",
    "timings", "completion_probabilities",
)  # fmt: skip
# Every sampler that a server could have been started with, switched off by the list of samplers.
_PLAIN: Final = {
    "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "repeat_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0,
    "xtc_probability": 0.0, "dynatemp_range": 0.0, "mirostat": 0, "ignore_eos": False,
    "post_sampling_probs": False, "backend_sampling": False, "return_tokens": True,
    "response_fields": _FIELDS, "stream": False,
}  # fmt: skip
OWN_FIELDS: Final = frozenset({
    *_PLAIN, "cache_prompt", "grammar", "id_slot", "logit_bias", "n_predict", "n_probs", "prompt",
    "samplers", "seed", "stop", "temperature", "top_k", "top_p",
})  # fmt: skip
"""Fields that this module writes; a user's extra fields may not be among them."""
_GREEDY: Final = {"temperature": 0.0, "top_k": 1, "top_p": 1.0, "samplers": ("top_k",), "seed": 0}
# What ends an answer is spelled so; a grammar takes such tokens at its own end only.
CONTROL: Final = re.compile(rb"<.+>|\[[A-Z_/]+\]", re.DOTALL)

_Bytes = list[Annotated[int, msgspec.Meta(ge=0, le=255)]]


class _Piece(msgspec.Struct, gc=False):
    id: TokenId
    piece: str | _Bytes


class _Defaults(msgspec.Struct, gc=False):
    params: dict[str, Any] = {}


class Props(msgspec.Struct, gc=False):
    """Properties that a server reports: slots, version, and facts about its model."""

    total_slots: int | None = None
    build_info: str = ""
    model_ftype: str = ""
    chat_template: str = ""
    eos_token: str = ""
    default_generation_settings: _Defaults = msgspec.field(default_factory=_Defaults)
    error: Any = None

    @property
    def drafts(self) -> str:
        """The kind of its speculative decoding; "none" where it has none."""
        found = self.default_generation_settings.params.get("speculative.types", "none")
        # What is no text is a kind that no server has.
        return text_of(found) if isinstance(found, str) else "?"


class Meta(msgspec.Struct, gc=False):
    """Sizes of a model, 0 where they are not said."""

    n_vocab: int = 0
    n_params: int = 0
    size: int = 0


class Served(msgspec.Struct, gc=False):
    """A model as the server lists it."""

    id: str = ""
    aliases: list[str] = []
    meta: Meta | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it answers to."""
        return (self.id, *self.aliases)


_pieces: Final = field("tokens", tuple[_Piece, ...])
_props: Final = Decoder(Props)


# -- requests --------------------------------------------------------------------------------------


def template(
    messages: Messages, more: Mapping[str, object], *, opens: bool, goes_on: bool
) -> bytes:
    """Body of `/apply-template`, with fields that the chat template depends on."""
    return encode({
        "messages": messages_of(messages),
        "add_generation_prompt": opens,
        "continue_final_message": goes_on,
        **more,
    })  # fmt: skip


def tokenize(text: str, *, special: bool) -> bytes:
    """Body of `/tokenize`; `special` adds what the tokenizer puts around a text (BOS)."""
    return encode({"content": text, "add_special": special, "parse_special": True})


def spell(tokens: Path | str) -> bytes:
    """Body of `/tokenize` that asks for the bytes of tokens, or of a text's tokens."""
    wanted = {"add_special": False, "parse_special": True, "with_pieces": True}
    return encode({"content": tokens, **wanted})


def detokenize(ids: Path) -> bytes:
    """Body of `/detokenize`."""
    return encode({"tokens": ids})


def generate(ids: Path, ask: GenerateAsk, seed: int, extra: Mapping[str, Any]) -> bytes:
    """Body of `/completion` that draws one text after `ids`, every sampler written out.

    Temperature comes first, as in `transformers` and vLLM; llama.cpp's own order has it last.
    """
    sampling = ask.sampling
    drawing: Mapping[str, Any] = _GREEDY
    if sampling.temperature > 0:
        drawing = {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "samplers": ("temperature", "top_k", "top_p"),
            "seed": seed,
        }
    body = {
        "prompt": ids,
        "n_predict": sampling.max_tokens,
        "n_probs": max(1, ask.top_logprobs),
        **_PLAIN,
        **drawing,
        **extra,
    }
    if sampling.stop:
        body["stop"] = sampling.stop
    return encode(body)


def force(ids: Path, tokens: Path, n_listed: int, *, cache: bool = True) -> bytes:
    """Body of `/completion` that draws these tokens after `ids`: one by a bias, more by a grammar.

    `cache` says whether what the server has of the prompt is used.
    """
    by: dict[str, Any] = {"logit_bias": ((tokens[0], FORCE),)}
    if len(tokens) > 1:
        by = {"grammar": "root ::= " + " ".join(f"<[{token}]>" for token in tokens)}
    # No slot is named: a request for a slot that is busy spoils the answer that is drawn there
    # (its keys and values go to the server's prompt cache in the middle of it).
    body = {
        "prompt": ids,
        "n_predict": len(tokens),
        "n_probs": max(1, n_listed),
        **_PLAIN,
        **_GREEDY,
        **by,
        "cache_prompt": cache,
    }
    return encode(body)


# -- replies ---------------------------------------------------------------------------------------


@as_value
def pieces(body: bytes, secret: str) -> tuple[tuple[int, bytes], ...]:
    """Ids and bytes of tokens in a reply to `spell`."""
    return tuple(
        (
            one.id,
            one.piece.encode("utf-8", "replace")
            if isinstance(one.piece, str)
            else bytes(one.piece),
        )
        for one in known(_pieces(body, secret))
    )


rendered: Final = field("prompt", str)
"""The text in a reply of `/apply-template`."""
text: Final = field("content", str)
"""The text in a reply of `/detokenize`."""


@as_value
def props(body: bytes, secret: str = "") -> Props:
    """Parse the reply of `/props`."""
    reply = _props(body, secret)
    if reply.total_slots is None:
        raise Failed(error_in(body, secret))
    return reply


served: Final = field("data", tuple[Served, ...])
"""The models that `/v1/models` lists."""


# -- tokens --------------------------------------------------------------------------------


def runs(spelled: Sequence[bytes], eos: bytes) -> Iterator[tuple[int, int]]:
    """Cut tokens into stretches [begin, stop) that a grammar can force; the others stand alone.

    A grammar takes neither what is no text by itself nor what ends an answer.
    """
    begin = 0
    for at, piece in enumerate(spelled):
        if is_forcible(piece) and piece != eos:
            continue
        if begin < at:
            yield begin, at
        yield at, at + 1
        begin = at + 1
    if begin < len(spelled):
        yield begin, len(spelled)


def is_forcible(piece: bytes) -> bool:
    """Return True if a grammar can force a token of these bytes."""
    if not piece or piece.startswith(b"\0") or CONTROL.search(piece):
        return False
    return is_text(piece)


def is_text(piece: bytes) -> bool:
    """Return True if bytes are whole characters."""
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
