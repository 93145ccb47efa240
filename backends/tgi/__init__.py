"""Text Generation Inference: draws by text, scores where prefill details are on, labels.

Written against TGI 3.3, whose repository is archived (2026-11-27). It takes no token ids: prompts
are rendered by the server and sent back to it as text, so what it reads is checked against the ids
that it gave to the prompt.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from pydantic import Field

from backends._openai_compatible import ChatConfig, HttpKind, OpenaiCompatible
from backends._tokens import Cache, as_outcome
from backends._transport import Transport
from backends.tgi import wire
from backends.tgi.wire import Ids, Templated
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk, messages_digest
from orchestrator.backend import Capabilities, Endpoint, Provenance
from orchestrator.records import Choice, Failure, Generation, Label, Messages, Scored, unsupported
from orchestrator.wire import by_ids, replies
from orchestrator.wire.failures import Failed
from orchestrator.wire.requests import Dialect

_GENERATE: Final = "/generate"
_MOST_CACHED_CHARACTERS: Final = 2**20
_TAIL: Final = 24
"""Characters before a label that can change how it is cut; checked, not trusted."""


class Config(ChatConfig):
    """Settings of the connection."""

    top_n_tokens: int = Field(5, ge=1, le=1000, description="The server's --max-top-n-tokens.")


class Connection(OpenaiCompatible):
    """A connection to a TGI server."""

    kind = "tgi"

    def __init__(self, endpoint: Endpoint, transport: Transport, config: Config) -> None:
        super().__init__(endpoint, transport, Dialect(system_role=config.system_role))
        self._config = config
        self._spelled = wire.Spelled()
        self._prompts: Cache[bytes, Templated] = Cache(_MOST_CACHED_CHARACTERS)
        self._labels: Cache[tuple[str, str], Ids] = Cache(_MOST_CACHED_CHARACTERS)

    # -- what is asked ----------------------------------------------------------------------------

    @as_outcome
    async def generate(self, ask: GenerateAsk, seed: int) -> Generation:
        """See `orchestrator.backend.Backend`."""
        self._check_turns(ask.messages)
        prompt = await self._prompt(ask.messages)
        # Numbers are those after temperature, top-k and top-p; and a token's text depends on those
        # before it, so places say which is whose.
        reading = self._reading(ask, raw=ask.sampling.temperature == 0, offsets=True)
        more, special = self.dialect.others, self._endpoint.plain
        return await self._ask(
            _GENERATE,
            wire.draw(prompt.text, ask, seed, more, special=special),
            lambda body, _: wire.generation(body, reading, ask, len(prompt.ids), self._spelled),
        )

    @as_outcome
    async def score(self, ask: ScoreAsk) -> Scored:
        """See `orchestrator.backend.Backend`; needs `--enable-prefill-logprobs`."""
        self._check_turns(ask.messages)
        if (refused := _unscorable(ask)) is not None:
            raise Failed(refused)
        if not ask.text:
            return replies.scored_nothing(f"{self.kind}.prefill", ask)
        prompt = await self._prompt(ask.messages)
        ids, logprobs = await self._forced(prompt, ask.text)
        if ask.token_ids and ids != ask.token_ids:
            raise Failed(_OTHER_TOKENS)
        separate = bool(ask.token_ids) or ids == await self._tokens(ask.text, special=False)
        return Scored(
            np.array(ids, dtype=np.int32),
            logprobs,
            len(prompt.ids),
            "separate" if separate else "joint",
            f"{self.kind}.prefill",
        )

    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes] | Failure:
        """See `orchestrator.backend.Backend`; known from replies, without a request."""
        return {one: self._spelled[one] for one in ids if one in self._spelled}

    @as_outcome
    async def rendered(self, messages: Messages) -> tuple[Ids, str]:
        """See `orchestrator.backend.Backend`."""
        found = await self._prompt(messages)
        return found.ids, found.text

    @as_outcome
    async def choose(self, ask: ChooseAsk) -> Choice:
        """See `orchestrator.backend.Backend`.

        Labels of one token each are read from the alternatives. Where some are not listed, a
        grammar that allows the labels alone lists them all, renormalised; a label that is in both
        lists says by how much, which gives the others' probabilities over the whole vocabulary.
        Longer labels are scored one by one.
        """
        self._check_turns(ask.messages)
        if ask.prefix.token_ids and not ask.prefix.text:
            raise Failed(_NO_IDS)
        prompt = await self._prompt(ask.messages)
        if ask.prefix.text:
            text = prompt.text + ask.prefix.text
            prompt = Templated(text, await self._tokens(text, special=self._endpoint.plain))
        groups = [
            [await self._label(prompt.text, text) for text in label.spellings]
            for label in ask.labels
        ]
        paths = [path for group in groups for path in group]
        if len(set(paths)) != len(paths):
            raise Failed(_SAME)
        if by_ids.nested(paths):
            raise Failed(_NESTED)
        if all(len(path) == 1 for path in paths):
            return await self._choose_by_list(prompt, ask.labels, groups)
        found = []
        for label in ask.labels:
            sums = [
                float((await self._forced(prompt, text))[1].sum(dtype=np.float64))
                for text in dict.fromkeys(label.spellings)
            ]
            found.append(by_ids.total([(value, value) for value in sums])[0])
        n_requests = sum(len(dict.fromkeys(label.spellings)) for label in ask.labels)
        values, method = tuple(found), f"{self.kind}.prefill"
        return Choice(values, values, method, len(prompt.ids), n_requests=n_requests)

    @as_outcome
    async def provenance(self) -> Provenance:
        """Version and commit."""
        return self._stated(*await self._version("/info"))

    # -- how it is done ----------------------------------------------------------------------------

    async def _forced(self, prompt: Templated, text: str) -> tuple[Ids, Any]:
        """The ids of a text after a prompt, and ln p of each.

        Raises:
            Failed: If the server gives none, or the text merges with the prompt.
        """
        ids, logprobs = await self._ask(
            _GENERATE,
            wire.score(prompt.text + text, special=self._endpoint.plain),
            lambda body, secret: wire.forced(body, secret, self._spelled),
        )
        n_prompt = len(prompt.ids)
        if ids[:n_prompt] != prompt.ids or len(ids) == n_prompt or not n_prompt:
            raise Failed(_MERGED)
        return ids[n_prompt:], logprobs[n_prompt:]

    async def _choose_by_list(
        self, prompt: Templated, labels: Sequence[Label], groups: Sequence[Sequence[Ids]]
    ) -> Choice:
        free = await self._look(prompt, ())
        tokens = {path[0] for group in groups for path in group}
        found, bound, n_requests = dict(free.logprobs), free.bound, 1
        if tokens - found.keys():
            allowed = [text for label in labels for text in label.spellings]
            among = await self._look(prompt, allowed)
            n_requests = 2
            if shared := tokens & found.keys() & among.logprobs.keys():
                surest = max(shared, key=found.__getitem__)
                shift = found[surest] - among.logprobs[surest]
                others = {one: value + shift for one, value in among.logprobs.items()}
                found, bound = others | found, min(bound, among.bound + shift)
        logprobs, upper = by_ids.totals(groups, {(): by_ids.Reading(found, bound)})
        method = f"{self.kind}.top_n_tokens" + ("+grammar" if n_requests > 1 else "")
        return Choice(logprobs, upper, method, len(prompt.ids), n_requests=n_requests)

    async def _look(self, prompt: Templated, allowed: Sequence[str]) -> by_ids.Reading:
        top_n, special = self._config.top_n_tokens, self._endpoint.plain
        return await self._ask(
            _GENERATE, wire.look(prompt.text, top_n, allowed, special=special), wire.listed
        )

    # -- tokens ------------------------------------------------------------------------------------

    async def _prompt(self, messages: Messages) -> Templated:
        """The rendered prompt, the opening of the assistant's turn included."""

        async def ask() -> Templated:
            if self._endpoint.plain:
                text = messages[-1].content
                return Templated(text, await self._tokens(text, special=True))
            return await self._ask(
                "/chat_tokenize",
                wire.template(self.dialect.taken(messages), self.dialect.template),
                wire.rendered,
            )

        return await self._prompts.learn(
            messages_digest(messages), ask, lambda found: len(found.text)
        )

    async def _label(self, before: str, text: str) -> Ids:
        """The ids of a label behind a prompt, told from the prompt's last characters.

        Raises:
            Failed: If it merges with the prompt.
        """
        tail = before[-_TAIL:]

        async def ask() -> Ids:
            alone = await self._tokens(tail, special=False)
            both = await self._tokens(tail + text, special=False)
            if both[: len(alone)] != alone or len(both) == len(alone):
                raise Failed(_MERGED)
            return both[len(alone) :]

        return await self._labels.learn((tail, text), ask, lambda _: len(tail) + len(text))

    async def _tokens(self, text: str, *, special: bool) -> Ids:
        return await self._ask("/tokenize", wire.tokenize(text, special=special), wire.token_ids)


def _unscorable(ask: ScoreAsk) -> Failure | None:
    """Return the reason why no TGI can score an ask; None if TGI can."""
    lacking = list(ask.features)
    if ask.top_logprobs:
        lacking.append("alternatives of given tokens")
    if ask.end_of_turn:
        lacking.append("score of the end of a turn")
    if lacking:
        return unsupported(f"TGI gives no {', '.join(lacking)}; the embedded server does")
    return _NO_IDS if ask.token_ids and not ask.text else None


_NO_IDS: Final = unsupported("TGI takes texts, no token ids; vLLM and SGLang take both")
_OTHER_TOKENS: Final = unsupported("TGI takes no ids, and cuts this text into other tokens")
_MERGED: Final = unsupported("TGI takes no ids, and the text merges with the prompt's end")
_SAME: Final = Failure(
    "bad_request", "two spellings have the same tokens, so they can't be told apart", permanent=True
)
_NESTED: Final = unsupported(
    "a label begins with another one, and TGI scores no end of a turn that would tell them apart"
)


class Kind(HttpKind[Config]):
    """Connections to models of such a server."""

    cites = ("tgi",)
    capabilities = Capabilities(generate=True, score=True, choose="exact", plain_choose=True)
    made = Connection
