"""Back-ends that speak to their server in token ids: what their scores and choices have in common.

The server's own tokenizer makes the ids (`_tokens.py`) and tells the texts of tokens. A score is
teacher-forced, a choice the chain rule over the trie of the labels' tokens; how a server is asked
for them is each kind's own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
from pydantic import Field

from backends._openai_compatible import ChatConfig, OpenaiCompatible
from backends._tokens import Cache, Contexts, Ids, as_outcome
from backends._transport import Transport
from orchestrator.ask import ChooseAsk, ScoreAsk
from orchestrator.backend import Endpoint
from orchestrator.records import Choice, Failure, Label, Messages, Scored, unsupported
from orchestrator.wire import by_ids, replies
from orchestrator.wire.by_ids import Cut, Forced, Walk
from orchestrator.wire.failures import Failed
from orchestrator.wire.requests import Dialect

# Sets of labels in their contexts that are remembered; most judges have one.
_MOST_REMEMBERED: Final = 256


class ByIdsConfig(ChatConfig):
    """Settings of a connection to such a server."""

    choose_negligible: float = Field(
        1e-4,
        ge=0,
        lt=1,
        description="Do not request a label that is not listed and whose probability is below this "
        "share of the most probable label's: it is only bounded. 0 requests every label.",
    )


class ByIds(OpenaiCompatible):
    """A connection to one model of a server that takes ids and gives numbers for them.

    Attributes:
        server_name: The server's name in refusals.
        score_method: What its scores are called, after `kind`.
    """

    server_name: ClassVar[str]
    score_method: ClassVar[str]

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        dialect: Dialect,
        config: ByIdsConfig,
        *,
        prefill: bool = False,
        raw: bool | None = None,
    ) -> None:
        super().__init__(endpoint, transport, dialect, prefill=prefill, raw=raw)
        self._config = config
        self._contexts = Contexts(self._tokenizer, plain=endpoint.plain, taken=dialect.taken)
        self._cuts: Cache[tuple[Ids, tuple[Label, ...]], Cut] = Cache(_MOST_REMEMBERED)

    @as_outcome
    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """See `orchestrator.backend.Backend`."""
        return await self._tokenizer.spell(tuple(ids))

    @as_outcome
    async def rendered(self, messages: Messages) -> tuple[Ids, str]:
        """See `orchestrator.backend.Backend`."""
        ids = await self._contexts.prompt(messages)
        return ids, await self._contexts.server.text(ids)

    @as_outcome
    async def score(self, ask: ScoreAsk) -> Scored:
        """See `orchestrator.backend.Backend`."""
        self._check_turns(ask.messages)
        if ask.features:
            said = f"{self.server_name} gives no {', '.join(ask.features)}"
            raise Failed(unsupported(f"{said}; the embedded server does"))
        if not ask.token_ids and not ask.text and not ask.end_of_turn:
            return replies.scored_nothing(f"{self.kind}.{self.score_method}", ask)
        return await self._score(ask)

    @as_outcome
    async def choose(self, ask: ChooseAsk) -> Choice:
        """See `orchestrator.backend.Backend`."""
        self._check_turns(ask.messages)
        return await self._choose(ask)

    async def _score(self, ask: ScoreAsk) -> Scored:
        prompt = await self._contexts.prompt(ask.messages)
        ids, boundary = ask.token_ids, "separate"
        if not ids and ask.text:
            found = await self._contexts.continuation(prompt, ask.text)
            ids, boundary = found.ids, found.boundary
        if ask.end_of_turn:
            ids = (*ids, await self._contexts.end_of_turn())
        forced = await self._forced(prompt, ids, ask.top_logprobs)
        return Scored(
            np.array(ids, dtype=np.int32),
            forced.logprobs,
            len(prompt),
            boundary,
            f"{self.kind}.{self.score_method}",
            forced.n_cached,
            forced.top,
        )

    async def _forced(self, prompt: Ids, ids: Ids, n_top: int) -> Forced:
        """The log-probabilities of ids after a prompt, with alternatives; raises `Failed`."""
        raise NotImplementedError

    async def _choose(self, ask: ChooseAsk) -> Choice:
        """A choice by a model that can be asked it; raises `Failed`."""
        raise NotImplementedError

    async def _labels(self, ask: ChooseAsk) -> tuple[Ids, Walk]:
        """The ids of the prompt with the begun answer, and the labels' paths, nothing read yet.

        Raises:
            Failed: If they can't be told apart, or the server does not say.
        """
        prompt = await self._contexts.prompt(ask.messages)
        begun = ask.prefix.token_ids
        if not begun and ask.prefix.text:
            begun = (await self._contexts.continuation(prompt, ask.prefix.text)).ids
        whole = (*prompt, *begun)
        labels = await self._paths(whole, len(begun), ask.labels)
        negligible = self._config.choose_negligible
        return whole, Walk(labels, math.log(negligible) if negligible else -math.inf)

    async def _paths(self, whole: Ids, n_begun: int, labels: Sequence[Label]) -> Cut:
        """Cut labels after the prompt and the begun answer, whose ids are the last `n_begun`.

        Those that were cut in the same context before are known.

        Raises:
            Failed: If the labels can't be told apart, or the server does not say.
        """
        contexts = self._contexts
        tail = await contexts.deciding_tail(whole, n_begun)

        async def cut() -> Cut:
            found = [
                [(await contexts.continuation(whole, one, n_begun)).ids for one in label.spellings]
                for label in labels
            ]
            nested = by_ids.nested(path for group in found for path in group)
            try:
                names = [label.name for label in labels]
                return by_ids.cut(found, names, await contexts.end_of_turn() if nested else None)
            except by_ids.PathsError as error:
                raise Failed(Failure("bad_request", str(error), permanent=True)) from None

        if tail is None:
            return await cut()
        return await self._cuts.learn((tail, tuple(labels)), cut, lambda _: 1)
