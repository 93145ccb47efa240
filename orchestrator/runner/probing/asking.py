"""Questions to one model on one server: what is not answered for the moment is asked again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from orchestrator.ask import Ask, ChooseAsk, GenerateAsk, RewardAsk, ScoreAsk
from orchestrator.backend import Backend, Provenance, reward
from orchestrator.probing import requests
from orchestrator.probing.abilities import Example
from orchestrator.probing.replies import HttpReply
from orchestrator.records import (
    ACCOUNT,
    SERVER,
    UNCLEAR,
    Choice,
    Failure,
    Generation,
    Label,
    Rewards,
    Scored,
)
from orchestrator.runner.probing.http import Http
from orchestrator.wire import failures

# Between attempts of a question that a server does not answer for the moment, seconds; and how long
# it may ask to wait.
_WAITS_S: Final = (0.25, 0.5, 1.0)
_LONGEST_WAIT_S: Final = 5.0
_OWN_ERRORS: Final = frozenset({200, 500})
# What may be asked at a time. The answer to one question seldom waits for that to another.
AT_ONCE: Final = 8

T = TypeVar("T")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server and model to probe.

    Attributes:
        kind: Of the back-end.
        model: The server's name for the model.
        backend: Connected.
        http: To the same server, open.
        provenance: What the server says it is.
        plain: Whether it is a base model, which has no chat.
        examples: Made-up asks of methods, which have to be answered as they need it.
        at_once: Requests that it may have at a time.
        wants: Kinds of asks that the run sends it; texts, where that is not known.
        was_met: Whether it has answered in this call. Then a right that is refused is no finding:
            the run meets it too, and finds out whose it is.
    """

    kind: str
    model: str
    backend: Backend
    http: Http
    provenance: Provenance
    plain: bool = False
    examples: tuple[Example, ...] = ()
    at_once: int = AT_ONCE
    wants: frozenset[str] = frozenset({"generate"})
    was_met: bool = False

    @property
    def only_rates(self) -> bool:
        """True if it is only asked to rate answers, as reward models are, which draw none."""
        return self.wants == {"reward"}


class Asking:
    """Asks one server, no more than so many questions at a time.

    Attributes:
        room: For questions under way.
        unsure: What a server said that answered nothing for the moment; empty where it answered.
            Nothing that was found then is a fact to keep.
        is_closed: Whether that is the account's or the address's doing, and lasts until somebody
            acts.
    """

    def __init__(self, target: Target) -> None:
        self._t = target
        self.room = asyncio.Semaphore(target.at_once)
        self.unsure = ""
        self.is_closed = False

    async def post(self, path: str, body: dict[str, object]) -> HttpReply:
        """Post JSON to a route."""
        return await self._patiently(lambda: self._t.http.post(path, body), _failure_of)

    async def draw(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """Draw a text."""
        return await self._patiently(lambda: self._t.backend.generate(ask, seed), _failed)

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """Score a text."""
        return await self._patiently(lambda: self._t.backend.score(ask), _failed)

    async def choose(self, labels: tuple[Label, ...]) -> Choice | Failure:
        """Choose among labels after the probe's question."""
        return await self.chosen(Ask().choose(self._t.model, requests.QUESTION, labels))

    async def chosen(self, ask: ChooseAsk) -> Choice | Failure:
        """Answer a choice."""
        return await self._patiently(lambda: self._t.backend.choose(ask), _failed)

    async def rated(self, ask: RewardAsk) -> Rewards | Failure:
        """Rate a conversation."""
        return await self._patiently(lambda: reward(self._t.backend, ask), _failed)

    async def _patiently(
        self, ask: Callable[[], Awaitable[T]], failure_of: Callable[[T], Failure | None]
    ) -> T:
        """Return a reply; what fails for the moment is asked again a few times, a refusal once."""
        waits_s = iter(_WAITS_S)
        is_again = False
        while True:
            async with self.room:
                found = await ask()
            failure = failure_of(found)
            if failure is None:
                return found
            if not failure.retriable:
                if is_again or not self._is_closed_by(failure):
                    break
                is_again = True
                continue
            wait_s = None if self.unsure else next(waits_s, None)
            if wait_s is None:
                break
            stated = min(failure.retry_after_s or 0.0, _LONGEST_WAIT_S)
            await asyncio.sleep(max(wait_s, stated))
        # A server's own error may be its answer to an odd question; that it is busy or away is not.
        is_away = failure.retriable and failure.status not in _OWN_ERRORS
        if is_away or self._is_closed_by(failure):
            self.unsure = failure.message
            self.is_closed = failure.scope in {ACCOUNT, SERVER}
        return found

    def _is_closed_by(self, failure: Failure) -> bool:
        is_right = failure.scope == UNCLEAR and failure.cause == "unauthorised"
        return failure.scope in {ACCOUNT, SERVER} or (self._t.was_met and is_right)


def _failed(found: object) -> Failure | None:
    return found if isinstance(found, Failure) else None


def _failure_of(reply: HttpReply) -> Failure | None:
    """Return the failure in a reply; None where something was answered that is no error."""
    if reply.status == 200:
        return None if reply.table() else Failure("unparseable", reply.words, status=200)
    if reply.status == 0:
        return Failure("connection", reply.words)
    return failures.classify(reply.status, reply.body, {})
