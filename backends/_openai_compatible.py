"""Backends that speak OpenAI's chat completions, our own routes, or those of reward models.

What differs between servers is a `Dialect` and a transport; files in `backends/` put them together.
"""

import asyncio
import difflib
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import msgspec
import numpy as np
from pydantic import Field

from backends._tokens import Ids, TokenizerRoutes, as_outcome, outcome
from backends._transport import Reply, Transport, http_transport
from orchestrator.ask import ChooseAsk, GenerateAsk, RewardAsk, ScoreAsk
from orchestrator.backend import (
    ROUTES_MISSING,
    Backend,
    BackendKind,
    Capabilities,
    Endpoint,
    Provenance,
    ServerLoad,
)
from orchestrator.plugins.base import Settings
from orchestrator.records import (
    FEATURES,
    UNREACHED,
    Choice,
    Failure,
    Generation,
    Message,
    Messages,
    Rewards,
    Scored,
    unsupported,
)
from orchestrator.wire import failures, labels, replies, requests
from orchestrator.wire import rewards as wire
from orchestrator.wire.drawn import Reading
from orchestrator.wire.failures import Failed, known
from orchestrator.wire.requests import Dialect

T = TypeVar("T")

TRIED: Final = RewardAsk("", (Message("user", "x"), Message("assistant", "y")))
"""A conversation that shows whether a server rates any."""

_NO_ANSWER: Final = Failure(
    "bad_request",
    "a reward model rates a conversation that ends with the assistant's turn, and this one does "
    "not",
    permanent=True,
)
_NO_TURNS: Final = unsupported(
    "a reward model rates turns, and `template: none` leaves them out; remove it, and start the "
    "server with a chat template if the model has none (vLLM: --chat-template)"
)
_NO_ROUTE: Final = (
    "{model!r} at {url} rates no answers ({path}: {said}); serve the weights of a reward model "
    "there, of a class such as LlamaForSequenceClassification or Qwen2ForRewardModel"
)


A = TypeVar("A", ScoreAsk, ChooseAsk)
Decode: TypeAlias = Callable[[bytes], T | Failure]
"""Makes something of a reply's body."""
CONTROL_TIMEOUT_S: Final = 10.0
"""Timeout in seconds of a question about the server itself."""
NO_LOGPROBS: Final = "log-probabilities are switched off (logprobs: false)"
_NO_PLAIN_CHOICE: Final = (
    "label probabilities of a base model (template: none) are read by the embedded server only"
)


