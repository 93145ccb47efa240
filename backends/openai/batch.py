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
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

import msgspec
from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_exponential

from backends._transport import Read, Reply
from backends.openai import Openai
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
from orchestrator.ask import ChooseAsk, GenerateAsk, Request, ScoreAsk
from orchestrator.backend import LOCAL, ROUTES_MISSING, Batch, Endpoint
from orchestrator.errors import RunDirectoryError, UsageError
from orchestrator.records import SERVER, Choice, Failure, Generation, Scored

T = TypeVar("T")
_KEY: ContextVar[bytes | None] = ContextVar("key of the request that is asked", default=None)
# How long a batch is tried to be sent, and the longest wait between two attempts.
_PATIENCE_S: Final = 600.0
_WAIT_S: Final = 60.0
_MOST_BYTES: Final = 100 << 20
_FULL: Final = "token_limit_exceeded"
_GONE: Final = frozenset({404, 410})
# Asked again in another batch.
_LOST: Final = Failure("timeout", "the batch of an earlier attempt has no reply to this request")

_log = logging.getLogger(__name__)


class Batched(Openai):
    """A connection to one model that answers in batches.

    Attributes:
        defers: See `orchestrator.backend.Defers`.
    """

    defers = True
    _transport: "BatchTransport"

    def for_request(self, request: Request) -> "_OfRequest":
        """See `orchestrator.backend.SharesOut`."""
        return _OfRequest(self, request.key)

    async def withdraw(self) -> None:
        """See `orchestrator.backend.Defers`."""
        await self._transport.withdraw()


class _OfRequest:
    """Asks for one request, whose key goes along; what else a worker asks has none."""

    def __init__(self, backend: Batched, key: bytes) -> None:
        self._backend = backend
        self._key = key

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        return await self._keyed(self._backend.generate(ask, seed))

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        return await self._keyed(self._backend.choose(ask))

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        return await self._backend.score(ask)

    async def _keyed(self, asked: Awaitable[T]) -> T:
        before = _KEY.set(self._key)
        try:
            return await asked
        finally:
            _KEY.reset(before)


class _Sent:
    """A batch that holds requests of the run, and its replies once they are here.

    `lines` are what was asked for, until it is known to be begun; empty of an earlier call's.
    """

    def __init__(
        self, name: str, number: str, numbers: tuple[str, ...], lines: dict[str, tuple[str, bytes]]
    ) -> None:
        self.name = name
        self.number = number
        self.numbers = numbers
        self.lines = lines
        self.is_earlier = not lines
        self.is_followed = bool(lines)
        self.replies: Replies | None = None


