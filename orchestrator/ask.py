"""Requests of methods, as descriptions that they await.

`ask.generate(...)` only builds a description. Awaiting it yields the description to whoever drives
the coroutine (`orchestrator.driver`, or a dictionary in a test), which sends the outcome back in.
So a method has no event loop, no task and no future, and is replayed by calling it again.

Keys. A generation's key is its *draw* (what decides the text); what is read off the text is an
*observation* and not part of the key. Labels belong to the key of a choice, the scored ids to that
of a score. A key does not hold the model's name in the recipe but its identity.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from orchestrator.errors import OrchestratorError
from orchestrator.records import (
    NO_PREFIX,
    Choice,
    Failure,
    Generation,
    Item,
    Label,
    Messages,
    PairScores,
    Prefix,
    Rewards,
    Sampling,
    Scored,
    unknown_features,
)

T = TypeVar("T")

KEY_BYTES = 16
_encode = msgspec.msgpack.Encoder().encode
# Stands where an address will stand; a hash, so that it stands nowhere else.
_PLACE = blake2b(b"address", digest_size=KEY_BYTES).digest()


def digest(*parts: object) -> bytes:
    """A 16-byte content address of msgpack-encodable parts."""
    return blake2b(_encode(parts), digest_size=KEY_BYTES).digest()


class DigestAround:
    """`digest(*before, address, *after)` of many addresses: the rest is encoded once.

    Args:
        before: Parts that stay the same.
        after: Likewise.
    """

    __slots__ = ("_after", "_before")

    def __init__(self, before: Sequence[object], after: Sequence[object]) -> None:
        self._before, self._after = _encode((*before, _PLACE, *after)).split(_PLACE)

    def of(self, address: bytes) -> bytes:
        """The digest with an address of `KEY_BYTES` between them."""
        return blake2b(self._before + address + self._after, digest_size=KEY_BYTES).digest()


def item_digest(item: Item) -> bytes:
    """Content address of everything that a method may use of an item.

    Its cluster is left out: naming one changes intervals and asks nothing anew.
    """
    asked = (item.messages, item.followups)
    known = (item.reference, item.references, item.category, item.fields)
    return digest(item.key, *asked, *known)


@lru_cache(maxsize=1024)
def messages_digest(messages: Messages) -> bytes:
    """Content address of a prompt; kept for a while, since each is asked for more than once."""
    return digest(messages)


def seed_of(key: bytes, seed: int) -> int:
    """Return the seed to send for a draw: a hash of the draw, in [0, 2**31)."""
    return int.from_bytes(digest(key, seed)[:4], "little") >> 1


class AskFailed(OrchestratorError):  # noqa: N818 (named as the architecture names it)
    """Failure of a request by a method, which need not catch it."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(f"{failure.cause}: {failure.message}")


class _Awaited(msgspec.Struct, Generic[T], frozen=True):
    """A description; what it is answered comes back from `await`."""

    def __await__(self) -> Generator[Self, T, T]:
        return (yield self)


class GenerateAsk(msgspec.Struct, frozen=True):
    """Draw a text.

    Attributes:
        model: Name in the recipe.
        messages: The chat prompt.
        sampling: How to draw.
        item_key: Part of the key where the text is sampled: two items with the same words are
            two draws.
        repeat: Which of several independent draws this is.
        top_logprobs: How many alternatives to observe at each position; 0 observes the chosen
            token's log-probability only.
        turn: Which answer of the item this is, from 1; 0 where it is none (a rewriting, a
            judgment). Finds answers that already exist; no part of the key.
        offsets: Whether to observe where in the text each token begins.
    """

    kind: ClassVar[str] = "generate"
    model: str
    messages: Messages
    sampling: Sampling
    item_key: str = ""
    repeat: int = 0
    top_logprobs: int = 0
    turn: int = 0
    offsets: bool = False

    def key(self, identity: bytes, seed: int) -> bytes:
        """Content address of the draw; `seed` is the recipe's."""
        sampled = self.sampling.temperature > 0
        draw = (self.item_key, self.repeat, seed) if sampled else ("", self.repeat, 0)
        return digest("generate", identity, messages_digest(self.messages), self.sampling, *draw)

    def lacking(self, made: Generation) -> ScoreAsk | None:
        """Return a scoring request for observations that a draw lacks; a text is never redrawn."""
        if not self.top_logprobs or made.token_ids is None or not made.token_ids.size:
            return None
        if made.top is not None and made.top.token_ids.shape[1] >= self.top_logprobs:
            return None
        ids = tuple(made.token_ids.tolist())
        return ScoreAsk(self.model, self.messages, ids, made.text, self.top_logprobs)

    def __await__(self) -> Generator[GenerateAsk | ScoreAsk, Any, Generation]:
        made: Generation = yield self
        lacking = self.lacking(made)
        return made if lacking is None else observed(made, (yield lacking))


