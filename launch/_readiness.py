"""Finds out whether a server answers under all its names."""

from typing import TYPE_CHECKING, Final

from orchestrator import network
from orchestrator.records import Failure
from orchestrator.wire import replies

if TYPE_CHECKING:
    import aiohttp

_PROBE_TIMEOUT_S: Final = 5.0


def session(api_key: str) -> "aiohttp.ClientSession":
    """Return a client for the server with this key."""
    # Imported here: checking a recipe loads its launch kinds, and connects to nothing.
    import aiohttp  # noqa: PLC0415

    return aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {api_key}"},
        timeout=aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S),
        auto_decompress=False,
    )


async def lacking(base_url: str, names: tuple[str, ...], client: "aiohttp.ClientSession") -> str:
    """Return what a server lacks to be ready; empty if nothing.

    Args:
        base_url: Of the server.
        names: Models that it must list.
        client: From `session`.
    """
    import aiohttp  # noqa: PLC0415 (as above)

    try:
        async with client.get(f"{base_url}/health") as reply:
            if reply.status != 200:
                return f"/health answers {reply.status}"
        async with client.get(f"{base_url}/v1/models") as reply:
            if reply.status != 200:
                return f"/v1/models answers {reply.status}"
            encoding = reply.headers.get("Content-Encoding", "")
            chunks = reply.content.iter_any()
            body = await network.collect(chunks, base_url, encoding, network.CONTROL_BYTES)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return f"{base_url} does not answer: {type(error).__name__}"
    listed = body if isinstance(body, Failure) else replies.model_names(body)
    if isinstance(listed, Failure):
        return f"/v1/models: {listed.message}"
    missing = [name for name in names if name not in listed]
    return f"/v1/models does not list {', '.join(missing)}" if missing else ""
