"""vLLM's server: exact scores of given ids, label probabilities by the chain rule over their trie.

Written against vLLM 0.32. Labels are read from ordinary alternatives (`top_logprobs`), so start the
server with `--max-logprobs 64` or more; what is missing there is drawn by force, token by token, or
asked for by id where the server spoils nothing by that (`gate: false`). Numbers that are processed
can't be forced: they are bounded, or asked for by id. The server's tokenizer is that of `/tokenize`
and `/detokenize`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from pydantic import Field

from backends._by_ids import ByIds, ByIdsConfig
from backends._openai_compatible import TRIED, HttpKind, possible
from backends._tokens import Cache, Ids, TokenizerRoutes, as_outcome, outcome
from backends._transport import Transport
from backends.vllm import wire
from orchestrator.ask import ChooseAsk, GenerateAsk, RewardAsk
from orchestrator.backend import Endpoint, Provenance, ServerLoad
from orchestrator.records import Choice, Failure, Generation, Rewards, unsupported
from orchestrator.wire import by_ids, rulings
from orchestrator.wire.by_ids import Forced, Path, Reading, Walk
from orchestrator.wire.failures import Failed, known
from orchestrator.wire.requests import Dialect

_COMPLETIONS: Final = "/v1/completions"
# A node more costs the server about a millisecond, a request more two.
_NODES_AT_ONCE: Final = 8
_FEW: Final = (
    "{} alternatives a token were asked for and the server lists at most {}; start it with "
    "--max-logprobs {}"
)
_NOT_VLLM: Final = (
    "the server gives no token ids and log-probabilities as vLLM 0.32 does; for other "
    "OpenAI-compatible servers say `backend: openai`"
)
# What vLLM else takes from the model's generation_config.json.
_EXPLICIT: Final = {
    "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "min_tokens": 0,
}  # fmt: skip


class Config(ByIdsConfig):
    """Settings of the connection."""

    choose_top_logprobs: int = Field(64, ge=1, le=1000, description="Alternatives read for labels.")
    raw_logprobs: bool = Field(
        True,  # noqa: FBT003 (a pydantic default)
        description="True if log-probabilities are those of the unmodified softmax; false for a "
        "server with --logprobs-mode processed_logprobs.",
    )
    gate: bool = Field(
        True,  # noqa: FBT003
        description="True if the server may have the V1 model runner, which spoils alternatives "
        "beside requests for given ids: then labels that are not listed are drawn by force, and "
        "with raw_logprobs: false they are only bounded. false (V2): asked for by id.",
    )


class Tokenizer(TokenizerRoutes):
    """The server's tokenizer; a `backends._tokens.TokenizerRoutes`."""

    async def spells_spaces(self) -> bool:
        """See `TokenizerRoutes`."""
        body = by_ids.tokenize(self._model, "a", strings=True)
        texts = await self._ask("/tokenize", body, by_ids.token_texts)
        return bool(texts) and texts[0].startswith("▁")

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """See `TokenizerRoutes`."""
        body = wire.trial(self._model, ids, only=token)
        _, finish_reason, _ = await self._ask(_COMPLETIONS, body, wire.tried)
        return finish_reason == "stop"


