"""Reply bodies of any server -> what the checks look at. Never raises, never makes up."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchestrator.wire import failures
from orchestrator.wire.replies import MAX_COUNT, loads, text_of

# Below this a number stands for minus infinity: vLLM writes -9999.0, others float32's lowest.
_SENTINEL: Final = -9000.0
_AS_ID: Final = re.compile(r"token_id:([0-9]{1,9})")


class HttpReply(msgspec.Struct, frozen=True):
    """Status and body."""

    status: int
    body: bytes

    @property
    def words(self) -> str:
        """The message of an error body, on one line without control characters; fixed for a 200."""
        if self.status == 200:
            return "a reply without what was asked for"
        return failures.clean(failures.message_in(self.body))

    def json(self) -> object:
        """The body; None where it is no JSON."""
        try:
            return loads(self.body)
        except ValueError:
            return None

    def table(self) -> Mapping[str, Any]:
        """The body where it is a JSON object; else an empty one."""
        parsed = self.json()
        return parsed if isinstance(parsed, dict) else {}


class Listed(msgspec.Struct, frozen=True):
    """A token with its log-probability, as a reply lists it; `logprob` None where it gives none."""

    token: str
    logprob: float | None
    token_id: int | None = None
    has_bytes: bool = False


class Position(msgspec.Struct, frozen=True):
    """One drawn token and the alternatives that were listed with it."""

    drawn: Listed
    top: tuple[Listed, ...]

    def logprobs(self) -> dict[str, float]:
        """Natural-log probabilities by the token's text, of what is listed with a number."""
        listed = (self.drawn, *self.top)
        return {one.token: one.logprob for one in listed if one.logprob is not None}


class Chat(msgspec.Struct, frozen=True):
    """The parts of a chat completion that a probe uses.

    Attributes:
        text: What was said.
        token_ids: Of the drawn tokens; None where not given.
        positions: One for each drawn token; empty without log-probabilities.
        n_prompt: Prompt tokens as the server counts them; None where it does not.
    """

    text: str
    token_ids: tuple[int, ...] | None
    positions: tuple[Position, ...]
    n_prompt: int | None


def chat(reply: HttpReply) -> Chat | None:
    """A chat completion; None where the reply is none."""
    table = reply.table() if reply.status == 200 else {}
    choices = table.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return None
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    positions = tuple(_position(entry) for entry in content) if isinstance(content, list) else ()
    usage = table.get("usage")
    n_prompt = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return Chat(
        text=text_in(choice["message"], "content"),
        token_ids=ids_in(choice.get("token_ids")),
        positions=positions,
        n_prompt=n_prompt if _is_id(n_prompt) else None,
    )


def text_in(table: Mapping[str, object], field: str) -> str:
    """A field that is a text; empty for anything else, since that may be of any size and depth."""
    found = table.get(field)
    return text_of(found) if isinstance(found, str) else ""


def _position(entry: object) -> Position:
    top = entry.get("top_logprobs") if isinstance(entry, dict) else None
    return Position(_listed(entry), tuple(map(_listed, top)) if isinstance(top, list) else ())


def _listed(entry: object) -> Listed:
    if not isinstance(entry, dict):
        return Listed("", None)
    value, token = entry.get("logprob"), text_in(entry, "token")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    as_id = _AS_ID.fullmatch(token)
    given = entry.get("id")
    token_id = int(as_id[1]) if as_id else given if _is_id(given) else None
    number = float(value or 0) if is_number else math.nan
    # Not a number fails the comparison too.
    logprob = number if _SENTINEL < number < math.inf else None
    return Listed(token, logprob, token_id, isinstance(entry.get("bytes"), list))


def ids_in(value: object) -> tuple[int, ...] | None:
    """A list of ids; None for anything else."""
    if not isinstance(value, list) or not all(map(_is_id, value)):
        return None
    return tuple(value)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT
