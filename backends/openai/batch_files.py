"""Files of requests and of replies, and who exchanges one for the other: an endpoint, or a folder.

The form of a line is OpenAI's (https://platform.openai.com/docs/guides/batch), which vLLM's
`run-batch` and others read and write too. All that comes back is untrusted: a line that can't be
read, or that nobody asked for, is left out, and one that is missing is a failure of its request.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec
import openai

from backends._transport import Reply
from backends.openai.transport import OpenaiTransport
from orchestrator.disk import files
from orchestrator.records import SERVER, Failure
from orchestrator.wire import failures
from orchestrator.wire.replies import MAX_BODY_BYTES

T = TypeVar("T")
MARK: Final = "orchestrator"
"""Under which a batch carries its name, as metadata."""

_CONTROL_S: Final = 60.0
_FILE_S: Final = 1800.0
_PAGE: Final = 100
# The clock of an endpoint may go wrong by so much.
_SKEW_S: Final = 24 * 3600.0
_MOST_BYTES: Final = 8 << 30
_OPEN: Final = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
EXPIRED: Final = Failure("timeout", "the batch expired before this request was answered")
CANCELLED: Final = Failure("cancelled", "the batch was cancelled", scope=SERVER)
"""Whoever cancels a batch does not want it to be sent again at once."""
_LACKING: Final[Mapping[str, Failure]] = {"expired": EXPIRED, "cancelled": CANCELLED}
_BY_CODE: Final[Mapping[str, Failure]] = {"batch_expired": EXPIRED, "batch_cancelled": CANCELLED}
_MISSING: Final = Failure("server_error", "the batch ended without a reply to this request")
# As the answer to one line they say nothing of a server that others should wait for.
_OF_SERVERS: Final = frozenset({429, 500, 502, 503, 504})


class Problem(msgspec.Struct, frozen=True):
    """The reason why a batch was not begun; `line` is that of its file, from 1."""

    code: str | None = None
    message: str | None = None
    param: str | None = None
    line: int | None = None

    def words(self, secret: str) -> str:
        """Return what the endpoint says, cleaned."""
        said = self.message or self.code or "no reason is given"
        return failures.clean(f"{said} ({self.param})" if self.param else said, secret)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, as its endpoint describes it."""

    id: str
    status: str
    created_at: float = 0.0
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: dict[str, int] | None = None
    metadata: dict[str, str] | None = None
    errors: dict[str, tuple[Problem, ...] | str | None] | None = None

    @property
    def is_open(self) -> bool:
        """True if more replies may come."""
        return self.status in _OPEN

    @property
    def n_ended(self) -> int:
        """Requests that have ended, as it says."""
        counts = self.request_counts or {}
        return counts.get("completed", 0) + counts.get("failed", 0)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Reasons why nothing of it was begun; empty where it was."""
        if self.status != "failed":
            return ()
        said = (self.errors or {}).get("data")
        if isinstance(said, tuple) and said:
            return said
        return (Problem("failed", "the endpoint refused the batch and does not say why"),)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the files with its replies."""
        return tuple(filter(None, (self.output_file_id, self.error_file_id)))

    @property
    def lacking(self) -> Failure:
        """The failure of requests without a reply, once it has ended."""
        return _LACKING.get(self.status, _MISSING)


class _Page(msgspec.Struct, frozen=True):
    data: tuple[Work, ...]
    has_more: bool = False


class Exchange(Protocol):
    """Takes files of requests, and gives files of replies."""

    async def send(self, name: str, content: bytes, path: str) -> str | Failure:
        """Send a file for requests to `path`; return the batch's id."""
        ...

    async def find(self, names: Mapping[str, float]) -> Mapping[str, str] | Failure:
        """Return the ids of the batches that were sent, by name; `names` have the time of each."""
        ...

    async def look(self, number: str) -> Work | Failure:
        """Return the state of a batch, by its id."""
        ...

    async def fetch(self, source: str, into: BinaryIO) -> Failure | None:
        """Write a file of replies to another; return why it can't be had."""
        ...

    async def cancel(self, number: str) -> None:
        """End a batch as soon as may be; what was answered until then is paid and read."""
        ...


