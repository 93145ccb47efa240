"""One HTTP/1.1 connection that carries one request at a time, as an `asyncio.Protocol`.

No task, timer or stream object belongs to a request: bytes are written at once, the reply is put
together by callbacks of the parser (httptools, which is llhttp), and one future wakes who asked.
"""

import asyncio
import errno
import select
from collections.abc import Callable
from typing import Any, Final, TypeVar

import httptools

from backends import _silence
from backends._transport import KEPT_HEADERS, REPEATED, Read, Repeats, Reply, whole
from orchestrator.network import FREE_BYTES, UNASKED_ENCODING, Ledger, ledger
from orchestrator.records import Failure
from orchestrator.wire import failures
from orchestrator.wire.replies import too_large

T = TypeVar("T")
# Requests that may wait for one another: so many that few writes wake the server, so few that it
# does not wait for work meanwhile.
_MOST_TOGETHER: Final = 8
_CLOSED: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
_KEEPALIVE: Final = _silence.keepalive_options()
_KEPT: Final = {name.encode(): name for name in KEPT_HEADERS}
_MAX_HEAD_BYTES: Final = 64 * 1024
# Chunked bodies are longer on the wire than they are: six bytes of frame to one, if each is alone.
_WIRE_FACTOR: Final = 8
_INTERIM: Final = range(100, 200)
_SWITCHING_PROTOCOLS: Final = 101
_OK: Final = 200


class Sending:
    """Writes the requests of one turn of the event loop together.

    A write wakes a server that sleeps, which takes longer than to write. Of several in a row only
    the first does so.
    """

    def __init__(self) -> None:
        self._waiting: list[Connection] = []

    def put(self, connection: "Connection") -> None:
        """Have a connection write its request before the loop's next turn ends."""
        self._waiting.append(connection)
        if len(self._waiting) >= _MOST_TOGETHER:
            self._write()
        elif len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.write()


