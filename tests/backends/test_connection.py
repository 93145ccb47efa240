"""One connection of our own HTTP client, fed by hand."""

import asyncio
import socket
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from backends._connection import Connection, Sending
from backends._transport import Repeats, Reply, whole
from tests.backends.test_direct_transport import CHUNKED, PLAIN


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(1, len(CHUNKED) - 1), max_size=6, unique=True).map(sorted))
def test_where_the_network_cuts_a_reply_does_not_matter(cuts):
    edges = [0, *cuts, len(CHUNKED)]
    reply = fed(*(CHUNKED[a:b] for a, b in pairwise(edges)))
    assert reply == Reply(429, {"retry-after": "7"}, b"abcdefg")


class Wire(asyncio.Transport):
    """The other end of a connection, in memory."""

    def __init__(self):
        super().__init__()
        self.is_aborted = False
        self.written = []

    def write(self, data):
        self.written.append(data)

    def abort(self):
        self.is_aborted = True

    def is_closing(self):
        return self.is_aborted

    def get_write_buffer_size(self):
        return 0


def fed(*parts):
    """Feed bytes to a connection and return the reply."""

    async def ask():
        connection = Connection(lambda _: None, lambda _: None, Sending(), Repeats(), 2**20, "")
        connection.connection_made(Wire())
        asked = asyncio.ensure_future(connection.ask(b"", 0.0, whole))
        await asyncio.sleep(0)
        for part in parts:
            connection.data_received(part)
        return await asyncio.wait_for(asked, 1)

    return asyncio.run(ask())


def on_wires(n):
    """Connections that share when they write, with their other ends."""
    sending, wires = Sending(), [Wire() for _ in range(n)]
    for wire in wires:
        connection = Connection(lambda _: None, lambda _: None, sending, Repeats(), 2**20, "")
        connection.connection_made(wire)
        yield connection, wire


async def test_requests_of_one_turn_are_written_in_the_next_and_many_of_them_at_once():
    ends = list(on_wires(11))
    asked = [
        asyncio.ensure_future(one.ask(b"%d" % n, 0.0, whole)) for n, (one, _) in enumerate(ends)
    ]
    await asyncio.sleep(0)
    assert [wire.written for _, wire in ends] == [[b"%d" % n] for n in range(8)] + [[]] * 3
    await asyncio.sleep(0)
    assert [wire.written for _, wire in ends] == [[b"%d" % n] for n in range(11)]
    for connection, _ in ends:
        connection.data_received(PLAIN)
    assert [await one for one in asked] == [Reply(200, {}, b"ok")] * 11


async def test_what_comes_before_the_request_is_written_is_no_reply():
    ((connection, wire),) = on_wires(1)
    asked = asyncio.ensure_future(connection.ask(b"x", 0.0, whole))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
    assert wire.is_aborted
    connection.connection_lost(None)
    assert await asked is None
    assert wire.written == []


async def test_what_came_before_the_loop_looked_is_no_reply_to_what_is_written_then():
    here, there = socket.socketpair()
    with there:
        released: list[Connection] = []
        made = Connection(released.append, lambda _: None, Sending(), Repeats(), 2**20, "")
        await asyncio.get_running_loop().create_connection(lambda: made, sock=here)
        asked = asyncio.ensure_future(made.ask(b"1", 0.0, whole))
        await asyncio.sleep(0.01)
        there.sendall(PLAIN)
        assert await asked == Reply(200, {}, b"ok")
        assert released == [made]
        there.sendall(PLAIN)
        assert await made.ask(b"2", 0.0, whole) is None
        assert there.recv(10) == b"1"


async def test_a_reply_is_read_before_another_one_is_received():
    read: list[Reply] = []
    ends = list(on_wires(2))
    asked = [asyncio.ensure_future(one.ask(b"x", 0.0, read.append)) for one, _ in ends]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for n, (connection, _) in enumerate(ends, 1):
        connection.data_received(PLAIN)
        assert len(read) == n
    assert [await one for one in asked] == [None, None]


def test_a_few_names_in_the_place_of_numbers_are_no_repeats():
    """A gateway may write one `id` in all replies of each of its servers."""
    repeats = Repeats()
    names = [b"a", b"a", b"b", b"a", b"b", b"b", b"a"]
    replies = [b'{"id": "%b", "text": "A"}' % name for name in names]
    found = [repeats.is_repeat(b"%d" % n, reply) for n, reply in enumerate(replies)]
    assert not any(found)
