"""llama.cpp's llama-server: exact scores and label probabilities by forced steps.

The server scores no given tokens, so it is made to draw them (`forcing.py`): exact, but
as slow as drawing. llama-cpp-python's server has fewer routes; it is told apart by that and draws
texts only. See `docs/servers.md`.
"""

import asyncio
import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from pydantic import AfterValidator, Field

from backends._by_ids import ByIds, ByIdsConfig
from backends._openai_compatible import CONTROL_TIMEOUT_S, OpenaiCompatible
from backends._openai_compatible import ChatConfig as ChatConfig
from backends._tokens import Contexts, Failed, as_outcome, known, outcome
from backends._transport import Transport, http_transport
from backends.llamacpp import completions, wire
from backends.llamacpp.forcing import COMPLETION, Forcer, LlamacppTokenizer
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import (
    Backend,
    BackendKind,
    Capabilities,
    Endpoint,
    Provenance,
    ServerLoad,
)
from orchestrator.errors import UsageError
from orchestrator.records import Choice, Failure, Generation, Scored
from orchestrator.wire import by_ids, failures, replies
from orchestrator.wire.requests import OWN_FIELDS, Dialect, check_names, joined

_NOT_FOUND: Final = (404, 405)
_ALTERNATIVES: Final = 64
_SMALL_VOCABULARY: Final = 4096
"""Of vocabularies up to this size the whole distribution is asked for."""
_DRAFTS: Final = (
    "the server guesses tokens ahead ({}) and gives those it accepts the log-probability 0; start "
    "it without --model-draft and --spec-type"
)
_PYTHON_SERVER: Final = Failure(
    "unsupported",
    "llama-cpp-python's server pairs the log-probabilities of given tokens with the wrong ones "
    "unless the model has a BOS; serve the same GGUF with llama-server (kind: llamacpp)",
    permanent=True,
)
_NO_METRICS: Final = "%s publishes no load figures; restart llama-server with --metrics"
_PYTHON_EXPLICIT: Final = {"min_p": 0.0, "repeat_penalty": 1.0}

_check: Final = partial(check_names, own=OWN_FIELDS | wire.OWN_FIELDS)
logger = logging.getLogger(__name__)


class Config(ByIdsConfig):
    """Settings of the connection."""

    choose_top_logprobs: int | None = Field(
        None,
        ge=1,
        description=(
            "Number of alternatives to search for labels; null: 64, or the whole vocabulary if "
            "it is small."
        ),
    )
    cache_prompt: bool = Field(
        True,  # noqa: FBT003 (a pydantic default)
        description=(
            "If true, the server reuses the cached prompt of a slot; if false, it recomputes "
            "each prompt, so that numbers do not depend on earlier requests, at many times the "
            "cost."
        ),
    )
    extra_body: Annotated[dict[str, Any], AfterValidator(_check)] = Field(
        default_factory=dict,
        description="Fields added to every generation, such as lora: [{id: 0, scale: 1.0}].",
    )


class _Server(msgspec.Struct, frozen=True):
    """Facts about a llama-server, learnt before the first ask.

    Attributes:
        props: What it says of itself.
        model: What it says of the model.
        forcer: Makes it draw given tokens.
        turns: For texts that take several steps; more of them than the server has slots would push
            each other's prompts out of its cache.
    """

    props: wire.Props
    model: wire.Served
    forcer: Forcer
    turns: asyncio.Semaphore