class ScoreAsk(_Awaited[Scored], frozen=True):
    """Teacher-force given token ids after a chat prompt.

    Attributes:
        model: Name in the recipe.
        messages: The chat prompt.
        token_ids: The continuation, without a stop token.
        text: The same as text, for servers that take no ids.
        top_logprobs: How many alternatives to observe at each position.
        features: What else to observe in the pass, of `records.FEATURES`, sorted.
        end_of_turn: Whether the token that ends the model's turn is scored too, as the last one.
    """

    kind: ClassVar[str] = "score"
    model: str
    messages: Messages
    token_ids: tuple[int, ...]
    text: str = ""
    top_logprobs: int = 0
    features: tuple[str, ...] = ()
    end_of_turn: bool = False

    def key(self, identity: bytes, seed: int) -> bytes:  # noqa: ARG002 (one protocol for all asks)
        """Content address; the seed plays no part."""
        what = (identity, messages_digest(self.messages), self.token_ids or self.text)
        # Scoring costs the same with and without alternatives, so these are two outcomes. What is
        # not asked for is left out, so that stored scores keep their keys.
        seen: tuple[object, ...] = (self.top_logprobs,) if self.top_logprobs else ()
        if self.features or self.end_of_turn:
            seen = (self.top_logprobs, self.features, self.end_of_turn)
        return digest("score", *what, *seen)


def observed(made: Generation, scored: Scored) -> Generation:
    """A draw with the log-probabilities that were read off its tokens afterwards."""
    return msgspec.structs.replace(
        made, logprobs=scored.logprobs, top=scored.top, raw=True, observed="score"
    )


class ChooseAsk(_Awaited[Choice], frozen=True):
    """Read the probability of each label as the continuation of a chat prompt.

    Attributes:
        model: Name in the recipe.
        messages: The chat prompt.
        labels: The closed set of answers, with their spellings.
        prefix: What the assistant has already written (a chain of thought up to its verdict slot).
    """

    kind: ClassVar[str] = "choose"
    model: str
    messages: Messages
    labels: tuple[Label, ...]
    prefix: Prefix = NO_PREFIX

    def key(self, identity: bytes, seed: int) -> bytes:  # noqa: ARG002 (one protocol for all asks)
        """Content address; the seed plays no part."""
        return digest("choose", identity, messages_digest(self.messages), self.labels, self.prefix)


class SimilarityAsk(_Awaited[PairScores], frozen=True):
    """Compare every ordered pair of texts by their token embeddings."""

    kind: ClassVar[str] = "similarity"
    model: str
    texts: tuple[str, ...]

    def key(self, identity: bytes, seed: int) -> bytes:  # noqa: ARG002 (one protocol for all asks)
        """Content address; the seed plays no part."""
        return digest("similarity", identity, self.texts)


class RewardAsk(_Awaited[Rewards], frozen=True):
    """Rate a conversation whose last turn is the assistant's, by a reward model.

    Attributes:
        model: Name in the recipe.
        messages: The conversation; the server renders it by its chat template.
    """

    kind: ClassVar[str] = "reward"
    model: str
    messages: Messages

    def key(self, identity: bytes, seed: int) -> bytes:  # noqa: ARG002 (one protocol for all asks)
        """Return the content address, which does not depend on the seed."""
        return digest("reward", identity, messages_digest(self.messages))


AnyAsk = GenerateAsk | ScoreAsk | ChooseAsk | SimilarityAsk | RewardAsk
# What can't be empty in an ask.
_FILLED = ("messages", "labels", "texts")


def fault_of(ask: AnyAsk) -> str:
    """Return what is wrong with the values of an ask; empty for nothing.

    Structures are not checked when they are made. Taken apart and put together, each value is. That
    texts can be encoded shows when the key is made.
    """
    try:
        msgspec.convert(msgspec.to_builtins(ask), type(ask))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return str(error)
    for name in _FILLED:
        if getattr(ask, name, None) == ():
            return f"no {name}"
    if isinstance(ask, GenerateAsk) and (ask.sampling.max_tokens < 1 or ask.top_logprobs < 0):
        return "max_tokens below 1, or top_logprobs below 0"
    if isinstance(ask, GenerateAsk) and not isfinite(ask.sampling.temperature + ask.sampling.top_p):
        return "temperature or top_p is not a finite number"
    return ""


