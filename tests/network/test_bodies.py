"""Bodies of replies are bounded one by one and together."""

import asyncio
import gzip
import random
from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import network
from orchestrator.network import FREE_BYTES, Ledger, collect
from orchestrator.records import Failure
from tests.network.watched import Watched

TEXT = b"some words, said again and again; " * 4000


async def stream(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("encoding", ["", "identity", "Identity"])
async def test_a_body_is_its_parts_together(encoding: str) -> None:
    assert await collect(stream(cut(TEXT, 1000)), "s", encoding) == TEXT


@pytest.mark.parametrize("size", [1, 17, 10**6])
async def test_gzip_is_inflated(size: int) -> None:
    assert await collect(stream(cut(gzip.compress(TEXT), size)), "s", "gzip") == TEXT


async def test_no_body_is_an_empty_one_whatever_its_encoding() -> None:
    # Else an error status without a body would be lost, and retried as a broken connection.
    assert await collect(stream([]), "s", "gzip") == b""


async def test_members_of_gzip_follow_one_another() -> None:
    parts = cut(gzip.compress(TEXT) + gzip.compress(b"!"), 100)
    assert await collect(stream(parts), "s", "x-gzip") == TEXT + b"!"


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_a_body_may_be_as_long_as_the_limit_and_no_longer(encoding: str) -> None:
    data = gzip.compress(TEXT) if encoding else TEXT
    assert await collect(stream([data]), "s", encoding, len(TEXT)) == TEXT
    failure = await collect(stream([data]), "s", encoding, len(TEXT) - 1)
    assert isinstance(failure, Failure)
    assert (failure.cause, failure.permanent) == ("unparseable", True)
    assert "larger than" in failure.message


async def test_gzip_that_breaks_off_is_a_failure_of_the_connection() -> None:
    failure = await collect(stream([gzip.compress(TEXT)[:-9]]), "s", "gzip")
    assert failure == Failure("connection", "the reply ended early")


@pytest.mark.parametrize("size", [1, 17, 10**6])
@pytest.mark.parametrize("more", [b"", gzip.compress(b"!")], ids=["end", "member"])
async def test_zeros_behind_gzip_are_padding(size: int, more: bytes) -> None:
    # gzip(1) takes them too: a tape's last block is filled with them.
    parts = cut(gzip.compress(TEXT) + bytes(1000) + more, size)
    assert await collect(stream(parts), "s", "gzip") == TEXT + (b"!" if more else b"")


async def endless(beginning: bytes, part: bytes) -> AsyncIterator[bytes]:
    yield beginning
    for _ in range(100_000):
        yield part
    pytest.fail("read without end")


@pytest.mark.parametrize("part", [bytes(1000), gzip.compress(b"") * 50], ids=["zeros", "members"])
async def test_padding_and_empty_members_without_end_are_refused(part: bytes) -> None:
    failure = await collect(endless(gzip.compress(TEXT), part), "s", "gzip", len(TEXT))
    assert isinstance(failure, Failure)
    assert (failure.cause, failure.permanent) == ("unparseable", True)


async def test_what_gzip_can_not_shrink_may_be_as_long_as_the_limit() -> None:
    noise = random.Random(1).randbytes(1 << 20)
    for level in (0, 9):
        parts = cut(gzip.compress(noise, level), 10_000)
        assert await collect(stream(parts), "s", "gzip", len(noise)) == noise


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(TEXT) + b"rest"])
async def test_what_is_no_gzip_is_a_failure(data: bytes) -> None:
    failure = await collect(stream([data]), "s", "gzip")
    assert isinstance(failure, Failure)
    assert failure.cause == "connection"


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip", "chunked"])
async def test_another_encoding_is_refused_unread(encoding: str) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError
        yield b""

    assert await collect(never(), "s", encoding) == network.UNASKED_ENCODING


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), min_size=1, max_size=12),
    st.integers(0, 20),
    st.randoms(use_true_random=False),
)
def test_some_reply_may_always_be_read_and_few_bytes_are_held(sizes, most, choose) -> None:
    unit = FREE_BYTES + 1
    held = [0] * len(sizes)
    unread = [n for _, n in sizes]

    async def read() -> Ledger:
        ledger = Ledger(most * unit)
        holding: dict[int, asyncio.Task[None]] = {}
        while any(unread):
            await settled()
            ready = [n for n, left in enumerate(unread) if left and may_go_on(holding, n)]
            assert ready
            body = choose.choice(ready)
            held[body] += unit
            unread[body] -= 1
            assert ledger.n_bytes <= (most + sum(n for _, n in sizes)) * unit
            if unread[body]:
                held_on = ledger.hold(body, sizes[body][0], held[body])
                holding[body] = asyncio.ensure_future(held_on)
            else:
                held[body] = 0
                ledger.release(body, sizes[body][0])
            # What is over the limit belongs to one body of each server and one part of each other.
            over = sum(max(n - unit, 0) for n in held) - most * unit
            assert over <= 3 * 12 * unit
        assert all(task.done() for task in holding.values())
        return ledger

    assert asyncio.run(read()).n_bytes == 0


async def settled() -> None:
    """Until tasks that were made, or may go on, have come to where they wait."""
    for _ in range(3):
        await asyncio.sleep(0)


def may_go_on(holding: dict[int, asyncio.Task[None]], body: int) -> bool:
    return body not in holding or holding[body].done()


async def test_a_server_that_holds_all_the_room_does_not_keep_another_from_being_read() -> None:
    ledger, long = Ledger(10 * FREE_BYTES), 3 * FREE_BYTES
    slow = [asyncio.ensure_future(ledger.hold(f"slow {n}", "slow", long)) for n in range(4)]
    await settled()
    assert [task.done() for task in slow] == [True, True, True, True]
    await ledger.hold("other", "fast", long)
    await ledger.hold("other", "fast", 2 * long)
    another = asyncio.ensure_future(ledger.hold("another", "fast", long))
    await settled()
    assert not another.done()
    ledger.release("other", "fast")
    await settled()
    assert another.done()


async def test_readers_wait_for_room_and_all_are_read(monkeypatch) -> None:
    part = bytes(FREE_BYTES)
    watched = Watched(8 * FREE_BYTES)
    monkeypatch.setattr(network, "ledger", lambda: watched)

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(6):
            await asyncio.sleep(0)
            yield part

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(collect(slow(), "s")) for _ in range(20)]
    assert all(task.result() == part * 6 for task in tasks)
    # Of 120 parts: each reader has one that is free, and one that made it wait.
    assert watched.peak <= (8 + 2 * 20) * FREE_BYTES
    assert watched.n_bytes == 0


async def test_a_reader_that_is_cancelled_gives_its_room_back(monkeypatch) -> None:
    ledger = Ledger(FREE_BYTES)
    monkeypatch.setattr(network, "ledger", lambda: ledger)

    async def stalled() -> AsyncIterator[bytes]:
        yield bytes(4 * FREE_BYTES)
        await asyncio.Event().wait()

    task = asyncio.ensure_future(collect(stalled(), "s"))
    await asyncio.sleep(0)
    assert ledger.n_bytes == 4 * FREE_BYTES
    task.cancel()
    await asyncio.wait([task])
    assert ledger.n_bytes == 0