class Service:
    """OpenAI's Files and Batches API, and those that copy it.

    Args:
        transport: The connection to the endpoint; it stays its owner's.
        secret: Never repeated.
    """

    def __init__(self, transport: OpenaiTransport, secret: str) -> None:
        self._transport = transport
        self._secret = secret
        self._root = "/v1"

    async def send(self, name: str, content: bytes, path: str) -> str | Failure:
        """See `Exchange`."""
        # Some endpoints have their routes right behind the address.
        self._root = "/v1" if path.startswith("/v1/") else ""
        sent = await self._transport.ask(
            self._root,
            lambda client: client.files.create(file=(f"{name}.jsonl", content), purpose="batch"),
            _FILE_S,
        )
        if isinstance(sent, Reply | Failure):
            return self._failure(sent)
        if not isinstance(sent.id, str):
            return Failure("unparseable", "the endpoint does not name the file that it was sent")
        asked = {
            "completion_window": "24h",
            "endpoint": _route(path),
            "input_file_id": sent.id,
            "metadata": {MARK: name},
        }
        begun = await self._post("/batches", asked)
        return begun if isinstance(begun, Failure) else begun.id

    async def find(self, names: Mapping[str, float]) -> Mapping[str, str] | Failure:
        """See `Exchange`."""
        found: dict[str, str] = {}
        since = min(names.values(), default=0.0) - _SKEW_S
        more: str | None = f"/batches?limit={_PAGE}"
        while more is not None and names.keys() - found.keys():
            page = self._read(await self._transport.get(self._root + more, _CONTROL_S), _Page)
            if isinstance(page, Failure):
                return page
            for work in page.data:
                name = (work.metadata or {}).get(MARK, "")
                if name in names:
                    found.setdefault(name, work.id)
            more = None
            # Newest first.
            if page.has_more and page.data and page.data[-1].created_at >= since:
                more = f"/batches?limit={_PAGE}&after={quote(page.data[-1].id, safe='')}"
        return found

    async def look(self, number: str) -> Work | Failure:
        """See `Exchange`."""
        path = f"{self._root}/batches/{quote(number, safe='')}"
        return self._read(await self._transport.get(path, _CONTROL_S), Work)

    async def fetch(self, source: str, into: BinaryIO) -> Failure | None:
        """See `Exchange`."""

        async def copy(client: openai.AsyncOpenAI) -> None:
            into.seek(0)
            into.truncate()
            async with client.files.with_streaming_response.content(source) as reply:
                async for chunk in reply.iter_bytes(1 << 20):
                    if into.tell() > _MOST_BYTES:
                        raise OSError(f"more than {_MOST_BYTES:,} bytes of replies")
                    into.write(chunk)

        failed = await self._transport.ask(self._root, copy, _FILE_S)
        return None if failed is None else self._failure(failed)

    async def cancel(self, number: str) -> None:
        """See `Exchange`."""
        await self._post(f"/batches/{quote(number, safe='')}/cancel", {})

    async def _post(self, path: str, body: Mapping[str, object]) -> Work | Failure:
        sent = msgspec.json.encode(body)
        reply = await self._transport.post_once(self._root + path, sent, _CONTROL_S)
        return self._read(reply, Work)

    def _read(self, reply: Reply | Failure, kind: type[T]) -> T | Failure:
        if isinstance(reply, Failure) or reply.status != 200:
            return self._failure(reply)
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except msgspec.MsgspecError as error:
            said = failures.clean(str(error), self._secret)
            return Failure("unparseable", f"what the endpoint says of its batches: {said}")

    def _failure(self, reply: Reply | Failure) -> Failure:
        if isinstance(reply, Failure):
            return reply
        return failures.classify(reply.status, reply.body, reply.headers, self._secret)