class Connection(ByIds):
    """A connection to one model of a vLLM server."""

    kind = "vllm"
    server_name = "vLLM"
    score_method = "prompt_logprobs"
    tokenizer = Tokenizer
    _config: Config

    def __init__(self, endpoint: Endpoint, transport: Transport, config: Config) -> None:
        dialect = Dialect(
            token_ids=True,
            top_k_off=0,
            top_logprobs=wire.ABSURD,
            extra=_EXPLICIT,
            system_role=config.system_role,
        )
        # Where numbers are processed, they are raw if neutral sampling settings make them so.
        raw = config.raw_logprobs or (False if endpoint.extra_body else None)
        super().__init__(endpoint, transport, dialect, config, prefill=True, raw=raw)
        self._cap: Cache[str, int] = Cache(1)
        # What is drawn by force has no number of its own once others are ruled out before it.
        self._forces = config.gate and config.raw_logprobs
        self._n_extra = 0

    # -- what is asked ----------------------------------------------------------------------------

    @as_outcome
    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `orchestrator.backend.Backend`."""
        if ask.top_logprobs:
            await self._enough(ask.top_logprobs)
        drawn = known(await super().generate(ask, seed))
        # The numbers that vLLM puts where it has none.
        is_mixed = drawn.top is not None and np.isneginf(drawn.top.logprobs).any()
        return wire.MIXED_UP if is_mixed else possible(drawn)

    async def reward(self, ask: RewardAsk) -> Rewards | Failure:
        """See `orchestrator.backend.Backend`; the server renders the conversation."""
        return await self._rated(ask)

    @as_outcome
    async def provenance(self) -> Provenance | Failure:
        """Draw a token, then return version and fingerprint; a failure without the model.

        A server of a reward model draws nothing: there a conversation is rated instead, which
        gives no fingerprint.
        """
        await self._check_served()
        version, _ = await self._version()
        body = wire.trial(self._endpoint.model, (0,))
        try:
            fingerprint, _, is_told = await self._ask(_COMPLETIONS, body, wire.tried)
        except Failed as failed:
            if failed.failure.status not in {404, 501}:
                raise
            if isinstance(await self.reward(TRIED), Failure):
                raise
            return self._stated(version, "")
        if not is_told:
            raise Failed(unsupported(_NOT_VLLM))
        return self._stated(version, fingerprint)

    async def load(self) -> ServerLoad | None:
        """Figures from `/metrics`; None where there are none."""
        found = await super().load()
        return found and msgspec.structs.replace(found, n_extra=self._n_extra)

    # -- how it is done ----------------------------------------------------------------------------

    def _dialect_of(self, ask: GenerateAsk) -> Dialect:
        if not ask.top_logprobs:
            return self.dialect
        extra, cap = dict(self.dialect.extra), self._cap.get("") or ask.top_logprobs
        if not self._endpoint.plain:
            # Alternatives are told by their texts otherwise, which collide.
            extra["return_tokens_as_token_ids"] = True
        return msgspec.structs.replace(self.dialect, extra=extra, top_logprobs=cap)

    async def _forced(self, prompt: Ids, ids: Ids, n_top: int) -> Forced:
        if n_top:
            await self._enough(n_top)
        whole = (*prompt, *ids)
        return await self._ask(
            _COMPLETIONS,
            wire.score(self._endpoint.model, whole, n_top),
            lambda body, secret: wire.forced(body, whole, len(prompt), n_top, secret),
        )

    async def _choose(self, ask: ChooseAsk) -> Choice:
        whole, walk = await self._labels(ask)
        # The prompt and what labels begin with together, while it is surely in the prefix cache: in
        # the server's queue others would come between. Of many nodes the root first, since what it
        # rules out is not asked.
        nodes = list(walk.children)
        first = nodes if len(nodes) <= _NODES_AT_ONCE else [()]
        n_cached, n_requests, n_exact = await self._look(walk, whole, first), 1, 0
        look_closer = self._force if self._forces else self._look_exactly
        while True:
            # What is read lowers what labels can have at most, and so what may be neglected.
            if nodes := walk.unread():
                await self._look(walk, whole, nodes)
                n_requests += 1
            elif (self._forces or not self._config.gate) and (missing := walk.missing()):
                n_exact += await look_closer(walk, whole, missing)
            else:
                break
        method = f"{self.kind}.top_logprobs"
        if n_exact:
            method += "+forced" if self._forces else "+token_ids"
        return walk.choice(method, len(whole), n_cached, n_requests + n_exact)

    async def _look(self, walk: Walk, whole: Ids, nodes: Sequence[Path]) -> int:
        """Read the alternatives at nodes; how many prompt tokens were cached, 0 if unknown."""
        most = min(self._config.choose_top_logprobs, await self._most())
        prompts, model = [(*whole, *node) for node in nodes], self._endpoint.model
        # Prompts that are under way beyond one for a request.
        self._n_extra += len(prompts) - 1
        try:
            readings, n_cached = await self._ask(
                _COMPLETIONS,
                wire.look(model, prompts, most),
                lambda body, secret: wire.looked(body, prompts, most, secret),
            )
        finally:
            self._n_extra -= len(prompts) - 1
        walk.add(nodes, readings)
        # Of several prompts the server tells it of the last, which finds what the first computed.
        return n_cached if len(nodes) == 1 else 0

    async def _force(self, walk: Walk, whole: Ids, missing: Mapping[Path, Sequence[int]]) -> int:
        """Read tokens that are missing at nodes by drawing each; how many requests that took."""
        nodes_of: dict[int, list[Path]] = {}
        for node, tokens in missing.items():
            for token in tokens:
                nodes_of.setdefault(token, []).append(node)
        async with asyncio.TaskGroup() as group:
            tasks = [
                (nodes, group.create_task(outcome(self._given_tokens(whole, nodes, [token]))))
                for token, nodes in nodes_of.items()
            ]
        for nodes, task in tasks:
            walk.add(nodes, known(task.result()))
        return len(nodes_of)

    async def _look_exactly(
        self, walk: Walk, whole: Ids, missing: Mapping[Path, Sequence[int]]
    ) -> int:
        """Read tokens that are missing at nodes by their ids; how many requests that took."""
        wanted = sorted({token for tokens in missing.values() for token in tokens})
        firsts = range(0, len(wanted), wire.MOST_EXACT_IDS)
        for first in firsts:
            some = wanted[first : first + wire.MOST_EXACT_IDS]
            walk.add(missing, await self._given_tokens(whole, missing, some))
        return len(firsts)

    async def _given_tokens(
        self, whole: Ids, nodes: Iterable[Path], ids: Sequence[int]
    ) -> tuple[Reading, ...]:
        """Read given next tokens at nodes, drawn by force or by their ids."""
        model, forced = self._endpoint.model, self._forces
        prompts = [(*whole, *node) for node in nodes]
        named = {"allowed_token_ids" if forced else "logprob_token_ids": ids}
        readings, _ = await self._ask(
            _COMPLETIONS,
            wire.look(model, prompts, 0, **named),
            lambda body, secret: wire.looked_exactly(body, prompts, ids, secret, forced=forced),
        )
        return readings

    async def _enough(self, n_top: int) -> None:
        """Refuse more alternatives than the server lists."""
        most = await self._most()
        if n_top > most:
            raise Failed(unsupported(_FEW.format(n_top, most, n_top)))

    async def _most(self) -> int:
        """Return the most alternatives that the server lists, as its refusal of too many says."""

        async def ask() -> int:
            body = wire.look(self._endpoint.model, [(0,)], wire.ABSURD)
            found = await self._post_to(_COMPLETIONS, body, bytes)
            # Its refusal says how many there may be.
            said = found.message if isinstance(found, Failure) else ""
            most = rulings.most_in(said) if rulings.CAP.search(said) else None
            if isinstance(found, Failure) and most is None:
                raise Failed(found)
            return wire.ABSURD if most is None else most

        return await self._cap.learn("", ask, lambda _: 1)


class Kind(HttpKind[Config]):
    """Connections to models of such a server."""

    cites = ("kwon2023efficient",)
    made = Connection
