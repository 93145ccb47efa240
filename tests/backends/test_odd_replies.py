"""Odd replies of HTTP mean the same to both transports, and are told in our words."""

import gzip
import re
import zlib

import pytest

from backends._aiohttp_transport import AiohttpTransport
from backends._transport import Reply
from backends.openai.transport import OpenaiTransport
from orchestrator.records import Failure
from tests.backends.test_scripted_replies import HEAD, never_late, scripted
from tests.whole import whole

__all__ = ["never_late"]

BODY = b'{"ok": 1}'
GZIP = gzip.compress(BODY, mtime=0)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LARGE = b"x" * (2 << 20)
NOT_HTTP = "the reply is not HTTP"
EARLY = "the reply ended early"
NO_REPLY = "the server closed the connection before replying"
LARGER = "the reply is larger than 1 MiB"
NOT_GZIP = "the reply is not valid gzip"


def made(body, *headers, status="200 OK"):
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def packed(body, encoding="gzip"):
    return made(body, f"Content-Encoding: {encoding}")


ODD = {
    "chunk cut off": ([CHUNKED + b"5\r\nabc", None], EARLY),
    "no last chunk": ([CHUNKED + b"3\r\nabc\r\n", None], EARLY),
    "chunk of no size": ([CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n", None], NOT_HTTP),
    "chunk of negative size": ([CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n", None], NOT_HTTP),
    "chunk of huge size": ([CHUNKED + b"ffffffffffffffff\r\nabc\r\n", None], EARLY),
    "body too short": ([HEAD + b"Content-Length: 9\r\n\r\nabc", None], EARLY),
    "error cut off": ([b"HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\n{", None], EARLY),
    "two lengths": ([made(b"abcd", "Content-Length: 3"), None], NOT_HTTP),
    "negative length": ([HEAD + b"Content-Length: -1\r\n\r\nabc", None], NOT_HTTP),
    "length in words": ([HEAD + b"Content-Length: x\r\n\r\nabc", None], NOT_HTTP),
    "no version": ([b"SSH-2.0-OpenSSH_8.9\r\n\r\n", None], f"{NOT_HTTP}|{NO_REPLY}"),
    "other version": ([b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok", None], NOT_HTTP),
    "TLS": ([b"\x15\x03\x01\x00\x02\x02\x28", None], NOT_HTTP),
    "status of two digits": ([made(BODY, status="20 X"), None], NOT_HTTP),
    "header with NUL": ([made(BODY, "X: a\0b"), None], NOT_HTTP),
    "header without colon": ([made(BODY, "Xyz"), None], NOT_HTTP),
    "long header": ([made(BODY, "X: " + "y" * 9_000)], BODY),
    "huge header": ([made(BODY, "X: " + "y" * 200_000), None], NOT_HTTP),
    "endless headers": ([HEAD + b"X: y\r\n" * 30_000, None], NOT_HTTP),
    "header beyond ASCII": ([made(BODY, "X: \xe9")], BODY),
    "folded header": ([made(BODY, "X: a\r\n  b")], BODY),
    "lines end with LF": ([b"HTTP/1.1 200 OK\nContent-Length: 9\n\n" + BODY], BODY),
    "HTTP/1.0": ([b"HTTP/1.0 200 OK\r\n\r\n" + BODY, None], BODY),
    "status without reason": ([made(BODY, status="200")], BODY),
    "gzip": ([packed(GZIP)], BODY),
    "gzip in two members": ([packed(GZIP + GZIP)], BODY + BODY),
    "gzip in capitals": ([packed(GZIP, "GZIP")], BODY),
    "gzip cut off": ([packed(GZIP[:-9])], EARLY),
    "gzip with a wrong sum": ([packed(GZIP[:-8] + b"\0" * 8)], NOT_GZIP),
    "no gzip": ([packed(BODY)], NOT_GZIP),
    "a bomb": ([packed(gzip.compress(LARGE + LARGE, mtime=0))], LARGER),
    "deflate": ([packed(zlib.compress(BODY), "deflate")], "compressed in a form"),
    "brotli": ([packed(BODY, "br")], "compressed in a form"),
    "not packed": ([packed(BODY, "identity")], BODY),
    "interim replies": ([b"HTTP/1.1 102 Processing\r\n\r\n" * 3 + made(BODY)], BODY),
    "early hints": ([b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + made(BODY)], BODY),
    "only an interim reply": ([b"HTTP/1.1 100 Continue\r\n\r\n", None], NO_REPLY),
    "no content": ([b"HTTP/1.1 204 No Content\r\n\r\n"], 204),
    "not modified": ([b"HTTP/1.1 304 Not Modified\r\n\r\n"], 304),
    "redirect to itself": ([made(b"", "Location: /x", status="301 Moved")], 301),
    "redirect elsewhere": ([made(b"", "Location: http://127.0.0.1:1/y", status="307 T")], 307),
    "redirect to nowhere": ([made(b"", status="302 Found")], 302),
    "unknown status": ([made(BODY, status="999 X")], 999),
    "wrong type": ([made(BODY, "Content-Type: text/html; charset=no-such")], BODY),
    "byte order mark": ([made(b"\xef\xbb\xbf" + BODY)], b"\xef\xbb\xbf" + BODY),
    "large body": ([made(LARGE)], LARGER),
    "large chunk": ([CHUNKED + b"%x\r\n" % len(LARGE) + LARGE + b"\r\n0\r\n\r\n"], LARGER),
    "large body without length": ([HEAD + b"\r\n" + LARGE, None], LARGER),
    "large error": ([made(LARGE, status="500 X")], LARGER),
    "closed at once": ([None], NO_REPLY),
    "connection kept, then closed": ([made(BODY), None], BODY),
    "asks for a password": ([made(BODY, "WWW-Authenticate: Basic", status="401 U")], 401),
}
RAW = re.compile(r"Error\b|Traceback|<class|peer|object at")


@pytest.mark.usefixtures("never_late")
@pytest.mark.parametrize("kind", [AiohttpTransport, OpenaiTransport])
@pytest.mark.parametrize("name", ODD)
async def test_an_odd_reply_is_a_reply_or_a_failure_in_words(name, kind):
    parts, expected = ODD[name]
    async with scripted(list(parts), kind=kind) as (transport, script):
        for n in range(2):  # what one request met harms no other
            found = await transport.post("/x", b'{"n": %d}' % n, 30.0, whole)
            match expected, found:
                case str(), Failure():
                    assert re.search(expected, found.message), found
                    assert not RAW.search(found.message), found
                    assert found.permanent is (found.cause == "unparseable")
                case bytes(), Reply():
                    assert (found.status, found.body) == (200, expected)
                case _:
                    assert isinstance(found, Reply), found
                    assert found.status == expected
        # Where no byte of a reply came, it is sent once more.
        assert expected != NO_REPLY or len(script.requests) == 4