class Folder:
    """A folder in which somebody else answers files, such as `vllm run-batch`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}

    async def send(self, name: str, content: bytes, path: str) -> str | Failure:  # noqa: ARG002
        """See `Exchange`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        files.write(self._folder / f"{name}.jsonl", content)
        return name

    async def find(self, names: Mapping[str, float]) -> Mapping[str, str] | Failure:
        """See `Exchange`."""
        return {name: name for name in names if (self._folder / f"{name}.jsonl").exists()}

    async def look(self, number: str) -> Work | Failure:
        """See `Exchange`; replies are whole when there are as many as requests."""
        asked, replied = self._folder / f"{number}.jsonl", f"{number}.replies.jsonl"
        try:
            size = (self._folder / replied).stat().st_size
        except FileNotFoundError:
            return Work(id=number, status="in_progress" if asked.exists() else "cancelled")
        n_ended, n_asked = -1, 0
        # A file that grows is not counted.
        if self._sizes.get(number) == size:
            n_ended = sum(1 for _ in _lines(self._folder / replied))
            n_asked = sum(1 for _ in _lines(asked)) if asked.exists() else 0
        self._sizes[number] = size
        return Work(
            id=number,
            status="completed" if n_ended >= n_asked else "in_progress",
            request_counts={"completed": max(0, n_ended)},
            output_file_id=replied,
        )

    async def fetch(self, source: str, into: BinaryIO) -> Failure | None:
        """See `Exchange`."""
        into.writelines(_lines(self._folder / source))
        return None

    async def cancel(self, number: str) -> None:
        """See `Exchange`: what nobody has begun is not begun."""
        (self._folder / f"{number}.jsonl").unlink(missing_ok=True)


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines of a file, none longer than a reply may be."""
    with path.open("rb") as file:
        while line := file.readline(MAX_BODY_BYTES):
            if line.endswith(b"\n"):
                yield line


def _route(path: str) -> str:
    return "/v1" + path.removeprefix("/v1")


def request_line(number: str, path: str, body: bytes) -> bytes:
    """Return the line of a request, with its newline."""
    line: dict[str, Any] = {"custom_id": number, "method": "POST", "url": _route(path)}
    return msgspec.json.encode(line | {"body": msgspec.Raw(body)}) + b"\n"


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    custom_id: str
    response: _Response | None = None
    error: Problem | None = None


class Replies:
    """Replies of a batch on the disk: read once, then found by number.

    Args:
        lacking: The failure of a request that has none.
    """

    def __init__(self, lacking: Failure) -> None:
        self._lacking = lacking
        self._file = TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._places: dict[str, tuple[int, int]] = {}

    async def read(self, exchange: Exchange, sources: Sequence[str]) -> Failure | None:
        """Take in the files of a batch; return why one can't be had."""
        for source in sources:
            with TemporaryFile() as part:
                if failure := await exchange.fetch(source, part):
                    return failure
                await asyncio.to_thread(self._take_in, part)
        return None

    def _take_in(self, part: BinaryIO) -> None:
        part.seek(0)
        while line := part.readline(MAX_BODY_BYTES):
            try:
                number = msgspec.json.decode(line, type=_Line).custom_id
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                continue
            if number not in self._places:
                self._places[number] = self._file.tell(), len(line)
                self._file.write(line)

    def get(self, number: str, secret: str) -> Reply | Failure:
        """Return the reply to a request."""
        place = self._places.get(number)
        if place is None:
            return self._lacking
        self._file.seek(place[0])
        line = msgspec.json.decode(self._file.read(place[1]), type=_Line)
        found = line.response
        if found is None:
            said = line.error or Problem()
            if known := _BY_CODE.get(said.code or ""):
                return known
            words = said.words(secret)
            return Failure("server_error", f"the batch has no reply to this request: {words}")
        if found.status_code in _OF_SERVERS:
            words = failures.classify(found.status_code, bytes(found.body), {}, secret).message
            return Failure("server_error", f"HTTP {found.status_code} in a batch: {words}")
        return Reply(found.status_code, {}, bytes(found.body))

    def close(self) -> None:
        """Give up the disk space."""
        self._file.close()


class Ledger:
    """Which batch holds which requests, in the run's folder: written before anything is sent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, numbers: Sequence[str], batch: str = "") -> float:
        """Write an entry and return its time; one without an id may have been sent or not.

        Raises:
            OSError: If it can't be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        entry = msgspec.json.encode((batch, numbers))
        path = self._folder / f"{name}.json"
        files.write(path, entry, durable=True)
        return path.stat().st_mtime

    def drop(self, name: str) -> None:
        """Forget a batch of which nothing was begun, or that is gone."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def entries(self) -> list[tuple[str, str, tuple[str, ...], float]]:
        """Return name, id, numbers and time of each, oldest first; damaged ones are left out."""
        found = []
        for path in self._folder.glob("*.json"):
            try:
                content = files.read(path, own=True)
                batch, numbers = msgspec.json.decode(content, type=tuple[str, tuple[str, ...]])
                found.append((path.stem, batch, numbers, path.stat().st_mtime))
            except (OSError, msgspec.MsgspecError):
                continue
        return sorted(found, key=lambda entry: entry[3])