class OpenaiCompatible(Backend):
    """A connection to one model behind `/v1/chat/completions`.

    Args:
        endpoint: Where, which model, which key.
        transport: Sends the bytes.
        dialect: What the server wants to see.
        prefill: Whether the server goes on from a begun assistant turn.
        raw: Whether log-probabilities are those of the unmodified softmax; None says so only
            where the sampling settings change nothing.
    """

    kind = "openai"
    path = "/v1"
    lists: tuple[str, ...] = ("/v1/models",)
    """Routes that may list the models, the first that does."""
    speaks_chat = True  # probes may ask the server's chat route themselves
    knows_template = False
    """True if its chat route takes our own field `template`; else base models are completed."""
    tokenizer: ClassVar[type[TokenizerRoutes]] = TokenizerRoutes
    """Class of its tokenizer's routes."""
    _names: tuple[str, ...] = ()

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        dialect: Dialect,
        *,
        prefill: bool = False,
        raw: bool | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._transport = transport
        plain = self.knows_template and endpoint.plain
        extra = {**dialect.extra, **endpoint.extra_body}
        self.dialect = msgspec.structs.replace(dialect, plain=plain, extra=extra)
        self._tokenizer = self.tokenizer(self._ask, endpoint.model, self.dialect.template)
        self._prefill = prefill
        self._firsts: dict[object, asyncio.Future[None]] = {}
        self.renamed = self.asked_again = lambda: None
        self._raw = raw

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._endpoint!r})"

    @as_outcome
    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `orchestrator.backend.Backend`."""
        self._check_turns(ask.messages)
        dialect, model = self._dialect_of(ask), self._endpoint.model
        legacy = self._endpoint.plain and not dialect.plain
        encode = requests.completion if legacy else requests.chat
        sampling, raw = ask.sampling, self._raw
        if raw is None:
            # Settings that leave the softmax as it is on every server.
            is_neutral = sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0
            raw = sampling.temperature == 0 or is_neutral
        reading = self._reading(ask, raw=raw, logprobs=dialect.logprobs, ids=dialect.token_ids)
        read = replies.completion if legacy else replies.generation
        return await self._post(
            "/completions" if legacy else "/chat/completions",
            encode(model, ask, seed, dialect),
            lambda body: read(body, reading),
        )

    def _reading(self, ask: GenerateAsk, *, raw: bool, **more: bool) -> Reading:
        """The parts of the reply to read; see `orchestrator.wire.drawn.Reading`."""
        return Reading(
            top=ask.top_logprobs,
            raw=raw,
            thinking_end=self._endpoint.thinking_end,
            secret=self._endpoint.secret,
            **{"offsets": ask.offsets, **more},
        )

    def _dialect_of(self, ask: GenerateAsk) -> Dialect:  # noqa: ARG002 (for those that tell apart)
        """Return the dialect of the server for this ask."""
        return self.dialect

    def _taken(self, ask: A) -> A:
        """Return what is asked in the roles that the server takes."""
        return msgspec.structs.replace(ask, messages=self.dialect.taken(ask.messages))

    def _check_turns(self, messages: Messages) -> None:
        """See that a base model can be asked this; else `Failed`."""
        if self._endpoint.plain and len(messages) != 1:
            n = len(messages)
            said = f"a base model (template: none) goes on from one text, not from {n} turns"
            raise Failed(unsupported(said))

    async def score(self, ask: ScoreAsk) -> Scored | Failure:  # noqa: ARG002 (the protocol's)
        """Not possible: current OpenAI-compatible chat endpoints score no given tokens."""
        return unsupported(
            "kind openai can't score given tokens; say `backend: vllm` (or sglang, tgi, llamacpp) "
            "of such servers, or serve the weights by kind embedded"
        )

    @as_outcome
    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """From the alternatives of one token; refuses labels that are longer."""
        if self._endpoint.plain:
            return unsupported(_NO_PLAIN_CHOICE)
        if not self.dialect.logprobs:
            return Failure("no_logprobs", NO_LOGPROBS, permanent=True)
        if (ask.prefix.text or ask.prefix.token_ids) and not (self._prefill and ask.prefix.text):
            return unsupported(
                "this endpoint is not known to go on from a begun answer; where it takes "
                "that (vLLM, SGLang, llama.cpp), say "
                "`backend: {kind: openai, continue_final_message: true}`"
            )
        return await self._post(
            "/chat/completions",
            requests.choose_by_top(self._endpoint.model, ask, self.dialect),
            lambda body: labels.choice_from_top(body, ask.labels, self._endpoint.secret),
        )

    @as_outcome
    async def rendered(self, messages: Messages) -> tuple[Ids, str | None]:
        """See `orchestrator.backend.Backend`; by vLLM's routes, which other servers have."""
        messages = self.dialect.taken(messages)
        ids = await self._tokenizer.chat(messages, opens=True, goes_on=False)
        text = await outcome(self._tokenizer.text(ids))
        return ids, None if isinstance(text, Failure) else text

    async def provenance(self) -> Provenance | Failure:
        """Ask the server for its name and version; hosted endpoints say little."""
        listed = await self._listed()
        # That the list does not come says nothing of the routes that are asked for answers.
        if isinstance(listed, Failure) and listed.cause in {*UNREACHED, "bad_request"}:
            return listed
        return self._stated("", "")

    async def load(self) -> ServerLoad | None:
        """Figures from `/metrics`; None where there are none."""
        reply = await self._transport.get("/metrics", CONTROL_TIMEOUT_S)
        if isinstance(reply, Failure) or reply.status != 200:
            return None
        return replies.load_figures(reply.body, self._endpoint.model)

    async def close(self) -> None:
        """See `orchestrator.backend.Backend`."""
        await self._transport.close()

    @as_outcome
    async def _rated(self, ask: RewardAsk) -> Rewards | Failure:
        """Rate a conversation by `/pooling`, where the server renders it."""
        self._check_ratable(ask.messages)
        model, template = self._endpoint.model, self.dialect.template
        method, secret = f"{self.kind}.pooling", self._endpoint.secret
        found = await self._post_to(
            wire.POOLING,
            wire.pool(model, ask, template),
            lambda body: wire.pooled(body, method, secret),
        )
        return self._with_route(found, wire.POOLING)

    def _check_ratable(self, messages: Messages) -> None:
        """See that a conversation can be rated; else `Failed`."""
        if self._endpoint.plain or messages[-1].role != "assistant":
            raise Failed(_NO_TURNS if self._endpoint.plain else _NO_ANSWER)

    def _with_route(self, found: Rewards | Failure, path: str) -> Rewards | Failure:
        """Return the outcome; if the server lacks the route for this model, say what to do."""
        if not isinstance(found, Failure) or found.status not in ROUTES_MISSING:
            return found
        if "does not exist" in found.message:
            return found  # the model is missing, not the route
        url, model = self._endpoint.base_url, self._endpoint.model
        said = _NO_ROUTE.format(url=url, model=model, said=found.message, path=path)
        return Failure("unsupported", said, permanent=True, status=found.status)

    async def _post(self, route: str, body: bytes, decode: Decode[T]) -> T | Failure:
        """Post to a route under `path`; return `decode` of a reply with status 200."""
        return await self._post_to(self.path + route, body, decode)

    async def _post_to(self, path: str, body: bytes, decode: Decode[T]) -> T | Failure:
        """The same from any path."""
        return await self._transport.post(
            path, body, self._endpoint.timeout_s, lambda reply: self._read(reply, decode)
        )

    async def _ask(self, path: str, body: bytes, decode: Callable[[bytes, str], T | Failure]) -> T:
        """Post to a path; return the decoded reply.

        Raises:
            Failed: If there is none.
        """
        secret = self._endpoint.secret
        return known(await self._post_to(path, body, lambda body: decode(body, secret)))

    def _classified(self, reply: Reply) -> Failure:
        secret, address = self._endpoint.secret, self._endpoint.base_url
        found = failures.classify(reply.status, reply.body, reply.headers, secret, address)
        said = found.message.replace("{kind: openai,", f"{{kind: {self.kind},")
        if found.cause == "not_found" and self._names and self._endpoint.model not in self._names:
            said = f"{said.rstrip('.')}; {self._no_such_model()}"
        return msgspec.structs.replace(found, message=said)

    def _no_such_model(self) -> str:
        near = difflib.get_close_matches(self._endpoint.model, self._names, n=1)
        others = f"did you mean {near[0]!r}? " if near else ""
        said = f"the server has no model {self._endpoint.model!r}; {others}available: "
        return failures.clean(said + ", ".join(self._names), self._endpoint.secret)

    async def _listed(self) -> tuple[str, ...] | Failure:
        """The names that the server lists; none if it does not list them, or not to this key.

        What is refused there says nothing of the routes that are asked for answers.
        """
        for path in self.lists:
            reply = await self._transport.get(path, CONTROL_TIMEOUT_S)
            if isinstance(reply, Failure):
                return reply
            names = replies.model_names(reply.body) if reply.status == 200 else ()
            self._names = () if isinstance(names, Failure) else names
            if self._names:
                break
        return self._names

    async def _check_served(self) -> None:
        """See that the server lists the model; else `Failed`.

        A server that lists none answers to every name, as the fake one does.
        """
        names = known(await self._listed())
        if names and self._endpoint.model not in names:
            raise Failed(Failure("not_found", self._no_such_model(), permanent=True))

    async def _version(self, path: str = "/version") -> tuple[str, str]:
        """Version and fingerprint that the server states; raises `Failed`."""
        return known(self._read(await self._got(path), replies.version))

    async def _got(self, path: str) -> Reply:
        """The reply to a question about the server itself; raises `Failed`."""
        return known(await self._transport.get(path, CONTROL_TIMEOUT_S))

    def _read(self, reply: Reply, decode: Decode[T]) -> T | Failure:
        if reply.status in range(200, 300):
            found = decode(reply.body)
            # Gateways write 201 or 203 as well; what came is paid for.
            if reply.status == 200 or not isinstance(found, Failure):
                return found
        return self._classified(reply)

    def _stated(self, version: str, fingerprint: str) -> Provenance:
        return Provenance(
            backend=self.kind,
            base_url=self._endpoint.base_url,
            model=self._endpoint.model,
            version=failures.clean(version, self._endpoint.secret),
            fingerprint=failures.clean(fingerprint, self._endpoint.secret),
        )


