"""Files of requests and of replies, and who exchanges one for the other: an endpoint, or a folder.

The form of a line is OpenAI's (https://platform.openai.com/docs/guides/batch), which vLLM's
`run-batch` and others read and write too. All that comes back is untrusted: a line that can't be
read, or that nobody asked for, is left out, and one that is missing is a failure of its request.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import quote

import msgspec
import openai

from backends._tokens import as_outcome
from backends._transport import Reply
from backends.openai.transport import OpenaiTransport
from orchestrator.disk import files
from orchestrator.records import SERVER, Failure
from orchestrator.wire import failures
from orchestrator.wire.failures import Failed, known
from orchestrator.wire.parsing import MAX_BODY_BYTES

T = TypeVar("T")
# Under which a batch carries its name, as metadata.
_MARK: Final = "orchestrator"
_CONTROL_S: Final = 60.0
_FILE_S: Final = 1800.0
_PAGE: Final = 100
# An endpoint whose pages go round must not be read for ever.
_MOST_PAGES: Final = 1000
_MOST_BYTES: Final = 8 << 30
# Any other status means that replies may come: whoever takes it for an end pays twice.
_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_OK: Final = range(200, 300)
_LACKING: Final[Mapping[str, Failure]] = {
    "expired": Failure("timeout", "the batch expired before this request was answered"),
    # Whoever cancels a batch does not want it to be sent again at once.
    "cancelled": Failure("cancelled", "the batch was cancelled", scope=SERVER),
}
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
    """A batch, as its endpoint describes it; what is of any type is looked at with care."""

    id: str
    status: str
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: Any = None
    metadata: Any = None
    errors: Any = None

    @property
    def name(self) -> object:
        """The name that it was sent with; None if it was not."""
        return self.metadata.get(_MARK) if isinstance(self.metadata, dict) else None

    @property
    def is_open(self) -> bool:
        """True if more replies may come."""
        return self.status not in _ENDED

    @property
    def n_ended(self) -> int:
        """Requests that have ended, as it says."""
        counts = self.request_counts if isinstance(self.request_counts, dict) else {}
        said = (counts.get("completed"), counts.get("failed"))
        return sum(n for n in said if isinstance(n, int))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Reasons why nothing of it was begun; empty where it was."""
        if self.status != "failed" or self.output_file_id:
            return ()
        try:
            said = msgspec.convert(self.errors["data"], tuple[Problem, ...], strict=False)
        except (msgspec.MsgspecError, TypeError, LookupError):
            said = ()
        unsaid = Problem("failed", "the endpoint refused the batch and does not say why")
        return said or (unsaid,)

    @property
    def lacking(self) -> Failure:
        """The failure of requests without a reply, once it has ended."""
        return _LACKING.get(self.status, _MISSING)


class _Page(msgspec.Struct, frozen=True):
    data: tuple[msgspec.Raw, ...]
    has_more: Any = None


class Service:
    """OpenAI's Files and Batches API, and those that copy it.

    Args:
        transport: The connection to the endpoint; it stays its owner's.
        secret: Never repeated.
        path: Of the requests; some endpoints have their routes right behind the address.
    """

    def __init__(self, transport: OpenaiTransport, secret: str, path: str) -> None:
        self._transport = transport
        self._secret = secret
        self._root = "/v1" if path.startswith("/v1/") else ""

    @as_outcome
    async def send(self, name: str, content: bytes, path: str) -> str:
        """Send a file for requests to `path`; return the batch's id."""

        async def upload(client: openai.AsyncOpenAI) -> Reply | Failure:
            files = client.files.with_streaming_response
            async with files.create(file=(f"{name}.jsonl", content), purpose="batch") as reply:
                return await self._transport.whole(reply.http_response)

        reply = await self._transport.ask(self._root, upload, _FILE_S)
        sent = known(self._read(reply, dict[str, Any]))
        if not isinstance(sent.get("id"), str):
            raise Failed(Failure("unparseable", "the endpoint does not name the file it was sent"))
        asked = {
            "completion_window": "24h",
            "endpoint": "/v1" + path.removeprefix("/v1"),
            "input_file_id": sent["id"],
            "metadata": {_MARK: name},
        }
        return known(await self._post("/batches", asked)).id

    @as_outcome
    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the ids of those batches that were sent, by name."""
        found: dict[str, str] = {}
        last = ""
        for _ in range(_MOST_PAGES):
            after = f"&after={quote(last, safe='')}" if last else ""
            path = f"{self._root}/batches?limit={_PAGE}{after}"
            page = known(self._read(await self._transport.get(path, _CONTROL_S), _Page))
            works = []
            for one in page.data:
                # Other people's are listed too, and may be odd.
                with contextlib.suppress(msgspec.MsgspecError):
                    works.append(msgspec.json.decode(one, type=Work))
            found |= {str(work.name): work.id for work in works if work.name in names}
            # Some say nothing of further pages, and some list the first one again.
            is_last = page.has_more is False or not works or works[-1].id == last
            if is_last or len(found) == len(names):
                return found
            last = works[-1].id
        said = f"more than {_MOST_PAGES:,} pages of batches, and one of this run is not found"
        raise Failed(Failure("unparseable", said, scope=SERVER))

    async def look(self, number: str) -> Work | Failure:
        """Return the state of a batch, by its id."""
        path = f"{self._root}/batches/{quote(number, safe='')}"
        return self._read(await self._transport.get(path, _CONTROL_S), Work)

    async def fetch(self, source: str, into: BinaryIO) -> Failure | None:
        """Write a file of replies to another; return why it can't be had."""

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

    async def cancel(self, number: str) -> Failure | None:
        """End a batch as soon as may be; what was answered until then is paid and read."""
        found = await self._post(f"/batches/{quote(number, safe='')}/cancel", {})
        return found if isinstance(found, Failure) else None

    async def _post(self, path: str, body: Mapping[str, object]) -> Work | Failure:
        path, sent = self._root + path, msgspec.json.encode(body)
        reply = await self._transport.send(path, sent, _CONTROL_S, is_sent_again=False)
        return self._read(reply, Work)

    def _read(self, reply: Reply | Failure, kind: type[T]) -> T | Failure:
        if isinstance(reply, Failure) or reply.status not in _OK:
            return self._failure(reply)
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
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
        """See `Service`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        files.write(self._folder / f"{name}.jsonl", content)
        return name

    async def find(self, names: Collection[str]) -> Mapping[str, str] | Failure:
        """See `Service`."""
        return {name: name for name in names if (self._folder / f"{name}.jsonl").exists()}

    async def look(self, number: str) -> Work | Failure:
        """See `Service`; replies are whole when there are as many as requests."""
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
        """See `Service`."""
        into.writelines(_lines(self._folder / source))
        return None

    async def cancel(self, number: str) -> None:
        """See `Service`: what nobody has begun is not begun."""
        (self._folder / f"{number}.jsonl").unlink(missing_ok=True)


Exchange = Service | Folder
"""Takes files of requests, and gives files of replies."""


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines of a file, none longer than a reply may be."""
    with path.open("rb") as file:
        while line := file.readline(MAX_BODY_BYTES):
            if line.endswith(b"\n"):
                yield line


