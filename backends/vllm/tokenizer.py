"""vLLM's `/tokenize` and `/detokenize`, as `backends._tokens` wants them."""

from typing import Final

from backends._by_ids import TokenizerRoutes
from backends._tokens import Ids
from backends.vllm import wire
from orchestrator.records import Messages
from orchestrator.wire import by_ids

COMPLETIONS: Final = "/v1/completions"


class VllmTokenizer(TokenizerRoutes):
    """The server's tokenizer; a `backends._tokens.Tokenizer`."""

    async def chat(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        """See `backends._tokens.Tokenizer`."""
        model, template = self._model, self._template

        def body() -> bytes:
            return wire.tokenize_chat(model, messages, template, opens=opens, goes_on=goes_on)

        return await self._ask("/tokenize", body, by_ids.token_ids)

    async def spells_spaces(self) -> bool:
        """See `backends._tokens.Tokenizer`."""
        model = self._model
        texts = await self._ask(
            "/tokenize", lambda: by_ids.tokenize_text(model, "a", strings=True), by_ids.token_texts
        )
        return bool(texts) and texts[0].startswith("▁")

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """See `backends._tokens.Tokenizer`."""
        model = self._model
        tried = await self._ask(COMPLETIONS, lambda: wire.trial(model, ids, only=token), wire.tried)
        return tried.finish_reason == "stop"
