"""Identification of the server behind an address, by the routes that answer.

Source: the routes of vLLM 0.32, SGLang 0.5.23, TGI 3.3 and llama.cpp's server; see docs/servers.md.
"""

from collections.abc import Mapping
from typing import Final

from orchestrator.probing.replies import HttpReply, text_in

PATHS: Final = (
    "/version",
    "/server_info",
    "/get_server_info",
    "/info",
    "/props",
    "/api/version",
    "/v1/models",
)
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
