"""A fake server in a thread of its own whose replies go wrong, and runs against it."""

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

from tests.fake.http import Action, HttpRequest
from tests.fake.rules import load
from tests.fake.server import FakeServer

DEEP: Final = 10_000
# JSON as it is written: Python could not write all of it.
SNIPPETS: Final = (
    "1" + "0" * 400, "-" + "9" * 400, "9" * 5000, "-" + "9" * 5000, "-1e999", "1e400", "-1e400",
    "NaN", "Infinity", "-Infinity", "null", "true", '""', '"\\ud800"', '"\\udfff\\ud800x"',
    '"\\u0000\\u001b[2J"', "[]", "{}", "[[]]", "[null]", '{"id":1}', '[{"id":1},5]', "5", "-1",
    "0.5", "-0.0", "5.0", "2147483648", "-2147483649", "9223372036854775808", "[0.1,null,NaN]",
    '"token_id:' + "9" * 5000 + '"', '"token_id:7"', '"token_id:-7"', '"token_id:\u00b2"',
    "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, '{"a":1,"a":[2]}',
    '{"token":"a","token":5,"logprob":-1,"logprob":"x"}', '{"":null}', '"' + "x" * 100_000 + '"',
    "[" + "0," * 50_000 + "0]", '{"' + "k" * 100_000 + '":-1}', '"abc\\u202e"', "[[[-1,0,null]]]",
)  # fmt: skip
_MARK: Final = "@@here@@"


def mangled(body: bytes, rng: random.Random) -> bytes:
    """A body with one to three places changed, cut short, or replaced altogether."""
    act = rng.random()
    if act < 0.05:
        return body[: rng.randrange(len(body) + 1)]
    if act < 0.1:
        return rng.choice(SNIPPETS).encode("utf-8", "surrogatepass")
    try:
        parsed = json.loads(body)
    except ValueError:
        # Figures of a server's load.
        odd = rng.choice(["NaN", "-1", "1e999", "9" * 400, "1.2.3", "+Inf", ""])
        return body.replace(b" 0", b" " + odd.encode())
    texts = json.dumps(_changed(parsed, rng, rng.randint(1, 3)))
    while f'"{_MARK}"' in texts:
        texts = texts.replace(f'"{_MARK}"', rng.choice(SNIPPETS), 1)
    return texts.encode("utf-8", "surrogatepass")


def _changed(parsed: Any, rng: random.Random, n: int) -> Any:
    for _ in range(n):
        places = list(_places(parsed))
        if not places:
            return _MARK
        holder, key = rng.choice(places)
        act = rng.random()
        if act < 0.75:
            holder[key] = _MARK
        elif act < 0.85:
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, deepcopy(holder[key]))
        else:
            holder[rng.choice(["id", "token", "7", "-7", "token_id:7", ""])] = holder.pop(key)
    return parsed


def _places(parsed: Any) -> Iterator[tuple[Any, Any]]:
    keys: Any = parsed if isinstance(parsed, dict) else range(len(parsed))
    if isinstance(parsed, dict | list):
        for key in keys:
            yield parsed, key
            if isinstance(parsed[key], dict | list):
                yield from _places(parsed[key])


class Mangler(FakeServer):
    """Answers as ever until `change` is set; then what it says of each body."""

    change: Callable[[HttpRequest, bytes], bytes] | None = None

    def _handle(self, request: HttpRequest) -> Action:
        action = super()._handle(request)
        head, found, body = action.data.partition(b"\r\n\r\n")
        if self.change is None or not found or not head.startswith(b"HTTP/1.1 200"):
            return action
        body = self.change(request, body)
        lines = [
            one for one in head.split(b"\r\n") if not one.lower().startswith(b"content-length")
        ]
        action.data = b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])
        return action


@contextlib.contextmanager
def mangling(dialect: str, models: list[str]) -> Iterator[tuple[str, Mangler]]:
    """The server's URL, and the server."""
    loop = asyncio.new_event_loop()
    server = Mangler(models, load({"dialect": dialect} if dialect else None), "", None)
    port = loop.run_until_complete(server.listen("127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}", server
    finally:
        loop.call_soon_threadsafe(server.stop)
        loop.call_soon_threadsafe(loop.call_later, 0.05, loop.stop)
        thread.join(10)
        loop.close()
