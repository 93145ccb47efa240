"""A server with fixed replies that counts how many requests it has open at once.

GET and POST are answered by path from a table; bodies are read and thrown away. `/open` says how
many POSTs were open: the most ever, and the median of samples taken every 20 ms while any was.
`--latency S` answers POSTs S seconds late. `--hold N` answers none before N are open at once, or
none has come for five seconds: what a client really keeps open, however slow it is.
"""

import asyncio
import json
import statistics
from collections.abc import Callable
from functools import partial

from benchmarks._server import Send, arguments, replies_in, serve

QUIET_S = 5.0
SAMPLE_S = 0.02
Reply = Callable[[], None]


class Open:
    """Requests that were read and not yet answered."""

    def __init__(self, latency_s: float, hold: int) -> None:
        self._latency_s, self._hold = latency_s, hold
        self._held: list[Reply] = []
        self._timer: asyncio.TimerHandle | None = None
        self._now = 0
        self._peak = 0
        self._samples: list[int] = []

    def admit(self, reply: Reply) -> None:
        """Call `reply` when its time has come."""
        loop = asyncio.get_running_loop()
        if self._now == 0 and self._latency_s:
            loop.call_later(SAMPLE_S, self._sample)
        self._now += 1
        self._peak = max(self._peak, self._now)
        if self._hold:
            self._keep(reply)
        elif self._latency_s:
            loop.call_later(self._latency_s, self._answer, reply)
        else:
            self._answer(reply)

    def report(self) -> dict[str, float]:
        """The most requests that were open at once, and the median of the samples."""
        return {"peak": self._peak, "median": statistics.median(self._samples or [0])}

    def _keep(self, reply: Reply) -> None:
        self._held.append(reply)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._release)
        if self._now >= self._hold:
            self._hold = 0
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for reply in held:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        self._now -= 1
        reply()

    def _sample(self) -> None:
        if self._now:
            self._samples.append(self._now)
            asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)


def main() -> None:
    """Serve until killed."""
    parser = arguments(__doc__)
    parser.add_argument("--latency", type=float, default=0.0, metavar="S")
    parser.add_argument("--hold", type=int, default=0, metavar="N")
    options = parser.parse_args()
    replies = replies_in(options)
    opened = Open(options.latency, options.hold)

    def answer(method: str, path: str, _: bytes, send: Send) -> None:
        reply = replies.get(path, b"{}")
        if method == "POST":
            opened.admit(partial(send, reply))
        else:
            send(json.dumps(opened.report()).encode() if path == "/open" else reply)

    serve(options.port, answer)


if __name__ == "__main__":
    main()