class Request(msgspec.Struct, eq=False):
    """One ask on its way: what the scheduler handles.

    Attributes:
        key: Content address of the ask.
        ask: What is asked; `ask.model` is a name in the recipe.
        seed: Sent to servers that honour seeds; 0 where nothing is drawn.
        position: Of the first unit that asked.
        attempts: How often it was sent so far.
        waiters: The units that wait for it, each with the slot it fills; the driver's.
        group: Requests of one group share their prompts' beginning: the index of the item.
        begun: Whether the unit has had an answer of a server before.
        prompt_hash: Content address of the prompt.
        tried: Where a model has several servers, what those that failed it said, by number.
    """

    key: bytes
    ask: AnyAsk
    seed: int
    position: int
    attempts: int = 0
    waiters: list[tuple[Any, int]] = []
    group: int = 0
    begun: bool = False
    prompt_hash: bytes = b""
    tried: dict[int, Failure] = {}


class Several(_Awaited[list[Any]], frozen=True):
    """Several asks that may be answered at the same time; all are waited for."""

    asks: tuple[AnyAsk, ...]


class Ask:
    """Builds asks. Stateless; methods receive one so that they import nothing that does I/O."""

    __slots__ = ()

    def generate(  # noqa: PLR0913 (the parts of a draw, most by keyword)
        self,
        model: str,
        messages: Messages,
        sampling: Sampling,
        *,
        item_key: str = "",
        repeat: int = 0,
        top_logprobs: int = 0,
        turn: int = 0,
        offsets: bool = False,
    ) -> GenerateAsk:
        """A text drawn from `model`."""
        return GenerateAsk(model, messages, sampling, item_key, repeat, top_logprobs, turn, offsets)

    def score(
        self,
        model: str,
        messages: Messages,
        answer: Generation | str,
        *,
        features: Iterable[str] = (),
        top_logprobs: int = 0,
        end_of_turn: bool = False,
    ) -> ScoreAsk:
        """The teacher-forced log-probabilities of an answer's tokens under `messages`.

        Args:
            model: Who scores.
            messages: The chat prompt.
            answer: What this very model drew, by its tokens; or a text, tokenised by the server.
            features: What else to observe in the pass; see `records.Scored`.
            top_logprobs: How many alternatives to observe at each position.
            end_of_turn: Whether the token that ends the turn is scored too, as the last one.

        Raises:
            ValueError: For a feature that there is not.
        """
        if unknown := unknown_features(features := tuple(sorted(set(features)))):
            raise ValueError(f"there is no feature {', '.join(unknown)}")
        text = answer if isinstance(answer, str) else answer.text
        ids = None if isinstance(answer, str) else answer.token_ids
        token_ids = () if ids is None else tuple(ids.tolist())
        return ScoreAsk(model, messages, token_ids, text, top_logprobs, features, end_of_turn)

    def choose(
        self,
        model: str,
        messages: Messages,
        labels: tuple[Label, ...],
        *,
        prefix: Prefix = NO_PREFIX,
    ) -> ChooseAsk:
        """The probability of each label as what comes next."""
        return ChooseAsk(model, messages, labels, prefix)

    def similarity(self, model: str, texts: Sequence[str]) -> SimilarityAsk:
        """Precision and recall of every ordered pair of texts."""
        return SimilarityAsk(model, tuple(texts))

    def reward(self, model: str, messages: Messages) -> RewardAsk:
        """Ask a reward model for its outputs for a conversation that ends with an answer."""
        return RewardAsk(model, messages)

    async def all(self, *asks: AnyAsk) -> list[Any]:
        """The outcomes of several asks, in argument order.

        Raises:
            AskFailed: With the first failure in argument order, after all have ended.
        """
        outcomes = await self.settle(*asks)
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                raise AskFailed(outcome)
        return outcomes

    async def settle(self, *asks: AnyAsk) -> list[Any]:
        """Like `all`, but failures come back as values among the outcomes."""
        outcomes = await Several(asks)
        lacking = {
            slot: more
            for slot, (ask, outcome) in enumerate(zip(asks, outcomes, strict=True))
            if isinstance(ask, GenerateAsk)
            and isinstance(outcome, Generation)
            and (more := ask.lacking(outcome)) is not None
        }
        if lacking:
            outcomes = list(outcomes)
            found = await Several(tuple(lacking.values()))
            for slot, scored in zip(lacking, found, strict=True):
                failed = isinstance(scored, Failure)
                outcomes[slot] = scored if failed else observed(outcomes[slot], scored)
        return outcomes
