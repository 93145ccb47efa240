"""Exchanges with a real server, kept in a file and played back to a back-end.

`python -m tests.recorded.record vllm` makes the files anew.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends._transport import Read, Reply, Transport
from orchestrator.records import Failure
from tests.conftest import ROOT
from tests.whole import whole

FOLDER = Path(__file__).parent


@dataclass
class Recording:
    """Requests and replies of a server, and numbers of a forward pass for the same requests.

    Attributes:
        about: Server, version, settings and model.
        exchanges: By path and canonical body: status and body of the reply.
        truth: Numbers of a float32 forward pass, by what they are.
    """

    about: dict[str, str]
    exchanges: dict[str, tuple[int, str]] = field(default_factory=dict)
    truth: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, kind: str) -> "Recording":
        data = json.loads((FOLDER / kind / "recording.json").read_text(encoding="utf-8"))
        exchanges = {one["request"]: (one["status"], one["reply"]) for one in data["exchanges"]}
        return cls(data["about"], exchanges, data["truth"])

    def changed(
        self, change: Callable[[dict[str, Any]], None], path: str, but: str = "/models"
    ) -> "Player":
        """Plays it with every answered reply of paths that begin so changed, `but` excepted."""

        def other(request: str, status: int, body: str) -> tuple[int, str]:
            if status != 200 or not request.startswith(path) or but in request:
                return status, body
            reply = json.loads(body)
            change(reply)
            return status, json.dumps(reply)

        return Player(
            {
                request: other(request, status, body)
                for request, (status, body) in self.exchanges.items()
            }
        )

    def keep(self, request: str, reply: Reply) -> None:
        self.exchanges[request] = (reply.status, reply.body.decode())

    def write(self, kind: str) -> Path:
        path = FOLDER / kind / "recording.json"
        path.parent.mkdir(exist_ok=True)
        exchanges = [
            json.dumps({"request": request, "status": status, "reply": _shortened(reply)})
            for request, (status, reply) in self.exchanges.items()
        ]
        about, truth = json.dumps(self.about), json.dumps(self.truth)
        listed = ",\n".join(exchanges)
        text = f'{{"about": {about},\n"truth": {truth},\n"exchanges": [\n{listed}\n]}}\n'
        path.write_text(text, encoding="utf-8")
        return path


def _shortened(reply: str) -> str:
    """Without this machine's paths, and of metrics only what is read."""
    reply = reply.replace(f"{ROOT}/", "")
    if not reply.startswith("# HELP"):
        return reply
    return "\n".join(line for line in reply.splitlines() if _METRICS.match(line)) + "\n"


_METRICS = re.compile(
    r"\w+:(num_requests|kv_cache_usage|prefix_cache|requests_|prompt_tokens(_cached)?_total)"
)


def request_of(path: str, body: bytes | None) -> str:
    """Return the key of a request in a recording; equal bodies have equal keys."""
    said = "" if body is None else json.dumps(json.loads(body), sort_keys=True)
    return f"{path} {said}".rstrip()


class Recorder:
    """A transport that hands `keep` each request that is answered, and its reply."""

    def __init__(self, inner: Transport, keep: Callable[[str, Reply], object]) -> None:
        self._inner = inner
        self._keep = keep

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[Any]) -> Any:
        reply = self._kept(
            request_of(path, body), await self._inner.post(path, body, timeout_s, whole)
        )
        return reply if isinstance(reply, Failure) else read(reply)

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        return self._kept(request_of(path, None), await self._inner.get(path, timeout_s))

    async def close(self) -> None:
        await self._inner.close()

    def _kept(self, request: str, reply: Reply | Failure) -> Reply | Failure:
        if isinstance(reply, Reply):
            self._keep(request, reply)
        return reply


class Player:
    """A transport that answers from a recording; a request that is not in it fails the test."""

    def __init__(self, exchanges: Mapping[str, tuple[int, str]]) -> None:
        self._exchanges = exchanges
        self.sent: list[str] = []

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[Any]) -> Any:
        return read(self._answer(request_of(path, body)))

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        return self._answer(request_of(path, None))

    async def close(self) -> None:
        pass

    def _answer(self, request: str) -> Reply:
        self.sent.append(request)
        if request not in self._exchanges:
            raise AssertionError(f"not recorded: {request}")
        status, body = self._exchanges[request]
        return Reply(status, {}, body.encode())