def possible(drawn: Generation) -> Generation:
    """A draw without ln p of minus infinity, such as the -9999.0 of what is not known.

    What was drawn can't have had probability zero.
    """
    if drawn.logprobs is None or not (lost := np.isneginf(drawn.logprobs)).any():
        return drawn
    logprobs = np.where(lost, np.float32(np.nan), drawn.logprobs)
    return msgspec.structs.replace(drawn, logprobs=logprobs)


class ChatConfig(Settings):
    """Settings of a connection to a server of chat models."""

    system_role: bool = Field(
        True,  # noqa: FBT003 (a pydantic default)
        description="False for a model whose template refuses the role system: a system prompt is "
        "then put before the user's first message.",
    )


class Native(OpenaiCompatible):
    """A server with our own routes: exact scores and exact label probabilities."""

    kind = "embedded"
    knows_template = True

    def __init__(self, endpoint: Endpoint, transport: Transport, config: ChatConfig) -> None:
        dialect = Dialect(token_ids=True, top_k_off=0, system_role=config.system_role)
        super().__init__(endpoint, transport, dialect, raw=True)

    @as_outcome
    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """See `orchestrator.backend.Backend`."""
        self._check_turns(ask.messages)
        method, plain, sent = f"{self.kind}.score", self._endpoint.plain, self._taken(ask)
        if not ask.token_ids and not ask.text and not ask.end_of_turn:
            return replies.scored_nothing(method, ask)
        return await self._post(
            "/score",
            requests.score(self._endpoint.model, sent, self.dialect.template, plain=plain),
            lambda body: replies.scored(body, ask, method, self._endpoint.secret),
        )

    @as_outcome
    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """See `orchestrator.backend.Backend`."""
        self._check_turns(ask.messages)
        model, plain, sent = self._endpoint.model, self._endpoint.plain, self._taken(ask)
        method, secret = f"{self.kind}.choose", self._endpoint.secret
        return await self._post(
            "/choose",
            requests.choose(model, sent, self.dialect.template, plain=plain),
            lambda body: replies.choice(body, len(ask.labels), method, secret),
        )

    async def reward(self, ask: RewardAsk) -> Rewards | Failure:
        """See `orchestrator.backend.Backend`; the server renders the conversation."""
        return await self._rated(ask)

    @as_outcome
    async def provenance(self) -> Provenance:
        """Version and fingerprint; a failure if the server does not have the model."""
        await self._check_served()
        return self._stated(*await self._version())


H = TypeVar("H", bound=ChatConfig)


class HttpKind(BackendKind[H]):
    """Connections to models of a kind of server that is reached by aiohttp.

    Attributes:
        made: Class of the connections, made from an endpoint, a transport and settings.
    """

    made: ClassVar[type[Any]]
    capabilities = Capabilities(
        generate=True, score=True, choose="exact", plain_choose=True, reward=True
    )

    def connect(self, endpoint: Endpoint) -> Backend:
        """See `orchestrator.backend.BackendKind.connect`."""
        made: Backend = self.made(endpoint, http_transport(endpoint), self.config)
        return made


class NativeKind(HttpKind[ChatConfig]):
    """Connections to models of servers with our own routes."""

    capabilities = Capabilities(
        generate=True, score=True, choose="exact", features=FEATURES, plain_choose=True, reward=True
    )
