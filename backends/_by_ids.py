"""Back-ends that speak to their server in token ids: what their scores and choices have in common.

The server's own tokenizer makes the ids (`_tokens.py`). A score is teacher-forced, a choice the
chain rule over the trie of the labels' tokens; how a server is asked for them is each kind's own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from backends._label_paths import Cut, LabelPaths
from backends._openai_compatible import OpenaiCompatible
from backends._spelling import Separated
from backends._tokens import Contexts, Ids, as_outcome, outcome
from orchestrator.ask import ChooseAsk, ScoreAsk
from orchestrator.records import Choice, Failure, Scored
from orchestrator.wire import replies, trie
from orchestrator.wire.trie import Walk

_NO_FEATURES: Final = "{} gives no {}; the embedded server does"


class Given(msgspec.Struct, frozen=True):
    """A continuation to score.

    Attributes:
        prompt: Ids of the prompt.
        ids: Ids of what comes after it.
        boundary: How these were cut, as in `orchestrator.records.Scored`.
    """

    prompt: Ids
    ids: Ids
    boundary: str


class Labels(msgspec.Struct):
    """Labels as paths of tokens, and what was read of them so far.

    Attributes:
        whole: Ids of the prompt and of the answer as far as it is begun.
        cut: The labels.
        walk: What was read.
    """

    whole: Ids
    cut: Cut
    walk: Walk

    def choice(self, method: str, n_cached: int, n_requests: int) -> Choice:
        """Return the choice that the readings make."""
        values = [
            trie.total([trie.value(path, self.walk.read) for path in dict.fromkeys(group)])
            for group in self.cut.paths
        ]
        logprobs, upper = zip(*values, strict=True)
        return Choice(logprobs, upper, method, len(self.whole), n_cached, n_requests)


class ByIds(OpenaiCompatible):
    """A connection to one model of a server that takes ids and gives numbers for them.

    Attributes:
        server_name: The server's name in refusals.
        score_method: What its scores are called, after `kind`.
    """

    server_name: ClassVar[str]
    score_method: ClassVar[str]
    _contexts: Contexts
    _label_paths: LabelPaths | None = None
    _separated: Separated | None = None

    @as_outcome
    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """See `orchestrator.backend.SpellsTokens`."""
        if self._separated is None:
            self._separated = Separated(self._contexts.server)
        return await self._separated.spell(ids)

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """See `orchestrator.backend.Backend`."""
        if (refused := self._turns(ask.messages)) is not None:
            return refused
        if ask.features:
            said = _NO_FEATURES.format(self.server_name, ", ".join(ask.features))
            return Failure("unsupported", said, permanent=True)
        if not ask.token_ids and not ask.text and not ask.end_of_turn:
            return replies.scored_nothing(f"{self.kind}.{self.score_method}", ask)
        return await outcome(self._score(ask))

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """See `orchestrator.backend.Backend`."""
        if (refused := self._turns(ask.messages)) is not None:
            return refused
        return await outcome(self._choose(ask))

    async def _score(self, ask: ScoreAsk) -> Scored:
        """The score of something, by a model that can be asked it; raises `Failed`."""
        raise NotImplementedError

    async def _choose(self, ask: ChooseAsk) -> Choice:
        """A choice by a model that can be asked it; raises `Failed`."""
        raise NotImplementedError

    async def _given(self, ask: ScoreAsk) -> Given:
        """The ids to be scored.

        Raises:
            Failed: If the server does not say.
        """
        prompt = await self._contexts.prompt(ask.messages)
        ids, boundary = ask.token_ids, "separate"
        if not ids and ask.text:
            found = await self._contexts.continuation(prompt, ask.text)
            ids, boundary = found.ids, found.boundary
        if ask.end_of_turn:
            ids = (*ids, await self._contexts.end_of_turn())
        return Given(prompt, ids, boundary)

    async def _labels(self, ask: ChooseAsk, negligible: float) -> Labels:
        """The labels as paths, nothing read yet.

        Args:
            ask: Names them.
            negligible: The share of the most probable label's probability under which another one
                is only bounded; 0 for never.

        Raises:
            Failed: If they can't be told apart, or the server does not say.
        """
        prompt = await self._contexts.prompt(ask.messages)
        begun = ask.prefix.token_ids
        if not begun and ask.prefix.text:
            begun = (await self._contexts.continuation(prompt, ask.prefix.text)).ids
        whole = (*prompt, *begun)
        if self._label_paths is None:
            self._label_paths = LabelPaths(self._contexts)
        cut = await self._label_paths.of(whole, len(begun), ask.labels)
        least = math.log(negligible) if negligible else -math.inf
        return Labels(whole, cut, Walk(cut.tree, least))