class BatchTransport:
    """See `backends._transport.Transport`; a deadline is the batch's own, not the request's.

    Args:
        endpoint: Of the model, with the settings of its batches and the folder of the ledger.
        exchange: Takes files of requests, and gives files of replies.
        direct: Where what is no request of the run is asked; None where there is no server.
    """

    def __init__(
        self, endpoint: Endpoint, exchange: Exchange, direct: OpenaiTransport | None
    ) -> None:
        self._model, self._secret = endpoint.model, endpoint.secret
        self._settings = endpoint.batch or Batch()
        self._exchange, self._direct = exchange, direct
        self._ledger = Ledger(Path(endpoint.kept_in))
        self._most = self._settings.most
        self._waiting: dict[str, asyncio.Future[Reply | Failure]] = {}
        self._asked: dict[str, tuple[str, bytes]] = {}
        self._n_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._held: dict[str, _Sent] = {}
        self._open: set[_Sent] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._read: list[Replies] = []
        self._taking_up = asyncio.Lock()
        self._is_taken_up = self._is_withdrawn = self._is_alone = False

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
        if (failure := await self._take_up()) is not None:
            return failure
        asked = b"\0".join((key or b"", path.encode(), body))
        number = blake2b(asked, digest_size=12).hexdigest()
        reply: asyncio.Future[Reply | Failure] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        sent = self._held.pop(number, None)
        if sent is None:
            self._gather(number, path, body)
        elif sent.replies is not None:
            reply.set_result(self._reply(sent, sent.replies, number))
        elif not sent.is_followed:
            sent.is_followed = True
            self._begin(sent, self._follow(sent))
        try:
            found = await reply
        finally:
            del self._waiting[number]
            self._asked.pop(number, None)
        return found if isinstance(found, Failure) else read(found)

    async def close(self) -> None:
        """See `backends._transport.Transport`; batches that are open go on."""
        if self._timer is not None:
            self._timer.cancel()
        if self._open:
            n = len(self._open)
            _log.warning(
                "%s: %d %s; the same command reads the replies",
                self._model,
                n,
                "batch goes on" if n == 1 else "batches go on",
                extra={"model": self._model},
            )
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for replies in self._read:
            replies.close()
        if self._direct is not None:
            await self._direct.close()

    async def withdraw(self) -> None:
        """Cancel all batches; return when what they had answered is read."""
        self._is_withdrawn = True
        self._asked.clear()
        for sent in list(self._open):
            if sent.number:
                await self._exchange.cancel(sent.number)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- batches of earlier calls ------------------------------------------------------------------

    async def _take_up(self) -> Failure | None:
        """Find the batches that earlier calls left; a failure where that can't be known."""
        async with self._taking_up:
            if self._is_taken_up:
                return None
            entries = self._ledger.entries()
            unknown = {name: at for name, number, _, at in entries if not number}
            found: Mapping[str, str] | Failure = {}
            if unknown:
                found = await self._until_done(partial(self._exchange.find, unknown))
            if isinstance(found, Failure):
                return found
            for name, known, numbers, _ in entries:
                if number := known or found.get(name, ""):
                    sent = _Sent(name, number, numbers, {})
                    self._held.update(dict.fromkeys(numbers, sent))
                else:
                    self._ledger.drop(name)  # it was never begun
            self._is_taken_up = True
            return None

    # -- new batches -------------------------------------------------------------------------------

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
            alike = [number for number, line in self._asked.items() if line[0] == path]
            lines = {number: self._asked.pop(number) for number in alike[: self._most]}
            sent = _Sent(uuid4().hex, "", tuple(lines), lines)
            self._open.add(sent)
            self._begin(sent, self._carry(sent, path))

    def _begin(self, sent: _Sent, work: Coroutine[object, None, None]) -> None:
        """Have a batch carried in a task; what that raises is raised to all who wait for it."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
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
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _carry(self, sent: _Sent, path: str) -> None:
        """Send a batch and follow it to its end."""
        begun_at = self._ledger.write(sent.name, sent.numbers)
        content = b"".join(request_line(number, *line) for number, line in sent.lines.items())
        found = await self._until_sent(sent.name, content, path, begun_at)
        if isinstance(found, Failure):
            self._lose(sent, found)
            return
        sent.number = found
        self._ledger.write(sent.name, sent.numbers, found)
        self._say(sent, "sent")
        if self._is_withdrawn:
            await self._exchange.cancel(found)
        await self._follow(sent)

    async def _until_sent(
        self, name: str, content: bytes, path: str, begun_at: float
    ) -> str | Failure:
        """Send a file until it is taken; what may have been taken already is looked for first."""
        is_first = True

        async def attempt() -> str | Failure:
            nonlocal is_first
            if not is_first:
                found = await self._exchange.find({name: begun_at})
                if isinstance(found, Failure) or name in found:
                    return found if isinstance(found, Failure) else found[name]
            is_first = False
            return await self._exchange.send(name, content, path)

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

    # -- to the end --------------------------------------------------------------------------------

    async def _follow(self, sent: _Sent) -> None:
        """Look at a batch until it has ended, and hand out its replies."""
        self._open.add(sent)
        n_ended = 0
        while True:
            work = await self._exchange.look(sent.number)
            if isinstance(work, Failure):
                failure: Failure | None = work
            elif work.is_open:
                failure = None
                if work.status != "validating":
                    sent.lines = {}  # it can't be refused any more
                if work.n_ended != n_ended:
                    n_ended = work.n_ended
                    self._say(sent, f"at work, {n_ended:,} ended")
            elif work.problems:
                self._refused(sent, work.problems)
                return
            elif (failure := await self._hand_out(sent, work)) is None:
                return
            if failure is not None and not failure.retriable:
                self._lose(sent, _LOST if failure.status in _GONE else failure)
                return
            await asyncio.sleep(self._settings.poll_s)

    async def _hand_out(self, sent: _Sent, work: Work) -> Failure | None:
        """Give all who wait their replies; return why these can't be had."""
        replies = Replies(work.lacking)
        self._read.append(replies)
        if (failure := await replies.read(self._exchange, work.sources)) is not None:
            return failure
        self._leave(sent)
        sent.replies, sent.lines = replies, {}
        self._say(sent, "read")
        for number in sent.numbers:
            if number in self._waiting:
                reply = self._reply(sent, replies, number)
                # Of a run that withdraws, what has no answer is left undone.
                if not (self._is_withdrawn and isinstance(reply, Failure)):
                    self._settle(number, reply)
        return None

    def _reply(self, sent: _Sent, replies: Replies, number: str) -> Reply | Failure:
        """The reply to a request; where an earlier call's batch has none, it is asked anew."""
        reply = replies.get(number, self._secret)
        return _LOST if sent.is_earlier and isinstance(reply, Failure) else reply

    def _refused(self, sent: _Sent, problems: tuple[Problem, ...]) -> None:
        """Send once more those lines of a refused file that are not to blame."""
        lines, first = sent.lines, problems[0]
        wrong = {problem.line: problem for problem in problems if problem.line}
        is_full = first.code == _FULL and len(lines) > 1
        if not lines or not (wrong or is_full):
            said = f"the batch was refused: {first.words(self._secret)}"
            self._lose(sent, Failure("bad_request", said, scope=SERVER) if lines else _LOST)
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

    def _lose(self, sent: _Sent, failure: Failure) -> None:
        """Give up a batch of which no replies can be had in this call."""
        self._leave(sent)
        # Where nobody said that it was refused, it may have begun all the same.
        if failure is _LOST or (not sent.number and 400 <= failure.status < 500):
            self._ledger.drop(sent.name)
        for number in sent.numbers:
            if self._held.get(number) is sent:
                del self._held[number]
            self._settle(number, failure)

    def _leave(self, sent: _Sent) -> None:
        """Count a batch as open no more; what waited for that is sent."""
        self._open.discard(sent)
        if self._is_alone:
            self._send()

    def _settle(self, number: str, reply: Reply | Failure) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def _say(self, sent: _Sent, what: str) -> None:
        said = "%s: batch %s of %d requests: %s"
        told = {"model": self._model, "note": True}
        _log.info(said, self._model, sent.number, len(sent.numbers), what, extra=told)


def batch_transport(endpoint: Endpoint) -> BatchTransport:
    """Return the transport of a model that is asked in batches.

    Raises:
        UsageError: If it can't be.
    """
    if endpoint.base_url == LOCAL:
        folder = endpoint.batch.folder if endpoint.batch is not None else None
        return BatchTransport(endpoint, Folder(Path(folder or ".")), None)
    if endpoint.hidden:
        raise UsageError(
            "batches are sent by the openai package, which logs headers and queries: none may come "
            "from the environment"
        )
    direct = OpenaiTransport(endpoint)
    return BatchTransport(endpoint, Service(direct, endpoint.secret), direct)
