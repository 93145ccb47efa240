"""Reply bodies of any server -> what the checks look at, and which server it is. Never raises."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchestrator.records import Failure
from orchestrator.wire import failures
from orchestrator.wire.answers import Alternative
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

    @property
    def failure(self) -> Failure | None:
        """The failure in the reply; None where something was answered that is no error."""
        if self.status == 200:
            return None if self.table() else Failure("unparseable", self.words, status=200)
        if self.status == 0:
            return Failure("connection", self.words)
        return failures.classify(self.status, self.body, {})

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


class Position(msgspec.Struct, frozen=True):
    """One drawn token and the alternatives that were listed with it."""

    drawn: Alternative
    top: tuple[Alternative, ...]

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


def _listed(entry: object) -> Alternative:
    if not isinstance(entry, dict):
        return Alternative()
    value, token = entry.get("logprob"), text_in(entry, "token")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    as_id = _AS_ID.fullmatch(token)
    given = entry.get("id")
    token_id = int(as_id[1]) if as_id else given if _is_id(given) else None
    number = float(value or 0) if is_number else math.nan
    # Not a number fails the comparison too.
    logprob = number if _SENTINEL < number < math.inf else None
    return Alternative(token, logprob, token_id)


def ids_in(value: object) -> tuple[int, ...] | None:
    """A list of ids; None for anything else."""
    if not isinstance(value, list) or not all(map(_is_id, value)):
        return None
    return tuple(value)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT


# Identification of the server behind an address, by the routes that answer.
#
# Source: the routes of vLLM 0.32, SGLang 0.5.23, TGI 3.3 and llama.cpp's server; see
# docs/servers.md.


PATHS: Final = (
    "/version", "/server_info", "/get_server_info", "/info", "/props", "/api/version",
    "/v1/models",
)  # fmt: skip
"""Routes to GET; `identify` takes the replies by these paths."""

_OWNERS: Final = {
    "orchestrator-embedded": "embedded",
    "orchestrator-fake": "fake",
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
}


def identify(replies: Mapping[str, HttpReply]) -> str:
    """The kind of a server; "openai" for one that is only known to be compatible.

    Args:
        replies: By path; paths that did not answer may be missing.
    """
    tables = {path: reply.table() for path, reply in replies.items() if reply.status == 200}
    version = tables.get("/version", {})
    if version.get("server") == "orchestrator-embedded":
        return "embedded"
    if text_in(version, "version").startswith("fake-"):
        return "fake"
    models = tables.get("/v1/models", {}).get("data")
    first = models[0] if isinstance(models, list) and models else {}
    if isinstance(first, dict) and (owner := _OWNERS.get(text_in(first, "owned_by"))) is not None:
        return owner
    info = tables.get("/info", {})
    told = {
        "sglang": bool(tables.get("/server_info") or tables.get("/get_server_info")),
        "tgi": "model_id" in info and ("max_total_tokens" in info or "max_input_tokens" in info),
        "llamacpp": "default_generation_settings" in tables.get("/props", {}),
        "ollama": "version" in tables.get("/api/version", {}),
        "vllm": "version" in version,
    }
    return next((kind for kind, is_it in told.items() if is_it), "openai")


def model_names(models: HttpReply | None) -> tuple[str, ...]:
    """The models that a server lists, in its order."""
    data = models.table().get("data") if models is not None and models.status == 200 else None
    entries = data if isinstance(data, list) else []
    named = (text_in(entry, "id") for entry in entries if isinstance(entry, dict))
    return tuple(name for name in named if name)


def context_length(replies: Mapping[str, HttpReply], model: str) -> int | None:
    """Tokens of the longest prompt and answer, where the server says; None where it does not."""
    models = replies.get("/v1/models")
    data = models.table().get("data") if models is not None else None
    for entry in data if isinstance(data, list) else ():
        if isinstance(entry, dict) and entry.get("id") == model:
            length = entry.get("max_model_len")
            if type(length) is int:
                return length
    props = replies.get("/props")
    settings = props.table().get("default_generation_settings") if props is not None else None
    length = settings.get("n_ctx") if isinstance(settings, dict) else None
    info = replies.get("/info")
    length = length or (info.table().get("max_total_tokens") if info is not None else None)
    return length if type(length) is int else None
