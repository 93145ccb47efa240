"""Waits until a server answers under all its names."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from launch._spec import ServerSpec
from orchestrator import network
from orchestrator.records import Failure
from orchestrator.wire import replies

if TYPE_CHECKING:
    import aiohttp

    from launch._supervisor import Server


async def waited(server: "Server", spec: ServerSpec) -> str | None:
    """Wait until a server is ready: None then, else what it lacked, to be added to the cause."""
    # Imported here: checking a recipe loads its launch kinds, and connects to nothing.
    import aiohttp  # noqa: PLC0415

    await server.read_pid()
    lacks, wait_s = f"none of its processes listens at {server.base_url}", 0.05
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(spec.start_timeout_s),
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {server.api_key}"},
                timeout=aiohttp.ClientTimeout(total=5.0),
                auto_decompress=False,
            ) as client,
        ):
            is_proved = await server.is_proved()
            while server.exit_code() is None:
                # The key goes to nobody else.
                if is_proved:
                    lacks = await _lacking(server.base_url, spec.names, client)
                if not lacks and server.exit_code() is None:
                    return None
                await asyncio.sleep(wait_s)
                wait_s = min(1.0, wait_s * 1.5)
    return f" ({lacks})" if lacks and server.exit_code() is None else ""


async def _lacking(base_url: str, names: tuple[str, ...], client: "aiohttp.ClientSession") -> str:
    """Return what a server lacks to be ready; empty if nothing.

    Args:
        base_url: Of the server.
        names: Models that it must list.
        client: That has the server's key.
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
