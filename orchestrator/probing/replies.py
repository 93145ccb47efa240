"""Reply bodies of any server -> what the checks look at, and which server it is. Never raises."""

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

import msgspec

from orchestrator.records import UNKNOWN_ID, Failure
from orchestrator.wire import failures, replies
from orchestrator.wire.answers import Alternative, Answer, Entry, ListedEntry
from orchestrator.wire.failures import as_value
from orchestrator.wire.parsing import NO_USAGE, Decoder, Reply, loads, text_of
from orchestrator.wire.spelling import id_in

# Below this a number stands for minus infinity: vLLM writes -9999.0, others float32's lowest.
_SENTINEL: Final = -9000.0
_chat: Final = Decoder(Reply[Answer[ListedEntry]])


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

    def table(self) -> Mapping[str, Any]:
        """The body where it is a JSON object; else an empty one."""
        try:
            parsed = loads(self.body)
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}


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
    positions: tuple[ListedEntry, ...]
    n_prompt: int | None


def chat(reply: HttpReply) -> Chat | None:
    """A chat completion, its entries without numbers that are none; None where it is none."""
    found = as_value(_chat)(reply.body) if reply.status == 200 else None
    if found is None or isinstance(found, Failure) or not found.choices:
        return None
    answer = found.choices[0]
    if answer.message is None:
        return None
    content = (answer.logprobs and answer.logprobs.content) or ()
    for one in chain.from_iterable(map(_with_its_list, content)):
        # Not a number fails the comparison too.
        is_number = one.logprob is not None and _SENTINEL < one.logprob < math.inf
        one.logprob = one.logprob if is_number else None
        named = id_in(one.token)
        one.token, one.id = text_of(one.token), one.id if named == UNKNOWN_ID else named
    n_prompt = (found.usage or NO_USAGE).n_prompt or None
    ids = None if answer.token_ids is None else tuple(answer.token_ids)
    return Chat(text_of(answer.message.text), ids, tuple(content), n_prompt)


def _with_its_list(entry: ListedEntry) -> tuple[Entry | Alternative, ...]:
    return (entry, *entry.top_logprobs)


def listed(entry: ListedEntry) -> dict[str, float]:
    """Natural-log probabilities by the token's text, of what is listed with a number."""
    every = _with_its_list(entry)
    return {one.token: one.logprob for one in every if one.logprob is not None}


def text_in(table: Mapping[str, object], field: str) -> str:
    """A field that is a text; empty for anything else, since that may be of any size and depth."""
    found = table.get(field)
    return text_of(found) if isinstance(found, str) else ""


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
    is_there = models is not None and models.status == 200
    found = replies.model_names(models.body) if models is not None and is_there else ()
    return () if isinstance(found, Failure) else tuple(filter(None, map(text_of, found)))


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
