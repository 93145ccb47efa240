"""Requests that every route of a server of ours must survive, and the replies that they may get."""

import json
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

KEY = "secret-key"
OPEN = "/health"
_LARGE = 1 << 20
_CHUNK = b"%x\r\n%s\r\n" % (1 << 16, b" " * (1 << 16))


def _head(method: str, path: str, *lines: str, key: str = KEY) -> bytes:
    secret = [f"Authorization: Bearer {key}"] if key else []
    text = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *secret, *lines])
    return text.encode() + b"\r\n\r\n"


def _sized(method: str, path: str, body: bytes, key: str = KEY) -> bytes:
    return _head(method, path, f"Content-Length: {len(body)}", key=key) + body


def _chunked(method: str, path: str, *chunks: bytes) -> bytes:
    return _head(method, path, "Transfer-Encoding: chunked") + b"".join(chunks) + b"0\r\n\r\n"


def _small() -> bytes:
    body = json.dumps({"model": "nobody"}).encode()
    return b"%x\r\n%s\r\n" % (len(body), body)


Request = Callable[[str, str], bytes]
KEYLESS: dict[str, Request] = {
    "no key": lambda method, path: _sized(method, path, b"{}", key=""),
    "wrong key": lambda method, path: _sized(method, path, b"{}", key="sk-wrong"),
    "no key, endless": lambda method, path: _head(
        method, path, "Transfer-Encoding: chunked", key=""
    ),
    "key in the query": lambda method, path: _sized(method, f"{path}?key={KEY}", b"{}", key=""),
}
"""Requests that only an open path may answer; 411 is for who takes no chunks."""

HOSTILE: dict[str, Request] = {
    "no length": lambda method, path: _head(method, path),
    "chunked": lambda method, path: _chunked(method, path, _small()),
    "huge, chunked": lambda method, path: _chunked(method, path, *[_CHUNK] * (_LARGE // 2**16 + 1)),
    "huge, stated": lambda method, path: _head(method, path, f"Content-Length: {10**12}"),
    "malformed length": lambda method, path: _head(method, path, "Content-Length: -1"),
    "malformed JSON": lambda method, path: _sized(method, path, b'{"model": '),
    "deep JSON": lambda method, path: _sized(method, path, b"[" * 100_000),
    "not UTF-8": lambda method, path: _sized(method, path, b'{"model": "\xff"}'),
    "another type": lambda method, path: _sized(method, path, b"[1]"),
    "numbers": lambda method, path: _sized(method, path, b'{"model": 1e999, "n": -1e999}'),
    "long head": lambda method, path: _head(method, path, "X-Long: " + "x" * 200_000),
}
"""Requests with the key that are not what a client of ours sends."""


def status_of(url: str, request: bytes) -> int:
    """Send bytes as they are; the reply's status, 0 where the connection ends without one."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        try:
            connection.sendall(request)
            line = b""
            while b"\r\n" not in line and (part := connection.recv(4096)):
                line += part
        except ConnectionError:
            return 0
    return int(line.split()[1]) if line else 0


def faults(url: str, routes: dict[str, str]) -> Iterator[str]:
    """Check every route, and one that does not exist, against every request; what is wrong."""
    for path, method in {**routes, "/nowhere": "GET", "/v1/nowhere": "POST"}.items():
        for name, request in KEYLESS.items():
            status = status_of(url, request(method, path))
            if path != OPEN and status not in {401, 411}:
                yield f"{method} {path}, {name}: {status}"
        for name, request in HOSTILE.items():
            status = status_of(url, request(method, path))
            # A page takes no body, so that only what is asked of a model must be refused.
            allowed = range(400, 500) if method == "POST" else range(200, 500)
            if (status and status not in allowed) or status == 401:
                yield f"{method} {path}, {name}: {status}"
            if name == "huge, stated" and status not in {413, 0}:
                yield f"{method} {path}, {name}: {status}"
        # Not every dialect has it.
        if status_of(url, _sized("GET", OPEN, b"")) not in {200, 404}:
            yield f"{method} {path}: the server is gone"
