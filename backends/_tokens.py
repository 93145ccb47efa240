"""A server's own tokenizer: chat prompts as ids, and texts in their context.

For servers that tokenise on request and take ids. What depends on the model alone is asked once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from functools import wraps
from typing import Any, ClassVar, Final, Generic, ParamSpec, Protocol, TypeVar

from orchestrator.ask import messages_digest
from orchestrator.records import Failure, Message, Messages, unsupported
from orchestrator.wire import by_ids
from orchestrator.wire.failures import Failed, known
from orchestrator.wire.requests import NOTHING
from orchestrator.wire.spelling import Context, Continuation

Ids = tuple[int, ...]
K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")
V = TypeVar("V")

_TAIL: Final = 8
"""Tokens before a text that can change how it is cut; checked, not trusted."""
_MOST_CACHED_IDS: Final = 2**20
_MOST_CACHED_CHARACTERS: Final = 2**20
_WORDS: Final = ("x", "7")
_SEPARATOR: Final = "7|7"


class AskServer(Protocol):
    """Sends a body to a path and reads the reply; raises `Failed`."""

    def __call__(
        self, path: str, body: bytes, decode: Callable[[bytes, str], V | Failure]
    ) -> Awaitable[V]:
        """Return the decoded reply."""
        ...


class TokenizerRoutes:
    """The tokenizer of a server; every call is a request, and raises `Failed`.

    By vLLM's `/tokenize` and `/detokenize`, which other servers have too.

    Args:
        ask: Sends requests.
        model: The server's name for it.
        template: Fields that its chat template depends on.
    """

    prefix: ClassVar[str] = ""
    """Of the routes."""
    behind: ClassVar[Message | None] = None
    """Turn that has to stand behind an assistant's whole turn; None for none."""
    chat_body = staticmethod(by_ids.tokenize_chat)
    text_body = staticmethod(by_ids.detokenize)
    text_in = staticmethod(by_ids.text)

    def __init__(
        self, ask: AskServer, model: str, template: Mapping[str, object] = NOTHING
    ) -> None:
        self._ask, self._model, self._template = ask, model, template
        self._separator: Ids = ()
        self._first = self._between = ""

    async def chat(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        """A rendered chat; `opens` the assistant's turn, or `goes_on` with the last message."""
        if self.behind and not (opens or goes_on) and messages[-1].role == "assistant":
            messages = (*messages, self.behind)
        return await self.rendered(messages, opens=opens, goes_on=goes_on)

    async def rendered(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        """A rendered chat, with nothing put behind it."""
        body = self.chat_body(self._model, messages, self._template, opens=opens, goes_on=goes_on)
        return await self._ask(f"{self.prefix}/tokenize", body, by_ids.token_ids)

    async def plain(self, text: str, *, special: bool) -> Ids:
        """A text; `special` adds what the tokenizer puts around one."""
        return await self._ask(
            f"{self.prefix}/tokenize",
            by_ids.tokenize(self._model, text, special=special),
            by_ids.token_ids,
        )

    async def text(self, ids: Ids) -> str:
        """The text of ids, special tokens included."""
        return await self._ask(
            f"{self.prefix}/detokenize", self.text_body(self._model, ids), self.text_in
        )

    async def spell(self, ids: Ids) -> Mapping[int, bytes]:
        """Return the texts of tokens; a token that can't be told apart is left out.

        Each could be asked for by itself, but a run meets tens of thousands of tokens: they are put
        between separators. Bytes that are no whole character come back as U+FFFD.
        """
        if not self._separator:
            await self._learn_separator()
        found: dict[int, bytes] = {}
        parts = [ids]
        while parts:
            part = parts.pop()
            pieces = await self._pieces(part)
            if len(pieces) == len(part):
                texts = (piece.encode("utf-8", "replace") for piece in pieces)
                found |= dict(zip(part, texts, strict=True))
            elif len(part) > 1:
                # The separator is in the text of a token, or merges with it.
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
        return found

    async def _pieces(self, ids: Ids) -> list[str]:
        asked = [*self._separator]
        for token in ids:
            asked += (token, *self._separator)
        text = await self.text(tuple(asked))
        if not text.startswith(self._first):
            return []
        return text[len(self._first) :].split(self._between)[:-1]

    async def _learn_separator(self) -> None:
        """Find the text of the separator at the beginning, and between others.

        They differ where the tokenizer puts a space before each word but the first.
        """
        ids = await self.plain(_SEPARATOR, special=False)
        self._first = await self.text(ids)
        twice = await self.text((*ids, *ids, *ids))
        rest = twice.removeprefix(self._first)
        self._between = rest[: len(rest) // 2]
        if not self._between or rest != 2 * self._between or rest == twice:
            raise Failed(unsupported("the server's tokenizer does not decode tokens one by one"))
        self._separator = ids

    async def spells_spaces(self) -> bool:
        """Return True if it puts a space before every text (SentencePiece)."""
        raise NotImplementedError

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """Return True if the model, after `ids`, ends its answer by this token."""
        raise NotImplementedError


class Cache(Generic[K, V]):
    """The values used last, up to a total weight; each is asked for once at a time."""

    def __init__(self, most: int) -> None:
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._left = most
        self._asking: dict[K, asyncio.Future[V | Failure]] = {}

    async def learn(self, key: K, ask: Callable[[], Awaitable[V]], weight: Callable[[V], int]) -> V:
        """The value of a key; who wants it while it is asked for gets the same answer.

        A run begins with as many requests at once as its limit allows, all of which want to know
        how the same labels are cut.

        Args:
            key: Of the value.
            ask: Asks for it.
            weight: Of the value, once it is known.

        Raises:
            Failed: If `ask` fails, or that of another who wanted the same.
        """
        found = self.get(key)
        while found is None:
            asking = self._asking.get(key)
            if asking is None:
                return await self._learn(key, ask, weight)
            await asyncio.wait((asking,))
            # Cancelled where the one that asked was: then the next one does.
            found = self.get(key) if asking.cancelled() else known(asking.result())
        return found

    async def _learn(
        self, key: K, ask: Callable[[], Awaitable[V]], weight: Callable[[V], int]
    ) -> V:
        asking: asyncio.Future[V | Failure] = asyncio.get_running_loop().create_future()
        self._asking[key] = asking
        try:
            value = await ask()
        except Failed as failed:
            asking.set_result(failed.failure)
            raise
        else:
            self.put(key, value, weight(value))
            asking.set_result(value)
            return value
        finally:
            del self._asking[key]
            asking.cancel()

    def get(self, key: K) -> V | None:
        """The value of a key, which then counts as used."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Keep a value."""
        if key in self._kept:
            return
        self._kept[key] = value, weight
        self._left -= weight
        while self._left < 0 and len(self._kept) > 1:
            self._left += self._kept.popitem(last=False)[1][1]


class Contexts:
    """Prompts as ids and texts in their context, asked of a server and remembered.

    Methods raise `Failed` if the server does not say.

    Args:
        server: Tokenises.
        plain: Whether prompts are single texts without a chat template.
        taken: Gives messages in the roles that the server takes.

    Attributes:
        server: Tokenises.
    """

    def __init__(
        self,
        server: TokenizerRoutes,
        *,
        plain: bool,
        taken: Callable[[Messages], Messages] = lambda messages: messages,
    ) -> None:
        self.server = server
        self._taken = taken
        self._is_plain = plain
        self._prompts: Cache[bytes, Ids] = Cache(_MOST_CACHED_IDS)
        self._texts: Cache[str, Ids] = Cache(_MOST_CACHED_CHARACTERS)
        self._contexts: Cache[Ids, Context] = Cache(_MOST_CACHED_IDS)
        self._continuations: Cache[tuple[Ids, str], Continuation] = Cache(_MOST_CACHED_CHARACTERS)
        self._opening: Ids | None = None
        self._spells_spaces: bool | None = None
        self._end_of_turn: Cache[str, int] = Cache(1)

    async def prompt(self, messages: Messages) -> Ids:
        """The ids of a prompt, the opening of the assistant's turn included."""

        def ask() -> Awaitable[Ids]:
            if self._is_plain:
                return self.server.plain(messages[-1].content, special=True)
            return self.server.chat(self._taken(messages), opens=True, goes_on=False)

        return await self._prompts.learn(messages_digest(messages), ask, len)

    async def continuation(self, prompt: Ids, text: str, n_begun: int = 0) -> Continuation:
        """The ids of `text` after a prompt, of which the last `n_begun` are the begun answer."""
        tail = await self.deciding_tail(prompt, n_begun)
        if tail is None:
            return await self._continuation(await self._context(prompt), text)
        context = await self._context(tail)
        return await self._continuations.learn(
            (tail, text), lambda: self._continuation(context, text), lambda _: _TAIL + len(text)
        )

    async def deciding_tail(self, prompt: Ids, n_begun: int = 0) -> Ids | None:
        """The end of a prompt that alone says how a text after it is cut; None for all of it."""
        if self._opening is None:
            self._opening = await self._find_opening()
        length = len(self._opening) + n_begun
        tail = prompt[-(length if 0 < length <= 2 * _TAIL else _TAIL) :]
        return tail if (await self._context(tail)).whole else None

    async def _continuation(self, context: Context, text: str) -> Continuation:
        alone = await self._texts.learn(
            text, lambda: self._encode_alone(text), lambda _: _TAIL + len(text)
        )
        joint = await self.server.plain(context.text + text, special=False)
        return context.followed(alone, joint)

    async def end_of_turn(self) -> int:
        """The token by which the template ends the assistant's turn and the model its answer.

        Raises:
            Failed: If there is none, or the server does not say.
        """
        return await self._end_of_turn.learn("", self._find_end_of_turn, lambda _: 1)

    async def _find_end_of_turn(self) -> int:
        if self._is_plain:
            raise Failed(_NO_TURNS)
        turns = (Message("user", "x"), Message("assistant", "y"))
        begun = await self.server.chat(turns, opens=False, goes_on=True)
        ended = await self.server.chat(turns, opens=False, goes_on=False)
        if ended[: len(begun)] == begun:
            for token in ended[len(begun) :]:
                if await self.server.ends_turn(begun, token):
                    return token
        raise Failed(unsupported("the chat template ends a turn by no token that ends an answer"))

    async def _find_opening(self) -> Ids:
        """Return the tokens that every prompt ends with: the opening of the assistant's turn."""
        if self._is_plain:
            return ()
        one, other = [await self.prompt((Message("user", word),)) for word in _WORDS]
        n = 0
        while n < min(len(one), len(other)) and one[-n - 1] == other[-n - 1]:
            n += 1
        return one[len(one) - n :]

    async def _context(self, ids: Ids) -> Context:
        async def ask() -> Context:
            text = await self.server.text(ids)
            again = await self.server.plain(text, special=False)
            return Context(text, ids, again == ids)

        return await self._contexts.learn(ids, ask, lambda _: _TAIL + len(ids))

    async def _encode_alone(self, text: str) -> Ids:
        if self._spells_spaces is None:
            self._spells_spaces = await self.server.spells_spaces()
        if self._spells_spaces:
            # Such a tokenizer puts a space before every text; a line break takes it instead.
            line = await self.server.plain("\n", special=False)
            both = await self.server.plain("\n" + text, special=False)
            if both[: len(line)] == line:
                return both[len(line) :]
        return await self.server.plain(text, special=False)


_NO_TURNS: Final = unsupported("a base model (template: none) has no token that ends a turn")


NO_TEXT: Final = Failure(
    "bad_request", "the request holds a lone surrogate, which is no text", permanent=True
)


async def outcome(work: Awaitable[V]) -> V | Failure:
    """Await `work`; return its result, or the failure that ended it."""
    try:
        return await work
    except Failed as failed:
        return failed.failure
    except UnicodeEncodeError:
        return NO_TEXT


def as_outcome(method: Callable[P, Awaitable[V]]) -> Callable[P, Coroutine[Any, Any, V | Failure]]:
    """Let a coroutine function return the failure that it raises as `Failed`."""

    @wraps(method)
    async def call(*arguments: P.args, **named: P.kwargs) -> V | Failure:
        return await outcome(method(*arguments, **named))

    return call
