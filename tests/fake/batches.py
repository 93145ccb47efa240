"""OpenAI's Files and Batches API over the fake server, with its limits and a clock that tests turn.

After https://platform.openai.com/docs/api-reference/batch: a batch is validated, worked on line by
line, and ends completed, expired or cancelled; replies come in no order, those with errors in a
file of their own. Each look at a batch does a piece of its work, so nothing here waits.
"""

import asyncio
import email
import email.policy
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

from tests.fake.http import Action, HttpRequest, respond
from tests.fake.main import LOOPBACK
from tests.fake.protocol import error_body
from tests.fake.rules import load
from tests.fake.server import FakeServer

WINDOW_S = 24 * 3600
_EXPIRED = "This request could not be executed before the completion window expired."
_OPEN = ("validating", "in_progress", "finalizing", "cancelling")


class BatchServer(FakeServer):
    """A fake server that also takes batches.

    Attributes:
        clock: Its time in seconds; a batch expires a day after it was made.
        most_lines: Of a file.
        most_waiting: Lines that may wait in all open batches together, as tokens may at OpenAI.
        per_look: Lines of a batch that are answered at each look at it.
        drops: Told of each line; where true, no reply to it is written.
        refuses: Told of each line of a file; where true, the file is refused for it.
        after_work: Called after each piece of work.
        batches: Every batch, by id, as it is shown.
        worked_on: How often each line was answered, by `custom_id`.
        breaks: Steps ("files", "batches", "look", "content") whose next request is obeyed, and its
            connection reset instead of a reply.
        holds: The step whose requests are obeyed and never answered, or "before files".
        held: Set when one was held.
    """

    def __init__(self, models: tuple[str, ...], rules: object = None, key: str = "") -> None:
        super().__init__(models, load(rules), key)
        self.clock = 1_700_000_000.0
        self.most_lines = 50_000
        self.most_waiting = 10**9
        self.per_look = 10**9
        self.drops: Callable[[dict[str, Any]], bool] = lambda _: False
        self.batches: dict[str, dict[str, Any]] = {}
        self.worked_on: Counter[str] = Counter()
        self.breaks: list[str] = []
        self.holds = ""
        self.held = asyncio.Event()
        self.refuses: Callable[[dict[str, Any]], bool] = lambda _: False
        self.after_work: Callable[[], object] = lambda: None
        self._files: dict[str, bytes] = {}
        self._left: dict[str, list[dict[str, Any]]] = {}
        self._replies: dict[str, tuple[list[bytes], list[bytes]]] = {}
        self._numbers = itertools.count(1)

    def _handle(self, request: HttpRequest) -> Action:
        path, _, query = request.path.partition("?")
        parts = path.removeprefix("/v1/").split("/")
        if not path.startswith(("/v1/files", "/v1/batches")):
            return super()._handle(request)
        if self._key and request.headers.get("authorization") != f"Bearer {self._key}":
            return Action(respond(401, error_body(401, "Incorrect API key provided")))
        step = (
            parts[0] if request.method == "POST" else "look" if parts[0] == "batches" else "content"
        )
        if self.holds == f"before {step}":
            self.held.set()
            return Action(b"", ending="hang")
        status, found = self._route(request, parts, dict(parse_qsl(query)))
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        if step in self.breaks:
            self.breaks.remove(step)
            return Action(b"", ending="reset")
        if step == self.holds:
            self.held.set()
            return Action(b"", ending="hang")
        return Action(respond(status, body))

    def _route(
        self, request: HttpRequest, parts: list[str], query: dict[str, str]
    ) -> tuple[int, Any]:
        match request.method, parts:
            case "POST", ["files"]:
                return self._take_file(request)
            case "GET", ["files", name, "content"] if name in self._files:
                return 200, self._files[name]
            case "POST", ["batches"]:
                return self._make(json.loads(request.body))
            case "GET", ["batches"]:
                return 200, self._list(query)
            case "GET", ["batches", name] if name in self.batches:
                self._work(self.batches[name])
                return 200, self.batches[name]
            case "POST", ["batches", name, "cancel"] if name in self.batches:
                batch = self.batches[name]
                if batch["status"] not in _OPEN:
                    return 409, json.loads(error_body(409, f"batch is {batch['status']}"))
                batch["status"] = "cancelling"
                return 200, batch
        return 404, json.loads(error_body(404, f"No such object: {'/'.join(parts)}"))

    def _take_file(self, request: HttpRequest) -> tuple[int, Any]:
        head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
        form = email.message_from_bytes(head + request.body, policy=email.policy.HTTP)
        fields = {
            part.get_param("name", header="content-disposition"): part for part in form.iter_parts()
        }
        assert fields["purpose"].get_content().strip() == "batch"
        name = f"file-{next(self._numbers)}"
        content = fields["file"].get_payload(decode=True)
        assert isinstance(content, bytes)
        self._files[name] = content
        return 200, {"id": name, "object": "file", "purpose": "batch"}

    def _make(self, asked: dict[str, Any]) -> tuple[int, Any]:
        source = asked["input_file_id"]
        if source not in self._files:
            return 404, json.loads(error_body(404, f"No such File object: {source}"))
        assert asked["completion_window"] == "24h"
        name = f"batch_{next(self._numbers)}"
        self.batches[name] = {
            "id": name, "object": "batch", "endpoint": asked["endpoint"], "errors": None,
            "input_file_id": source, "completion_window": "24h", "status": "validating",
            "output_file_id": None, "error_file_id": None, "created_at": int(self.clock),
            "expires_at": int(self.clock) + WINDOW_S, "metadata": asked.get("metadata"),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
        }  # fmt: skip
        return 200, self.batches[name]

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        newest = list(reversed(self.batches.values()))
        places = {batch["id"]: place for place, batch in enumerate(newest, 1)}
        start, most = places.get(query.get("after", ""), 0), int(query.get("limit", 20))
        page = newest[start : start + most]
        return {"object": "list", "data": page, "has_more": start + most < len(newest)}

    def _work(self, batch: dict[str, Any]) -> None:
        """Go on by a piece."""
        name, status = batch["id"], batch["status"]
        if status == "validating":
            self._validate(batch)
        elif status == "in_progress" and self.clock >= batch["expires_at"]:
            for line in self._left.pop(name):
                error = {"code": "batch_expired", "message": _EXPIRED}
                self._write(name, line, None, error)
            self._end(batch, "expired")
        elif status == "in_progress":
            left = self._left[name]
            now, self._left[name] = left[: self.per_look], left[self.per_look :]
            for line in now:
                self.answer_line(batch, line)
            if not self._left[name]:
                self._end(batch, "completed")
            self.after_work()
        elif status == "cancelling":
            self._end(batch, "cancelled")

    def _validate(self, batch: dict[str, Any]) -> None:
        lines = self._files[batch["input_file_id"]].decode().splitlines()
        faults: list[dict[str, Any]] = []
        seen: set[str] = set()
        models = set()
        requests = []
        for place, text in enumerate(lines, 1):
            line = json.loads(text)
            requests.append(line)
            models.add(line["body"]["model"])
            if line["custom_id"] in seen:
                faults.append(
                    {"code": "duplicate_custom_id", "message": "used twice", "line": place}
                )
            if line["url"] != batch["endpoint"]:
                faults.append({"code": "mismatched_url", "message": "another url", "line": place})
            if self.refuses(line):
                faults.append({"code": "invalid_json_line", "message": "no", "line": place})
            seen.add(line["custom_id"])
        if len(models) > 1:
            faults.append({"code": "mismatched_model", "message": "one model a file", "line": None})
        if len(lines) > self.most_lines:
            faults.append({"code": "too_many_tasks", "message": "too many lines", "line": None})
        n_waiting = sum(len(left) for left in self._left.values())
        if n_waiting + len(lines) > self.most_waiting:
            faults.append(
                {"code": "token_limit_exceeded", "message": "Enqueued token limit", "line": None}
            )
        if faults:
            batch["status"], batch["errors"] = "failed", {"object": "list", "data": faults}
            return
        batch["status"] = "in_progress"
        batch["request_counts"]["total"] = len(requests)
        self._left[batch["id"]] = requests
        self._replies[batch["id"]] = [], []

    def answer_line(self, batch: dict[str, Any], line: dict[str, Any]) -> None:
        """Answer a line of a batch."""
        self.reply(batch, line, self._response(line))

    def line(self, line: dict[str, Any]) -> bytes:
        """The line of replies for a line of requests, as `vllm run-batch` writes it."""
        written = {"id": "vllm-1", "custom_id": line["custom_id"], "error": None}
        return json.dumps(written | {"response": self._response(line)}).encode() + b"\n"

    def _response(self, line: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(line["body"]).encode()
        headers = {"authorization": f"Bearer {self._key}"}
        action = super()._handle(HttpRequest("POST", line["url"], headers, body))
        if action.done is not None:
            action.done(True)  # noqa: FBT003
        head, _, content = action.data.partition(b"\r\n\r\n")
        self.worked_on[line["custom_id"]] += 1
        status = int(head.split()[1])
        return {"status_code": status, "request_id": "r", "body": json.loads(content)}

    def reply(self, batch: dict[str, Any], line: dict[str, Any], response: dict[str, Any]) -> None:
        """Count the reply to a line, and write it."""
        is_good = response["status_code"] == 200
        batch["request_counts"]["completed" if is_good else "failed"] += 1
        self._write(batch["id"], line, response, None)

    def _write(
        self, name: str, line: dict[str, Any], response: dict[str, Any] | None, error: Any
    ) -> None:
        if self.drops(line):
            return
        number = next(self._numbers)
        reply = {"id": f"batch_req_{number}", "custom_id": line["custom_id"]}
        written = json.dumps(reply | {"response": response, "error": error}).encode() + b"\n"
        is_good = response is not None and response["status_code"] == 200
        self._replies[name][0 if is_good else 1].append(written)

    def _end(self, batch: dict[str, Any], status: str) -> None:
        self._left.pop(batch["id"], None)
        for key, lines in zip(
            ("output_file_id", "error_file_id"), self._replies.get(batch["id"], ()), strict=False
        ):
            if lines:
                batch[key] = f"file-{next(self._numbers)}"
                # The order of replies is no one's.
                self._files[batch[key]] = b"".join(reversed(lines))
        batch["status"] = status


@asynccontextmanager
async def serving_batches(
    *models: str, rules: object = None, key: str = ""
) -> AsyncIterator[tuple[str, BatchServer]]:
    """A fake server with batches in this process: its base URL and the server itself."""
    server = BatchServer(models, rules, key)
    try:
        yield f"http://{LOOPBACK}:{await server.listen(LOOPBACK, 0)}", server
    finally:
        server.stop()
