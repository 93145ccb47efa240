"""SGLang's `/v1/tokenize` and `/v1/detokenize`, as `backends._tokens` wants them."""

from collections.abc import Mapping
from typing import Final

from backends._by_ids import TokenizerRoutes
from backends._tokens import AskServer, Ids
from orchestrator.records import Message, Messages
from orchestrator.wire import by_ids
from orchestrator.wire import sglang as wire

GENERATE: Final = "/generate"


class SglangTokenizer(TokenizerRoutes):
    """The server's tokenizer; a `backends._tokens.Tokenizer`."""

    prefix = "/v1"

    def __init__(self, ask: AskServer, model: str, template: Mapping[str, object]) -> None:
        super().__init__(ask, model)
        self._template = template

    async def chat(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        """See `backends._tokens.Tokenizer`.

        A chat that ends with the assistant's whole turn is asked with a user's turn behind it: by
        itself the server takes that last turn for the user's.
        """
        if not (opens or goes_on) and messages[-1].role == "assistant":
            messages = (*messages, Message("user", "x"))
        model, template = self._model, self._template

        def body() -> bytes:
            return wire.tokenize_chat(model, messages, template, opens=opens, goes_on=goes_on)

        return await self._ask(f"{self.prefix}/tokenize", body, by_ids.token_ids)

    async def text(self, ids: Ids) -> str:
        """See `backends._tokens.Tokenizer`."""
        return await self._ask(
            f"{self.prefix}/detokenize", lambda: wire.detokenize(self._model, ids), wire.text
        )

    async def spells_spaces(self) -> bool:
        """See `backends._tokens.Tokenizer`; told by two words put side by side as ids."""
        word = await self.plain("a", special=False)
        return " " in await self.text((*word, *word))

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """See `backends._tokens.Tokenizer`."""
        return await self._ask(
            GENERATE,
            lambda: wire.trial(ids, token),
            lambda body, secret: wire.ended_by(body, token, secret),
        )
