"""Reply bodies -> `Generation`, `Scored`, `Choice` or `Failure`. Never raises, never makes up."""

from typing import Any, Final, Generic, TypeVar

import msgspec

from orchestrator.records import UNKNOWN_ID, Failure, Generation
from orchestrator.wire._columns import LEAST_BYTES, cut
from orchestrator.wire._native import choice, scored, scored_nothing
from orchestrator.wire.answers import Answer, Entry, ListedEntry, withheld
from orchestrator.wire.drawn import Reading, drawn
from orchestrator.wire.parsing import (
    MAX_BODY_BYTES,
    MAX_COUNT,
    NO_USAGE,
    Decoder,
    Usage,
    error_in,
    loads,
    text_of,
    too_large,
)

__all__ = [
    "MAX_BODY_BYTES", "MAX_COUNT", "UNKNOWN_ID", "Reading", "choice", "generation", "loads",
    "model_names", "scored", "scored_nothing", "text_of", "too_large", "version",
]  # fmt: skip


E = TypeVar("E", bound=Entry)


class _Chat(msgspec.Struct, Generic[E], gc=False):
    choices: list[Answer[E]] | None = None
    usage: Usage | None = None
    error: Any = None


class _Version(msgspec.Struct, gc=False):
    version: str = ""
    fingerprint: str = ""
    system_fingerprint: str = ""


class _Model(msgspec.Struct, gc=False):
    id: str = ""


class _Models(msgspec.Struct, gc=False):
    data: list[_Model] | None = None


_versions: Final = Decoder(_Version)
_models: Final = Decoder(_Models)
_chat: Final = Decoder(_Chat[Entry])
_listed_chat: Final = Decoder(_Chat[ListedEntry])


def generation(body: bytes, reading: Reading) -> Generation | Failure:
    """A drawn text from a chat completion.

    Failures: "unparseable", "no_logprobs", "no_answer" and "server_error" as of
    `orchestrator.wire.answers.missing`, and what an error in the reply says.
    """
    if reading.top and len(body) >= LEAST_BYTES and (found := _read_at_once(body, reading)):
        return found
    reply: _Chat[Any] | Failure = (_listed_chat if reading.top else _chat)(body, reading.secret)
    if isinstance(reply, Failure):
        return reply
    if reply.error or not reply.choices:
        return error_in(body, reading.secret)
    answer: Answer[Any] = reply.choices[0]
    if answer.message is None:
        return withheld(answer, reading.secret) or error_in(body, reading.secret)
    return drawn(answer, reply.usage or NO_USAGE, reading)


def _read_at_once(body: bytes, reading: Reading) -> Generation | Failure | None:
    """The same of a long reply, its alternatives read as columns; None where that can't be done."""
    found = cut(body) if len(body) <= MAX_BODY_BYTES else None
    if found is None:
        return None
    rest, listed = found
    reply = _chat(rest, reading.secret)
    if isinstance(reply, Failure) or reply.error or not reply.choices or len(reply.choices) > 1:
        return None
    answer = reply.choices[0]
    content = answer.logprobs and answer.logprobs.content
    if answer.message is None or not content or len(content) != len(listed.ids):
        return None
    return drawn(answer, reply.usage or NO_USAGE, reading, listed)


def version(body: bytes) -> tuple[str, str] | Failure:
    """Version and fingerprint that a server states; empty where it states none."""
    reply = _versions(body)
    if isinstance(reply, Failure):
        return reply
    return text_of(reply.version), text_of(reply.fingerprint or reply.system_fingerprint)


def model_names(body: bytes) -> tuple[str, ...] | Failure:
    """The names in a reply of `/v1/models`."""
    reply = _models(body)
    if isinstance(reply, Failure):
        return reply
    return tuple(model.id for model in reply.data or ())
