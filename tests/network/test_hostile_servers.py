"""Every client of ours against servers that send without end."""

import asyncio
import tracemalloc
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from backends._aiohttp_transport import AiohttpTransport
from backends._transport import Reply, Transport
from backends.openai.transport import OpenaiTransport
from orchestrator import network
from orchestrator.backend import Endpoint
from orchestrator.network import FREE_BYTES
from orchestrator.records import Failure
from orchestrator.runner.models.asking import Http
from tests.network.hostile import ATTACKS, ENDLESS, HEAD, attacking
from tests.network.watched import Watched
from tests.whole import whole

T = TypeVar("T")
KINDS = (AiohttpTransport, OpenaiTransport)
MIB = 1 << 20
LIMIT = MIB
# The server is in this process too, with a megabyte of each connection before it is sent.
ROOM = 24 * MIB


async def peak_of(asking: Awaitable[T]) -> tuple[int, T]:
    """The most memory that was taken meanwhile."""
    tracemalloc.start()
    try:
        async with asyncio.timeout(20):
            came = await asking
        return tracemalloc.get_traced_memory()[1], came
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", ENDLESS)
async def test_a_transport_reads_no_more_than_its_limit(kind, attack) -> None:
    with attacking(ATTACKS[attack]) as url:
        transport: Transport = kind(Endpoint(base_url=url, model="m"), max_body_bytes=LIMIT)
        peak, came = await peak_of(transport.post("/v1/x", b"{}", 5.0, whole))
        await transport.close()
    assert isinstance(came, Failure), came
    assert peak < ROOM


@pytest.mark.parametrize("attack", ENDLESS)
async def test_a_probe_reads_no_more_than_its_limit(attack) -> None:
    with attacking(ATTACKS[attack]) as url:
        async with Http(Endpoint(base_url=url, model="m"), timeout_s=5.0) as http:
            peak, came = await peak_of(http.get("/v1/models"))
    assert came.status == 0, came
    assert came.body
    assert peak < ROOM + network.CONTROL_BYTES


@pytest.mark.parametrize("kind", KINDS)
async def test_long_replies_that_come_together_are_not_all_held(kind, monkeypatch) -> None:
    n, body = 12, bytes(4 * FREE_BYTES)
    watched = Watched(2 * len(body))
    monkeypatch.setattr(network, "ledger", lambda: watched)

    def reply():
        yield HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
        yield body

    with attacking(reply) as url:
        transport = kind(Endpoint(base_url=url, model="m"))
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(transport.post("/x", b"{}", 10.0, whole)) for _ in range(n)]
        await transport.close()
    assert [one.result() for one in asked] == [Reply(200, {}, body)] * n
    assert watched.n_bytes == 0
    # Each connection may have read the part that made it wait, and one reply always goes on.
    assert watched.peak <= 3 * len(body) + n * 2 * FREE_BYTES
