"""SGLang's server: exact scores and label probabilities by ids, and its prefix cache kept by both.

Written against SGLang 0.5.23; see `docs/servers.md`. Draws, scores and label probabilities all go
through `/generate`, by the ids of a prompt that the server's own `/v1/tokenize` has rendered.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from backends._direct_transport import lean_transport
from backends._label_paths import label_paths
from backends._openai_compatible import OpenaiCompatible
from backends._sglang_tokenizer import GENERATE, SglangTokenizer
from backends._tokens import Contexts, Failed, Ids, known, outcome
from backends._transport import KEEPALIVE_S, Transport
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, Capabilities, Endpoint, Provenance, ServerLoad
from orchestrator.records import Choice, Failure, Generation, Sampling, Scored
from orchestrator.wire import replies, trie
from orchestrator.wire import sglang as wire
from orchestrator.wire.requests import Dialect
from orchestrator.wire.trie import Path, Trie, Walk

CAPABILITIES: Final = Capabilities(
    generate=True, score=True, choose="exact", choose_requests=2, plain_choose=True
)

T = TypeVar("T")
_CONTROL_TIMEOUT_S: Final = 10.0
_NO_FEATURES: Final = "SGLang gives no {}; the embedded server does"
_NO_PROMPT: Final = Failure(
    "unsupported", "SGLang gives no log-probability to the first token of all", permanent=True
)


class Config(BaseModel):
    """Settings of the connection."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    choose_negligible: float = Field(
        1e-4,
        ge=0,
        lt=1,
        description="A label that can't have this share of the most probable label's probability "
        "is only bounded; 0 asks for every label.",
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments of the chat template, such as enable_thinking: false.",
    )
    extra_sampling: dict[str, Any] = Field(
        default_factory=dict, description="Fields added to `sampling_params` of every generation."
    )
    original_logprobs: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="Whether the server was started with SGLANG_RETURN_ORIGINAL_LOGPROB=1, as "
        "those are that a run launches: then log-probabilities are those before the temperature.",
    )
    score_new_tokens: int = Field(
        0, ge=0, le=1, description="Tokens drawn in a scoring pass; 1 for builds that refuse 0."
    )
    keepalive_s: float = Field(
        KEEPALIVE_S, gt=0, description="Seconds that an idle connection is kept."
    )


def create(endpoint: Endpoint, config: Config) -> Backend:
    """A connection to one model of the server.

    Raises:
        UsageError: If the base URL or the key can't be used.
    """
    base_url = endpoint.base_url.rstrip("/").removesuffix("/v1")
    endpoint = msgspec.structs.replace(endpoint, base_url=base_url)
    return Sglang(endpoint, lean_transport(endpoint, config.keepalive_s), config)


