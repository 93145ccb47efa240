"""A server whose replies would take all the memory there is."""

import contextlib
import gzip
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Final

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_MIB: Final = 1 << 20
_PART: Final = b" " * _MIB
# Inflates to 64 MiB; members of gzip follow one another.
_MEMBER: Final = gzip.compress(bytes(64 * _MIB))


def _chunked(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(part), part)


def endless_chunks() -> Iterator[bytes]:
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    while True:
        yield _chunked(_PART)


def no_length() -> Iterator[bytes]:
    yield HEAD + b"Connection: close\r\n\r\n"
    while True:
        yield _PART


def stated_length() -> Iterator[bytes]:
    yield HEAD + b"Content-Length: 9000000000000000000\r\n\r\n"
    while True:
        yield _PART


def endless_error() -> Iterator[bytes]:
    yield b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield _chunked(_PART)


def endless_gzip() -> Iterator[bytes]:
    """6.5 MB of gzip that hold 6.4 GiB, and so on."""
    yield HEAD + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield _chunked(_MEMBER)


def refused_gzip() -> Iterator[bytes]:
    yield b"HTTP/1.1 400 Oh\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield _chunked(_MEMBER)


def endless_head() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        yield b"X-More: " + b"a" * 4000 + b"\r\n"


def endless_trailers() -> Iterator[bytes]:
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    while True:
        yield b"X-More: " + b"a" * 4000 + b"\r\n"


def many_objects() -> Iterator[bytes]:
    """Valid JSON of the length that is allowed, of which each three bytes become an object."""
    body = b'{"choices":[' + b"{}," * (20 * _MIB) + b"{}]}"
    yield HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    yield body


def deep() -> Iterator[bytes]:
    body = b'{"choices":' + b"[" * (60 * _MIB)
    yield HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    yield body


ATTACKS: Final[dict[str, Callable[[], Iterator[bytes]]]] = {
    attack.__name__: attack
    for attack in (
        endless_chunks, no_length, stated_length, endless_error, endless_gzip, refused_gzip,
        endless_head, endless_trailers, many_objects, deep,
    )
}  # fmt: skip
ENDLESS: Final = [name for name in ATTACKS if name not in ("many_objects", "deep")]


@contextlib.contextmanager
def attacking(attack: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """Answer every request with an attack, from threads; the server's URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                while b"\r\n\r\n" not in self.request.recv(1 << 16):
                    pass
                for part in attack():
                    self.request.sendall(part)
                while self.request.recv(1 << 16):
                    pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 100

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)