class Llamacpp(ByIds):
    """A connection to one model of llama-server, or of llama-cpp-python's server."""

    kind = "llamacpp"
    server_name = "llama-server"
    score_method = "forced"

    def __init__(self, endpoint: Endpoint, transport: Transport, config: Config) -> None:
        # What llama-cpp-python's server is asked; llama-server has routes of its own.
        dialect = Dialect(
            top_logprobs=max(config.choose_top_logprobs or 0, _ALTERNATIVES),
            top_k_off=0,
            extra=joined(_PYTHON_EXPLICIT, config.extra_body, config.chat_template_kwargs),
            system_role=config.system_role,
        )
        super().__init__(endpoint, transport, dialect, raw=True)
        self._config = config
        self._tokenizer = LlamacppTokenizer(self._ask, self._dialect.template)
        self._contexts = Contexts(self._tokenizer, plain=endpoint.plain, taken=dialect.taken)
        self._found: _Server | None = None
        self._is_python = False
        self._finding = asyncio.Lock()
        self._told_of_metrics = False

    # -- what is asked ----------------------------------------------------------------------------

    @as_outcome
    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `orchestrator.backend.Backend`."""
        if (refused := self._turns(ask.messages)) is not None:
            return refused
        server = await self._server()
        if server is None:
            return await super().generate(ask, seed)
        prompt = await self._contexts.prompt(ask.messages)
        extra = {"cache_prompt": self._config.cache_prompt, **self._dialect.others}
        made = await self._ask(
            COMPLETION,
            lambda: wire.generate(prompt, ask, seed, extra),
            lambda body, secret: completions.draft(body, len(prompt), secret),
        )
        if not made.complete or ask.sampling.stop:
            spelled = await self._tokenizer.spelled(made.tokens)
            lacking = known(completions.place(made, spelled))
            if lacking:
                async with server.turns:
                    for at in lacking:
                        before = (*prompt, *made.tokens[:at])
                        found, _ = await server.forcer.look_up(
                            before, made.tokens[at], ask.top_logprobs
                        )
                        completions.fill(made, at, found, ask.top_logprobs)
        reading = replies.Reading(
            top=ask.top_logprobs,
            offsets=ask.offsets,
            thinking_end=self._endpoint.thinking_end,
            secret=self._endpoint.secret,
        )
        return known(completions.generation(made, reading))

    @as_outcome
    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """See `orchestrator.backend.SpellsTokens`; the server knows the bytes of each."""
        if await self._server() is None:
            raise Failed(_PYTHON_SERVER)
        asked = tuple(ids)
        return dict(zip(asked, await self._tokenizer.spelled(asked), strict=True))

    async def provenance(self) -> Provenance | Failure:
        """Build and fingerprint; a failure if the server does not have the model."""
        server = await outcome(self._server())
        if isinstance(server, Failure):
            return server
        if server is None:
            served = await self._served()
            return served if isinstance(served, Failure) else self._stated("llama-cpp-python", "")
        reply = await self._transport.get("/health", CONTROL_TIMEOUT_S)
        if isinstance(reply, Failure):
            return reply
        if reply.status != 200:
            return self._classified(reply)
        # A short hash of the known facts about weights and template.
        model, props = server.model, server.props
        stated = (props.ftype, model.n_vocab, model.n_params, model.n_bytes, props.template)
        fingerprint = hashlib.sha256(repr(stated).encode()).hexdigest()[:16]
        return self._stated(props.build, fingerprint)

    async def load(self) -> ServerLoad | None:
        """Figures from `/metrics`; None where the server was started without them."""
        reply = await self._transport.get("/metrics", CONTROL_TIMEOUT_S)
        if isinstance(reply, Failure):
            return None
        found = wire.load_figures(reply.body) if reply.status == 200 else None
        if found is None and not self._told_of_metrics:
            self._told_of_metrics = True
            logger.info(_NO_METRICS, self._endpoint.base_url)
        return found

    # -- how it is done ---------------------------------------------------------------------------

    async def _score(self, ask: ScoreAsk) -> Scored:
        server = await self._server()
        if server is None:
            raise Failed(_PYTHON_SERVER)
        given = await self._given(ask)
        async with server.turns:
            step = await server.forcer.force(given.prompt, given.ids, ask.top_logprobs)
        top = known(completions.top_of(step.listed, ask.top_logprobs)) if ask.top_logprobs else None
        logprobs = np.array(step.logprobs, dtype=np.float32)
        return self._scored(given, logprobs, step.n_cached, top)

    async def _choose(self, ask: ChooseAsk) -> Choice:
        server = await self._server()
        if server is None:
            return known(await OpenaiCompatible.choose(self, ask))
        found = await self._labels(ask, self._config.choose_negligible)
        async with server.turns:
            walk, whole = found.walk, found.whole
            n_vocab = server.model.n_vocab
            usual = n_vocab if n_vocab <= _SMALL_VOCABULARY else _ALTERNATIVES
            n_listed = min(self._config.choose_top_logprobs or usual, n_vocab)
            reading, n_cached = await server.forcer.look(whole, n_listed)
            walk.add([()], [reading])
            n_requests = 1
            while nodes := walk.unread():
                reading, _ = await server.forcer.look((*whole, *nodes[0]), n_listed)
                walk.add(nodes[:1], [reading])
                n_requests += 1
            for node, tokens in walk.missing().items():
                for token in tokens:
                    step = await server.forcer.step((*whole, *node), token, 1)
                    n_requests += 1
                    if not math.isnan(step.logprobs[0]):
                        walk.add([node], [by_ids.Reading({token: step.logprobs[0]})])
        return found.choice(f"{self.kind}.n_probs", n_cached, n_requests)

    # -- what the server is -----------------------------------------------------------------------

    async def _server(self) -> _Server | None:
        """Return the facts about llama-server; None for llama-cpp-python's.

        Raises:
            Failed: If it does not say, or its numbers can't be right.
        """
        async with self._finding:
            if self._found is None and not self._is_python:
                self._found = await self._find()
                self._is_python = self._found is None
        return self._found

    async def _find(self) -> _Server | None:
        reply = known(await self._transport.get("/props", CONTROL_TIMEOUT_S))
        if reply.status in _NOT_FOUND:
            return None
        props = known(self._read(reply, wire.props))
        if props.drafts != "none":
            said = failures.clean(_DRAFTS.format(props.drafts))
            raise Failed(Failure("unsupported", said, permanent=True))
        listed = known(await self._transport.get("/v1/models", CONTROL_TIMEOUT_S))
        models = known(self._read(listed, wire.served))
        name = self._endpoint.model
        model = next((one for one in models if name in one.names), None)
        if model is None:
            have = ", ".join(other for one in models for other in one.names) or "none"
            said = failures.clean(f"the server has no model {name!r}; it has {have}")
            raise Failed(Failure("not_found", said, permanent=True))
        forcer = Forcer(
            self._ask, self._tokenizer, model.n_vocab, props.eos, cache=self._config.cache_prompt
        )
        return _Server(props, model, forcer, asyncio.Semaphore(props.n_slots))


class LlamacppKind(BackendKind[Config]):
    """Connections to models of such a server."""

    cites = ("llamacpp",)
    capabilities = Capabilities(generate=True, score=True, choose="exact", plain_choose=True)

    def connect(self, endpoint: Endpoint) -> Backend:
        """See `orchestrator.backend.BackendKind.connect`."""
        try:
            _check(dict(endpoint.extra_body))
        except ValueError as error:
            raise UsageError(f"extra_body of {endpoint.model!r}: {error}") from None
        return Llamacpp(endpoint, http_transport(endpoint, self.config.keepalive_s), self.config)