class Sglang(OpenaiCompatible):
    """A connection to one model of an SGLang server."""

    kind = "sglang"

    def __init__(self, endpoint: Endpoint, transport: Transport, config: Config) -> None:
        super().__init__(endpoint, transport, Dialect())
        self._config = config
        tokenizer = SglangTokenizer(self._ask, endpoint.model, config.chat_template_kwargs)
        self._contexts = Contexts(tokenizer, plain=endpoint.plain)

    # -- what is asked ----------------------------------------------------------------------------

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `orchestrator.backend.Backend`; seeds count under deterministic inference only."""
        if (refused := self._turns(ask.messages)) is not None:
            return refused
        return await outcome(self._draw(ask, seed))

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """See `orchestrator.backend.Backend`."""
        if (refused := self._turns(ask.messages)) is not None:
            return refused
        if ask.features:
            said = _NO_FEATURES.format(", ".join(ask.features))
            return Failure("unsupported", said, permanent=True)
        if not ask.token_ids and not ask.text and not ask.end_of_turn:
            return replies.scored_nothing(f"{self.kind}.input_token_logprobs", ask)
        return await outcome(self._score(ask))

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """See `orchestrator.backend.Backend`."""
        if (refused := self._turns(ask.messages)) is not None:
            return refused
        return await outcome(self._choose(ask))

    async def provenance(self) -> Provenance | Failure:
        """Version; a failure without the model, or while the server is not ready."""
        ready = await self._transport.get("/ready", _CONTROL_TIMEOUT_S)
        if isinstance(ready, Failure):
            return ready
        if ready.status not in {200, 404}:
            return self._classified(ready)
        served = await self._served()
        if isinstance(served, Failure):
            return served
        secret = self._endpoint.api_key
        info = await self._transport.get("/server_info", _CONTROL_TIMEOUT_S)
        version = self._read(info, lambda body: wire.version(body, secret))
        return version if isinstance(version, Failure) else self._stated(version, "")

    async def load(self) -> ServerLoad | None:
        """Figures from `/metrics`; None for a server without `--enable-metrics`."""
        return await self._metrics()

    # -- how it is done ----------------------------------------------------------------------------

    async def _draw(self, ask: GenerateAsk, seed: int) -> Generation:
        prompt = await self._contexts.prompt(ask.messages)
        reading = replies.Reading(
            top=ask.top_logprobs,
            raw=self._config.original_logprobs or _unscaled(ask.sampling),
            offsets=ask.offsets,
            thinking_end=self._endpoint.thinking_end,
            secret=self._endpoint.api_key,
        )
        return await self._ask(
            GENERATE,
            lambda: wire.draw(prompt, ask, seed, self._config.extra_sampling),
            lambda body, _: wire.generation(body, reading, len(prompt)),
        )

    async def _score(self, ask: ScoreAsk) -> Scored:
        prompt = await self._contexts.prompt(ask.messages)
        if not prompt:
            raise Failed(_NO_PROMPT)
        ids, boundary = ask.token_ids, "separate"
        if not ids and ask.text:
            found = await self._contexts.continuation(prompt, ask.text)
            ids, boundary = found.ids, found.boundary
        if ask.end_of_turn:
            ids = (*ids, await self._contexts.end_of_turn())
        whole, n_new = (*prompt, *ids), self._config.score_new_tokens
        forced = await self._ask(
            GENERATE,
            lambda: wire.score(whole, len(prompt), ask.top_logprobs, n_new),
            lambda body, secret: wire.forced(body, whole, len(prompt), ask.top_logprobs, secret),
        )
        return Scored(
            np.array(ids, dtype=np.int32),
            forced.logprobs,
            len(prompt),
            boundary,
            f"{self.kind}.input_token_logprobs",
            forced.n_cached,
            forced.top,
        )

    async def _choose(self, ask: ChooseAsk) -> Choice:
        prompt = await self._contexts.prompt(ask.messages)
        begun = ask.prefix.token_ids
        if not begun and ask.prefix.text:
            begun = (await self._contexts.continuation(prompt, ask.prefix.text)).ids
        whole = (*prompt, *begun)
        paths = await label_paths(self._contexts, whole, len(begun), ask.labels)
        share = self._config.choose_negligible
        tree = Trie.of([path for group in paths for path in group])
        walk = Walk(tree, math.log(share) if share else -math.inf)
        # The shared beginning first: then its tokens are in the prefix cache, and what it rules
        # out is not asked.
        n_cached = await self._look(walk, tree, whole, [()])
        n_requests = 1
        if nodes := walk.unread():
            await self._look(walk, tree, whole, nodes)
            n_requests += 1
        values = [
            trie.total([trie.value(path, walk.read) for path in dict.fromkeys(group)])
            for group in paths
        ]
        logprobs, upper = zip(*values, strict=True)
        method = f"{self.kind}.token_ids_logprob"
        return Choice(logprobs, upper, method, len(whole), n_cached, n_requests)

    async def _look(self, walk: Walk, tree: Trie, whole: Ids, nodes: Sequence[Path]) -> int:
        """Read the tokens that may follow at nodes; how many prompt tokens were cached."""
        prompts = [(*whole, *node) for node in nodes]
        wanted = [tree.children[node] for node in nodes]
        looked = await self._ask(
            GENERATE,
            lambda: wire.look(prompts, wanted),
            lambda body, secret: wire.looked(body, prompts, wanted, secret),
        )
        walk.add(nodes, looked.readings)
        return looked.n_cached

    async def _ask(
        self,
        path: str,
        encode: Callable[[], bytes],
        decode: Callable[[bytes, str], T | Failure],
    ) -> T:
        """What a reply says.

        Raises:
            Failed: If there is none.
        """
        body = known(await self._post_to(path, encode))
        return known(decode(body, self._endpoint.api_key))


def _unscaled(sampling: Sampling) -> bool:
    """Whether the temperature leaves log-probabilities as they are.

    The server draws greedily for 0 without scaling; top-p and top-k never touch its numbers.
    """
    return sampling.temperature in {0, 1}
