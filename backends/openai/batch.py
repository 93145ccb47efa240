"""Requests in batches: gathered into files, answered within a day, at a lower price.

A request waits until nothing more is asked for a while, or a file is full. What a file holds is
written down in the run's folder before it is sent, under a name that the batch carries with it; so
however a run ends, its next call finds the batches that it left, by id or by name, and reads their
replies: nothing is paid twice. What is asked outside of a run's requests, by probes, goes the
direct way.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_exponential

from backends._tokens import Cache, outcome
from backends._transport import Read, Reply
from backends.openai import Connection
from backends.openai.batch_files import (
    Exchange,
    Folder,
    Ledger,
    Problem,
    Replies,
    Service,
    Work,
    request_line,
)
from backends.openai.transport import OpenaiTransport
from orchestrator.ask import Request
from orchestrator.backend import LOCAL, ROUTES_MISSING, Batch, Call, Client, Endpoint, T
from orchestrator.errors import RunDirectoryError, UsageError
from orchestrator.records import REQUEST, SERVER, Failure
from orchestrator.wire import failures
from orchestrator.wire.failures import known

_KEY: ContextVar[bytes | None] = ContextVar("key of the request that is asked", default=None)
# How long a batch is tried to be sent, and the longest wait between two attempts.
_PATIENCE_S: Final = 600.0
_WAIT_S: Final = 60.0
_MOST_BYTES: Final = 100 << 20
_FULL: Final = "token_limit_exceeded"
_GONE: Final = frozenset({404, 410})
# A batch that has ended answers so to who cancels it.
_ENDED: Final = _GONE | {400, 409}
# Asked again in another batch.
_LOST: Final = Failure("timeout", "the batch of an earlier attempt has no reply to this request")

_log = logging.getLogger(__name__)


class Batched(Connection):
    """A connection to one model that answers in batches."""

    defers = True
    _transport: "BatchTransport"

    def for_request(self, request: Request) -> "ForRequest":
        """See `orchestrator.backend.Backend`."""
        return ForRequest(self, request.key)

    async def withdraw(self) -> None:
        """See `orchestrator.backend.Backend`."""
        await self._transport.withdraw()


class ForRequest(Client):
    """Asks for one request, whose key goes along; what else a worker asks has none."""

    def __init__(self, backend: Batched, key: bytes) -> None:
        self._backend = backend
        self._key = key

    async def send(self, call: Call[T]) -> T | Failure:
        """See `orchestrator.backend.Client`."""
        before = _KEY.set(self._key)
        try:
            return await call(self._backend)
        finally:
            _KEY.reset(before)


class _Sent(msgspec.Struct, eq=False):
    """A batch that holds requests of the run, and its replies once they are here.

    `lines` are what was asked for, until it is known to be begun; empty of an earlier call's.
    `path` is that of its requests, known once somebody asks for one.
    """

    name: str
    number: str
    numbers: tuple[str, ...]
    lines: dict[str, tuple[str, bytes]] = {}
    path: str = ""
    is_earlier: bool = True
    is_followed: bool = False
    is_tried: bool = False
    replies: Replies | None = None


class BatchTransport:
    """See `backends._transport.Transport`; a deadline is the batch's own, not the request's.

    Args:
        endpoint: Of the model, with the settings of its batches and the folder of the ledger.
        exchange: Who takes files of requests to a path, and gives files of replies.
        direct: Where what is no request of the run is asked; None where there is no server.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        exchange: Callable[[str], Exchange],
        direct: OpenaiTransport | None,
    ) -> None:
        self._model, self._secret = endpoint.model, endpoint.secret
        self._settings = endpoint.batch or Batch()
        self._exchange, self._direct = exchange, direct
        self._ledger = Ledger(Path(endpoint.kept_in))
        self._most = self._settings.most
        self._waiting: dict[str, asyncio.Future[_Sent | Failure]] = {}
        self._asked: dict[str, tuple[str, bytes]] = {}
        self._n_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._held: dict[str, _Sent] = {}
        self._open: set[_Sent] = set()
        self._tasks: dict[asyncio.Task[None], _Sent] = {}
        self._read: list[Replies] = []
        self._n_earlier: Cache[str, int] = Cache(1)
        self._is_withdrawn = self._is_alone = False

    async def get(self, path: str, timeout_s: float) -> Reply | Failure:
        """See `backends._transport.Transport`; where there is no server, the model is listed."""
        if self._direct is not None:
            return await self._direct.get(path, timeout_s)
        return Reply(200, {}, msgspec.json.encode({"data": [{"id": self._model}]}))

    async def post(self, path: str, body: bytes, timeout_s: float, read: Read[T]) -> T | Failure:
        """See `backends._transport.Transport`."""
        key = _KEY.get()
        if key is None and self._direct is not None:
            return await self._direct.post(path, body, timeout_s, read)
        taken_up = self._n_earlier.learn("", partial(self._take_up, path), lambda _: 1)
        if isinstance(failure := await outcome(taken_up), Failure):
            return failure
        asked = b"\0".join((key or b"", path.encode(), body))
        number = blake2b(asked, digest_size=12).hexdigest()
        reply: asyncio.Future[_Sent | Failure] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        sent = self._held.pop(number, None)
        if sent is None:
            self._gather(number, path, body)
        elif sent.replies is not None:
            reply.set_result(sent)
        elif not sent.is_followed:
            sent.is_followed, sent.path = True, path
            self._begin(sent, self._follow(sent) if sent.number else self._carry(sent))
        try:
            found: _Sent | Reply | Failure = await reply
        finally:
            del self._waiting[number]
            self._asked.pop(number, None)
        if isinstance(found, _Sent):
            found = self._reply(found, number)
            if self._is_withdrawn and isinstance(found, Failure):
                await asyncio.Future()  # left undone: the run stops
        return found if isinstance(found, Failure) else read(found)

    async def close(self) -> None:
        """See `backends._transport.Transport`; batches that are open go on."""
        if self._timer is not None:
            self._timer.cancel()
        if self._open:
            said = "%s: batches that go on: %d; the same command reads the replies"
            _log.warning(said, self._model, len(self._open), extra={"model": self._model})
        if tasks := [*self._tasks]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for replies in self._read:
            replies.close()
        if self._direct is not None:
            await self._direct.close()

    async def withdraw(self) -> None:
        """Cancel all batches; return when what they had answered is read."""
        self._is_withdrawn = True
        self._asked.clear()
        begun = [sent for sent in self._open if sent.number]
        going_on = [sent for sent in begun if not await self._cancel(sent)]
        if tasks := [task for task, sent in self._tasks.items() if sent not in going_on]:
            await asyncio.wait(tasks)

    async def _cancel(self, sent: _Sent) -> bool:
        """Return False where the endpoint does not cancel a batch."""
        cancel = partial(self._exchange(sent.path).cancel, sent.number)
        failure = await self._until_done(cancel)
        if is_stuck := failure is not None and failure.status not in _ENDED:
            self._say(sent, "can't be cancelled, and goes on", logging.WARNING)
        return not is_stuck

    async def _take_up(self, path: str) -> int:
        """Find the batches that earlier calls left; `Failed` where that can't be known."""
        entries = list(self._ledger.entries())
        unknown = [name for name, number, _ in entries if not number]
        found: Mapping[str, str] = {}
        if unknown:
            found = known(await self._until_done(partial(self._exchange(path).find, unknown)))
        for name, told, numbers in entries:
            if number := told or found.get(name, ""):
                sent = _Sent(name, number, numbers)
                self._held.update(dict.fromkeys(numbers, sent))
            else:
                self._ledger.drop(name)  # it was never begun
        return len(entries)

    def _gather(self, number: str, path: str, body: bytes) -> None:
        if self._is_withdrawn:
            return
        if not self._asked:
            self._n_bytes = 0
        self._asked[number] = path, body
        self._n_bytes += len(body)
        if self._timer is not None:
            self._timer.cancel()
        is_full = len(self._asked) >= self._most or self._n_bytes >= _MOST_BYTES
        wait_s = 0.0 if is_full else self._settings.wait_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._send)

    def _send(self) -> None:
        """Send what was gathered, in files of one route and of at most so many lines."""
        while self._asked and not (self._is_alone and self._open):
            path = next(iter(self._asked.values()))[0]
            lines: dict[str, tuple[str, bytes]] = {}
            n_bytes = 0
            for number, line in list(self._asked.items()):
                n_bytes += len(line[1])
                if len(lines) >= self._most or (lines and n_bytes > _MOST_BYTES):
                    break
                if line[0] == path:
                    lines[number] = self._asked.pop(number)
            # A name begins with the time, so that the newest is the last.
            name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid4().hex}"
            sent = _Sent(name, "", tuple(lines), lines, path, is_earlier=False, is_followed=True)
            self._open.add(sent)
            self._begin(sent, self._carry(sent))

    def _begin(self, sent: _Sent, work: Coroutine[object, None, None]) -> None:
        """Have a batch carried in a task; what that raises is raised to all who wait for it."""

        def ended(task: asyncio.Task[None]) -> None:
            del self._tasks[task]
            error = None if task.cancelled() else task.exception()
            if error is None:
                return
            self._leave(sent)
            if isinstance(error, OSError):
                error = RunDirectoryError(f"a batch of {self._model!r} can't be kept: {error}")
            for number in sent.numbers:
                if self._held.get(number) is sent:
                    del self._held[number]
                waiting = self._waiting.get(number)
                if waiting is not None and not waiting.done():
                    waiting.set_exception(error)

        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = sent
        task.add_done_callback(ended)

    async def _carry(self, sent: _Sent) -> None:
        """Send a batch and follow it to its end."""
        self._open.add(sent)
        if not sent.is_tried:
            self._ledger.write(sent.name, sent.numbers)
        found = await self._until_sent(sent)
        if isinstance(found, Failure):
            # Where nobody said that it was refused, it may have begun all the same.
            self._lose(sent, found, is_gone=400 <= found.status < 500)
            return
        sent.number = found
        self._ledger.write(sent.name, sent.numbers, found)
        self._say(sent, "sent")
        if self._is_withdrawn:
            await self._cancel(sent)
        await self._follow(sent)

    async def _until_sent(self, sent: _Sent) -> str | Failure:
        """Send a file until it is taken; what may have been taken already is looked for first."""
        exchange = self._exchange(sent.path)
        content = b"".join(request_line(number, *line) for number, line in sent.lines.items())

        async def attempt() -> str | Failure:
            if sent.is_tried:
                found = await exchange.find([sent.name])
                if isinstance(found, Failure):
                    # Whatever it is, it does not say that nothing was taken.
                    return msgspec.structs.replace(found, status=0)
                if sent.name in found:
                    return found[sent.name]
            sent.is_tried = True
            return await exchange.send(sent.name, content, sent.path)

        found = await self._until_done(attempt)
        if isinstance(found, Failure) and found.status in ROUTES_MISSING:
            said = f"no batches are taken at this endpoint: {found.message}"
            return msgspec.structs.replace(found, message=said, scope=SERVER)
        return found

    async def _until_done(self, attempt: Callable[[], Awaitable[T | Failure]]) -> T | Failure:
        """Try again while that may help; a failure that is left is one of the server."""
        retrying = AsyncRetrying(
            retry=retry_if_result(lambda found: isinstance(found, Failure) and found.retriable),
            stop=stop_after_delay(_PATIENCE_S),
            wait=wait_exponential(min(1.0, self._settings.poll_s), max=_WAIT_S),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        found: T | Failure = await retrying(attempt)
        if isinstance(found, Failure) and found.retriable:
            return msgspec.structs.replace(found, scope=SERVER)
        return found

    async def _follow(self, sent: _Sent) -> None:
        """Look at a batch until it has ended, and wake all who wait for its replies."""
        self._open.add(sent)
        exchange = self._exchange(sent.path)
        n_ended, status = 0, ""
        while True:
            work = await self._until_done(partial(exchange.look, sent.number))
            if isinstance(work, Failure):
                self._give_up(sent, work)
                return
            if not work.is_open:
                break
            if work.status != "validating":
                sent.lines = {}  # it can't be refused any more
            if (work.n_ended, work.status) != (n_ended, status):
                n_ended, status = work.n_ended, work.status
                said = failures.clean(status, self._secret)
                self._say(sent, f"{said}, {n_ended:,} ended")
            await asyncio.sleep(self._settings.poll_s)
        if work.problems:
            self._refused(sent, work.problems)
        elif (failure := await self._until_done(partial(self._read_replies, sent, work))) is None:
            self._leave(sent)
            self._say(sent, "read")
            # One after the other: together replies are large.
            for number in sent.numbers:
                self._settle(number, sent)
                await asyncio.sleep(0)
        else:
            self._give_up(sent, failure)

    async def _read_replies(self, sent: _Sent, work: Work) -> Failure | None:
        replies = Replies(sent.numbers, work.lacking)
        self._read.append(replies)
        if (failure := await replies.read(self._exchange(sent.path), work)) is not None:
            self._read.remove(replies)
            replies.close()
            # A file may be there a while after the batch.
            is_gone = failure.status in _GONE
            return msgspec.structs.replace(failure, scope=REQUEST) if is_gone else failure
        sent.replies, sent.lines = replies, {}
        return None

    def _reply(self, sent: _Sent, number: str) -> Reply | Failure:
        """The reply to a request; where an earlier call's batch has no answer, it is asked anew."""
        reply = sent.replies.take(number, self._secret) if sent.replies else _LOST
        is_answer = isinstance(reply, Reply) and reply.status == 200
        return _LOST if sent.is_earlier and not is_answer else reply

    def _refused(self, sent: _Sent, problems: tuple[Problem, ...]) -> None:
        """Send once more those lines of a refused file that are not to blame."""
        lines, first = sent.lines, problems[0]
        wrong = {one.line: one for one in problems if one.line in range(1, len(lines) + 1)}
        is_full = first.code == _FULL and len(lines) > 1
        if not lines or not (wrong or is_full):
            said = f"the batch was refused: {first.words(self._secret)}"
            refusal = Failure("bad_request", said, scope=SERVER) if lines else _LOST
            self._lose(sent, refusal, is_gone=True)
            return
        self._ledger.drop(sent.name)
        if is_full:
            # No more tokens may wait at a time: smaller files, one after the other.
            self._is_alone, self._most = True, max(1, len(lines) // 2)
        for place, (number, line) in enumerate(lines.items(), 1):
            if place in wrong:
                said = f"the batch was refused: {wrong[place].words(self._secret)}"
                self._settle(number, Failure("bad_request", said, permanent=True))
            elif number in self._waiting:
                self._gather(number, *line)
        self._leave(sent)

    def _give_up(self, sent: _Sent, failure: Failure) -> None:
        is_gone = failure.status in _GONE
        self._lose(sent, _LOST if is_gone else failure, is_gone=is_gone)

    def _lose(self, sent: _Sent, failure: Failure, *, is_gone: bool) -> None:
        """Tell all who wait that there is no reply yet; if it is gone, that there will be none."""
        self._leave(sent)
        if is_gone:
            self._ledger.drop(sent.name)
        sent.is_followed = False
        for number in sent.numbers:
            if not is_gone:
                self._held.setdefault(number, sent)
            elif self._held.get(number) is sent:
                del self._held[number]
            self._settle(number, failure)

    def _leave(self, sent: _Sent) -> None:
        """Count a batch as open no more; what waited for that is sent."""
        self._open.discard(sent)
        if self._is_alone:
            self._send()

    def _settle(self, number: str, reply: _Sent | Failure) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def _say(self, sent: _Sent, what: str, level: int = logging.INFO) -> None:
        said = "%s: batch %s of %d requests: %s"
        told = {"model": self._model, "note": True}
        number = failures.clean(sent.number, self._secret)
        _log.log(level, said, self._model, number, len(sent.numbers), what, extra=told)


def batch_transport(endpoint: Endpoint) -> BatchTransport:
    """Return the transport of a model that is asked in batches.

    Raises:
        UsageError: If it can't be.
    """
    if endpoint.base_url == LOCAL:
        folder = endpoint.batch.folder if endpoint.batch is not None else None
        exchange = Folder(Path(folder or "."))
        return BatchTransport(endpoint, lambda _: exchange, None)
    if endpoint.hidden:
        raise UsageError(
            "batches are sent by the openai package, which logs headers and queries: none may come "
            "from the environment"
        )
    direct = OpenaiTransport(endpoint)
    return BatchTransport(endpoint, partial(Service, direct, endpoint.secret), direct)
