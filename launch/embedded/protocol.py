"""Request bodies, replies and errors in the form of the wire; unknown fields are ignored."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode


def reply(fields: Any, status: int = 200) -> Response:  # noqa: ANN401 (any JSON)
    """Return a JSON response; numbers that are not finite become null."""
    return Response(_encode(fields), status, media_type="application/json")


class ApiError(Exception):
    """A request that is answered with an error body.

    Attributes:
        status: HTTP status.
        message: For the caller; never holds a secret.
        kind: The `type` of the body, as vLLM names it.
        param: The field at fault, where one is.
    """

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param

    def body(self) -> dict[str, dict[str, str | int | None]]:
        """The JSON body."""
        fields: dict[str, str | int | None] = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return {"error": fields}


def bad_request(message: str, param: str | None = None) -> ApiError:
    """A 400."""
    return ApiError(400, message, "BadRequestError", param)


def overloaded(waiting: int) -> ApiError:
    """A 503: the queue is full."""
    text = "The engine is currently busy and cannot accept new requests"
    return ApiError(503, f"{text} ({waiting} waiting)", "ServiceUnavailableError")


def internal(message: str) -> ApiError:
    """A 500."""
    return ApiError(500, message, "InternalServerError")


class ClientGoneError(Exception):
    """The client closed the connection before it was answered."""


T = TypeVar("T")
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "n": (1,),
    "min_tokens": (0,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "best_of": (1,),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "logit_bias": ({},),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "structured_outputs": ({},),
    "guided_choice": ([],),
    "guided_regex": ("",),
    "guided_json": ({}, ""),
    "guided_grammar": ("",),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "stream": (False,),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (),
    "chat_template": (),
    "prompt_embeds": (),
}
"""Fields that are not supported, each with its values that ask for nothing."""


class _Model(msgspec.Struct, kw_only=True):
    model: str | None = None


class Rendered(_Model, kw_only=True):
    """Fields of requests that hold a chat."""

    messages: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    template: str | None = None


class ChatRequest(Rendered, kw_only=True):
    """`POST /v1/chat/completions`."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    max_tokens: int | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None


class Prefix(msgspec.Struct):
    """Text that the assistant has already written."""

    text: str | None = None
    token_ids: list[int] | None = None


class ScoreRequest(Rendered, kw_only=True):
    """`POST /v1/score`."""

    prefix: Prefix | None = None
    token_ids: list[int] | None = None
    text: str | None = None
    top_logprobs: int | None = None
    features: list[str] | None = None
    end_of_turn: bool | None = None


class ChooseRequest(Rendered, kw_only=True):
    """`POST /v1/choose`."""

    labels: list[list[str]]
    prefix: Prefix | None = None


class PoolingRequest(Rendered, kw_only=True):
    """`POST /pooling`."""

    input: str | None = None
    use_activation: bool | None = None


class TokenizeRequest(Rendered, kw_only=True):
    """`POST /tokenize`."""

    prompt: str | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(_Model, kw_only=True):
    """`POST /detokenize`."""

    tokens: list[int]


def decode(body: bytes, kind: type[T]) -> T:
    """Read a request.

    Raises:
        ApiError: 400 for what is not JSON, not of this form, or not supported.
    """
    try:
        fields = msgspec.json.decode(body)
        if not isinstance(fields, dict):
            raise bad_request("the body must be a JSON object")
        for name, neutral in _NEUTRAL.items():
            value = fields.get(name)
            if value is not None and value not in neutral:
                raise bad_request(f"{name} is not supported by this server", name)
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        path = text.rpartition("`$.")[2].rstrip("`") if "`$." in text else None
        raise bad_request(text, path) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from error


def within(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number that is not between two bounds (both allowed).

    Raises:
        ApiError: 400 that names the field.
    """
    if not low <= value <= high:
        bound = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        raise bad_request(f"{name} must be {bound}, got {value}", name)


def check_ids(name: str, ids: list[int], vocabulary: int) -> None:
    """Refuse ids outside the vocabulary.

    Raises:
        ApiError: 400 that names the field and the first such id.
    """
    for token in ids:
        if not 0 <= token < vocabulary:
            text = f"{name} holds the token id {token}, which is out of vocabulary ({vocabulary})"
            raise bad_request(text, name)