class Connection(asyncio.Protocol):
    """A connection; `ask` may be called again once its last call has returned a reply.

    Args:
        released: Called when the connection may carry another request.
        lost: Called when it is closed, whoever closed it.
        sending: Tells when to write.
        repeats: The server's last replies.
        max_body_bytes: Larger replies are failures.
        secret: Kept out of messages.

    Attributes:
        deadline: When the request in flight must be answered, in the loop's time.
        idle_since: When the last one was.
    """

    def __init__(
        self,
        released: Callable[["Connection"], None],
        lost: Callable[["Connection"], None],
        sending: Sending,
        repeats: Repeats,
        max_body_bytes: int,
        secret: str,
    ) -> None:
        self._released = released
        self._lost = lost
        self._sending = sending
        self._repeats = repeats
        self._max_body_bytes = max_body_bytes
        self._secret = secret
        self._parser: httptools.HttpResponseParser | None = None
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Any] | None = None
        self._read: Callable[[Reply], Any] = whole
        self._asked = self._unsent = b""
        self._readable: select.poll | None = None
        self._n_bytes = 0
        self._watch = _silence.Watch()
        self._ledger: Ledger | None = None
        self.deadline = 0.0
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        """Forget the last reply."""
        self._status = 0
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        self._n_body_bytes = 0
        self._is_framed = False
        self._has_head = False
        self._may_go_on = False
        self._whole: Reply | None = None
        self._has_excess = False
        self._failure: Failure | None = None

    async def ask(self, request: bytes, deadline: float, read: Read[T]) -> T | Failure | None:
        """Send a request and wait for its end; None where the connection closed without a word.

        Args:
            request: Head and body.
            deadline: In the loop's time. Who made the connection watches it and calls `fail`.
            read: Called with the reply as soon as it is whole.
        """
        if self._transport is None or self._transport.is_closing():
            return None
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T | Failure | None] = loop.create_future()
        self._waiter = waiter
        self._read = read
        self._n_bytes = 0
        self.deadline = deadline
        self._asked = self._unsent = request
        self._sending.put(self)
        try:
            return await waiter
        except asyncio.CancelledError:
            # Where the reply came first the connection is somebody else's by now.
            if waiter.cancelled():
                self.abort()
            raise

    def write(self) -> None:
        """Write the request; called by `Sending`."""
        request, self._unsent = self._unsent, b""
        if self._transport is None or self._transport.is_closing():
            return
        # What came before the request answers nobody, or is the end of the connection.
        if self._readable is not None and self._readable.poll(0):
            self.abort()
        else:
            self._transport.write(request)

    def fail(self, failure: Failure) -> None:
        """End the request in flight, and the connection: what still comes belongs to nobody."""
        self._settle(failure)
        self.abort()

    def is_silent(self, now: float) -> bool:
        """Return whether the server's machine no longer answers; to be asked every few seconds."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return sock is not None and self._watch.is_silent(sock, now)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport  # type: ignore[assignment]  # that of a TCP connection
        sock = transport.get_extra_info("socket")
        if sock is not None:
            _silence.set_options(sock, _KEEPALIVE)
            self._readable = select.poll()
            self._readable.register(sock.fileno(), select.POLLIN)
        self._parser = httptools.HttpResponseParser(self)
        self._ledger = ledger()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._waiter is None or self._waiter.done() or self._parser is None or self._unsent:
            # Nobody asked: such as a last word before an idle connection is closed.
            self.abort()
            return
        self._n_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._failure = self._failure or self._malformed(str(error))
        if not self._has_head and self._n_bytes > _MAX_HEAD_BYTES:
            self._failure = self._malformed("its head does not end")
        elif self._n_body_bytes > self._max_body_bytes:
            self._failure = too_large(self._n_body_bytes, self._max_body_bytes)
        elif self._n_bytes > _WIRE_FACTOR * self._max_body_bytes + _MAX_HEAD_BYTES:
            self._failure = self._malformed("it is mostly frames")
        if self._failure is not None:
            self.fail(self._failure)
        elif self._whole is not None:
            self._end(self._whole)
        elif self._n_body_bytes > FREE_BYTES:
            self._hold()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        # The parser holds this object: without the cycle both go at once.
        self._parser = None
        if self._ledger is not None:
            self._ledger.release(self)
        self._lost(self)
        number = getattr(exc, "errno", None)
        if number in _silence.UNREACHABLE:
            self._settle(Failure("unreachable", failures.clean(str(exc), self._secret)))
        elif self._has_head and not self._is_framed and exc is None:
            # A reply that does not say how long it is ends with the connection.
            self._hand_over(self._reply())
        elif self._n_bytes:
            self._settle(Failure("connection", "the reply ended early"))
        elif exc is None or number in _CLOSED:
            self._settle(None)
        else:
            self._settle(Failure("connection", failures.clean(str(exc), self._secret)))

    # -- called by the parser --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A reply begins."""
        self._has_excess = self._whole is not None

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after the body."""
        if self._has_head:
            return
        name = name.lower()
        if name in _KEPT:
            self._headers[_KEPT[name]] = value.decode("latin-1")
        elif name == b"content-length":
            self._is_framed = True
            if int(value) > self._max_body_bytes:
                self._failure = too_large(int(value), self._max_body_bytes)
        elif name == b"transfer-encoding":
            self._is_framed = True
            if value.lower() != b"chunked":
                self._failure = UNASKED_ENCODING
        elif name == b"content-encoding" and value.lower() != b"identity":
            self._failure = UNASKED_ENCODING

    def on_headers_complete(self) -> None:
        """The body begins."""
        if self._parser is not None:
            self._status = self._parser.get_status_code()
            self._may_go_on = self._parser.should_keep_alive()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._n_body_bytes += len(body)
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """The reply is whole, unless it only said that one will come."""
        if self._status in _INTERIM and self._status != _SWITCHING_PROTOCOLS:
            self._begin()
        elif not self._has_excess:
            self._whole = self._reply()

    # -- inside ----------------------------------------------------------------------------------

    def _hold(self) -> None:
        """Count what came of a long reply, and read on when there is room."""
        if self._ledger is None or self._transport is None:
            return
        # What writes together belongs to one server.
        if not self._ledger.hold(self, self._sending, self._n_body_bytes, self._resume):
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _end(self, reply: Reply) -> None:
        if reply.status == _OK and self._repeats.is_repeat(self._asked, reply.body):
            self.fail(REPEATED)
            return
        keep = (
            self._may_go_on
            and not self._has_excess
            and self._transport is not None
            # Answered before all was sent: the rest would be taken for the next request.
            and not self._transport.get_write_buffer_size()
        )
        self._begin()
        self._hand_over(reply)
        if self._ledger is not None:
            self._ledger.release(self)
        if keep:
            self._released(self)
        else:
            self.abort()

    def _reply(self) -> Reply:
        return Reply(self._status, self._headers, b"".join(self._chunks))

    def _hand_over(self, reply: Reply) -> None:
        try:
            end = self._read(reply)
        # The event loop would only log it, and who asked wait for ever; it is raised there.
        except Exception as error:  # noqa: BLE001
            waiter, self._waiter = self._waiter, None
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
        else:
            self._settle(end)

    def _settle(self, end: object) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(end)

    def _malformed(self, said: str) -> Failure:
        return Failure("connection", f"no valid HTTP: {failures.clean(said, self._secret)}")
