"""Search for servers of language models on this machine, by the ports that they use by default."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from orchestrator.probing.replies import PATHS, identify, model_names
from orchestrator.runner.probing.http import Http

USUAL: Final[Mapping[int, str]] = {
    8000: "vLLM, embedded server",
    8001: "second server",
    8080: "llama.cpp, TGI in a container",
    9931: "newer llama.cpp",
    3000: "TGI",
    30000: "SGLang",
    11434: "Ollama",
    1234: "LM Studio",
}
"""Ports that are searched, and the servers that listen there by default."""

_MODELS: Final = "/v1/models"
_KEYLESS: Final = frozenset({401, 403})
# Servers on this machine list their models at once, also when they are busy.
_TIMEOUT_S: Final = 3.0


class Found(msgspec.Struct, frozen=True):
    """A server that answered, or the reason why an address is of no use.

    Attributes:
        base_url: Its address, without `/v1`.
        kind: As `identify` names it; "" if the server lists no models.
        models: Names that it lists.
        fault: Cause, if there are no models; "" for a server without a fault.
        is_free: Nothing listens there.
    """

    base_url: str
    kind: str = ""
    models: tuple[str, ...] = ()
    fault: str = ""
    is_free: bool = False


async def scan(urls: Sequence[str], api_key: str = "") -> list[Found]:
    """Ask servers which models they have, all at the same time.

    Args:
        urls: Addresses; a trailing `/v1` may be there.
        api_key: Sent to each of them; "" for none.

    Returns:
        One entry for each address, in the order given. Nothing is raised for a server's fault.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_look(url.rstrip("/").removesuffix("/v1"), api_key)) for url in urls
        ]
    return [task.result() for task in tasks]


async def _look(url: str, api_key: str) -> Found:
    async with Http(url, api_key, _TIMEOUT_S) as http:
        listed = await http.get(_MODELS)
        if listed.status == 0:
            return Found(url, fault=listed.words, is_free=True)
        if listed.status in _KEYLESS:
            return Found(url, fault=f"needs an API key (status {listed.status})")
        models = tuple(dict.fromkeys(model_names(listed)))
        if not models:
            return Found(url, fault=f"lists no models at {_MODELS} (status {listed.status})")
        replies = {path: await http.get(path) for path in PATHS if path != _MODELS}
        return Found(url, identify({**replies, _MODELS: listed}), models)