def request_line(number: str, path: str, body: bytes) -> bytes:
    """Return the line of a request, with its newline."""
    url = "/v1" + path.removeprefix("/v1")
    line: dict[str, Any] = {"custom_id": number, "method": "POST", "url": url}
    return msgspec.json.encode(line | {"body": msgspec.Raw(body)}) + b"\n"


_NULL: Final = msgspec.Raw(b"null")


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw = _NULL


class _Line(msgspec.Struct):
    custom_id: str
    response: _Response | None = None
    error: msgspec.Raw = _NULL


def _decoded(line: bytes) -> _Line:
    return msgspec.json.decode(line, type=_Line, strict=False)


class Replies:
    """Replies of a batch on the disk: read once, then found by number, each once.

    Args:
        numbers: Of the requests; other lines are left out.
        lacking: The failure of a request that has none.
    """

    def __init__(self, numbers: Collection[str], lacking: Failure) -> None:
        self._numbers = frozenset(numbers)
        self._lacking = lacking
        self._file = TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._places: dict[str, tuple[int, int]] = {}

    async def read(self, exchange: Exchange, work: Work) -> Failure | None:
        """Take in the files of a batch; return why one can't be had."""
        for source in filter(None, (work.output_file_id, work.error_file_id)):
            with TemporaryFile() as part:
                if failure := await exchange.fetch(source, part):
                    return failure
                await asyncio.to_thread(self._take_in, part)
        return None

    def _take_in(self, part: BinaryIO) -> None:
        part.seek(0)
        while line := part.readline(MAX_BODY_BYTES):
            try:
                number = _decoded(line).custom_id
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                continue
            if number in self._numbers and number not in self._places:
                self._places[number] = self._file.tell(), len(line)
                self._file.write(line)

    def take(self, number: str, secret: str) -> Reply | Failure:
        """Return the reply to a request, and forget it."""
        if (place := self._places.pop(number, None)) is None:
            return self._lacking
        self._file.seek(place[0])
        line = _decoded(self._file.read(place[1]))
        if not self._places:
            self.close()
        if (found := line.response) is None:
            try:
                said = msgspec.json.decode(line.error, type=Problem, strict=False)
            except msgspec.MsgspecError:
                said = Problem(message=bytes(line.error).decode(errors="replace"))
            if known := _LACKING.get((said.code or "").removeprefix("batch_")):
                return known
            words = said.words(secret)
            return Failure("server_error", f"the batch has no reply to this request: {words}")
        # vLLM's run-batch writes a refusal in the place of what is not of HTTP.
        body = bytes(line.error if bytes(found.body) == b"null" else found.body)
        if found.status_code in _OF_SERVERS:
            words = failures.classify(found.status_code, body, {}, secret).message
            return Failure("server_error", f"HTTP {found.status_code} in a batch: {words}")
        return Reply(found.status_code, {}, body)

    def close(self) -> None:
        """Give up the disk space."""
        self._file.close()


class Ledger:
    """Which batch holds which requests, in the run's folder: written before anything is sent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, numbers: Sequence[str], batch: str = "") -> None:
        """Write an entry; one without an id may have been sent or not.

        Raises:
            OSError: If it can't be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        entry = msgspec.json.encode((batch, numbers))
        files.write(self._folder / f"{name}.json", entry, durable=True)

    def drop(self, name: str) -> None:
        """Forget a batch of which nothing was begun, or that is gone."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def entries(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Yield name, id and numbers of each, by name; damaged ones are left out."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                content = files.read(path, own=True)
                batch, numbers = msgspec.json.decode(content, type=tuple[str, tuple[str, ...]])
            except (OSError, msgspec.MsgspecError):
                continue
            yield path.stem, batch, numbers
