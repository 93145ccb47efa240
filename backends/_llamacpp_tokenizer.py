"""llama-server's template and tokenizer, as `backends._tokens` wants them."""

from collections.abc import Mapping
from typing import Final

from backends._tokens import AskServer, Failed, Ids
from orchestrator.records import Failure, Message, Messages
from orchestrator.wire import by_ids
from orchestrator.wire import llamacpp as wire
from orchestrator.wire import llamacpp_completions as completions

COMPLETION: Final = "/completion"
_NEXT: Final = Message("user", "z")


class LlamacppTokenizer:
    """The server's tokenizer; a `backends._tokens.Tokenizer`."""

    def __init__(self, ask: AskServer, template: Mapping[str, object]) -> None:
        self._ask = ask
        self._template = template
        self._spelled: dict[int, bytes] = {}
        self._bos: Ids | None = None
        self._letter: int | None = None

    async def chat(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        """See `backends._tokens.Tokenizer`."""
        template = self._template
        if not opens and not goes_on and messages[-1].role == "assistant":
            # The server goes on from such a message whatever is asked; another turn ends it.
            messages = (*messages, _NEXT)

        def body() -> bytes:
            return wire.apply_template(messages, template, opens=opens, goes_on=goes_on)

        text = await self._ask("/apply-template", body, wire.rendered)
        ids = await self.plain(text, special=True)
        if self._bos is None:
            self._bos = await self.plain("", special=True)
        bos = self._bos
        twice = bos and ids[: 2 * len(bos)] == bos + bos
        return ids[len(bos) :] if twice else ids

    async def plain(self, text: str, *, special: bool) -> Ids:
        """See `backends._tokens.Tokenizer`."""
        return await self._ask(
            "/tokenize", lambda: wire.tokenize(text, special=special), by_ids.token_ids
        )

    async def text(self, ids: Ids) -> str:
        """See `backends._tokens.Tokenizer`."""
        return await self._ask("/detokenize", lambda: wire.detokenize(ids), wire.text)

    async def spells_spaces(self) -> bool:
        """See `backends._tokens.Tokenizer`."""
        found = await self._ask("/tokenize", lambda: wire.spell("a"), wire.pieces)
        return bool(found) and found[0][1].startswith(b" ")

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """See `backends._tokens.Tokenizer`."""
        return (
            await self._ask(
                COMPLETION, lambda: wire.force_one(ids, token, 1), completions.stop_type
            )
            == "eos"
        )

    async def spelled(self, ids: Ids) -> list[bytes]:
        """The bytes of each token, special ones by their names.

        Raises:
            Failed: If the server does not say.
        """
        if any(token not in self._spelled for token in ids):
            distinct = tuple(dict.fromkeys(ids))
            found = await self._ask("/tokenize", lambda: wire.spell(distinct), wire.pieces)
            self._spelled.update(found)
        return [self._spelled.get(token, b"") for token in ids]

    async def letter(self) -> int:
        """A token that is whole characters whatever comes before it.

        Raises:
            Failed: If the server does not say.
        """
        if self._letter is None:
            found = await self.plain("a", special=False)
            if not found:
                raise Failed(Failure("unparseable", "the server makes no tokens of a letter"))
            self._letter = found[-1]
        return self._letter
