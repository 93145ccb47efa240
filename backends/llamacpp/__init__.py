"""llama.cpp's llama-server: exact scores and label probabilities by forced steps.

The server scores no given tokens, so it is made to draw them: exact, but as slow as drawing. What
is drawn is forced by a grammar of token ids, many at a time, and by a bias one at a time where a
grammar can't; the server's log-probabilities are the raw ones all the same. What the server has of
the prompt is in its cache after the first step. llama-cpp-python's server lacks the routes for
that and is refused. See `docs/servers.md`.
"""

import asyncio
import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from pydantic import Field

from backends._by_ids import ByIds, ByIdsConfig
from backends._openai_compatible import CONTROL_TIMEOUT_S, HttpKind
from backends._tokens import AskServer, Cache, Ids, TokenizerRoutes, as_outcome
from backends._transport import Transport
from backends.llamacpp import completions, wire
from backends.llamacpp.completions import FRAGMENT, Step, forced, looked
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend, Capabilities, Endpoint, Provenance, ServerLoad
from orchestrator.errors import UsageError
from orchestrator.records import Choice, Failure, Generation, Message, Messages, Scored, unsupported
from orchestrator.wire import by_ids, failures, replies
from orchestrator.wire.by_ids import Forced, Reading
from orchestrator.wire.failures import Failed, known
from orchestrator.wire.parsing import text_of
from orchestrator.wire.requests import OWN_FIELDS, Dialect, check_names

COMPLETION: Final = "/completion"
_ALTERNATIVES: Final = 64
_LIKELY: Final = 64
"""Alternatives among which a token that says nothing of itself is looked for first."""
_SMALL_VOCABULARY: Final = 4096
"""Of vocabularies up to this size the whole distribution is asked for."""
_DRAFTS: Final = (
    "the server guesses tokens ahead ({}) and gives those it accepts the log-probability 0; start "
    "it without --model-draft and --spec-type"
)
_PYTHON_SERVER: Final = unsupported(
    "the server has no /props, as llama-cpp-python's has none: serve the same GGUF with "
    "llama-server, or say `backend: openai`, which draws texts and reads labels of one token"
)
_NO_METRICS: Final = "%s publishes no load figures; restart llama-server with --metrics"
logger = logging.getLogger(__name__)


class Config(ByIdsConfig):
    """Settings of the connection."""

    choose_top_logprobs: int | None = Field(
        None,
        ge=1,
        description="Number of alternatives to search for labels; null: 64, or the whole "
        "vocabulary if it is small.",
    )
    cache_prompt: bool = Field(
        True,  # noqa: FBT003 (a pydantic default)
        description="If true, the server reuses the cached prompt of a slot; if false, it "
        "recomputes each prompt, so that numbers do not depend on earlier requests, at many times "
        "the cost.",
    )


class _Server(msgspec.Struct, frozen=True):
    """Facts about a llama-server, learnt before the first ask.

    Attributes:
        props: What it says of itself.
        meta: What it says of the model.
        turns: For texts that take several steps; more of them than the server has slots would push
            each other's prompts out of its cache.
    """

    props: wire.Props
    meta: wire.Meta
    turns: asyncio.Semaphore


class Tokenizer(TokenizerRoutes):
    """The server's tokenizer, by its own routes."""

    # The server goes on from an assistant's turn whatever is asked; another turn ends it.
    behind = Message("user", "z")

    def __init__(self, ask: AskServer, model: str, template: Mapping[str, object]) -> None:
        super().__init__(ask, model, template)
        self._spelled: dict[int, bytes] = {}
        self._bos: Ids | None = None
        self._letter: int | None = None

    async def rendered(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        """See `TokenizerRoutes`."""
        body = wire.template(messages, self._template, opens=opens, goes_on=goes_on)
        text = await self._ask("/apply-template", body, wire.rendered)
        ids = await self.plain(text, special=True)
        if self._bos is None:
            self._bos = await self.plain("", special=True)
        bos = self._bos
        twice = bos and ids[: 2 * len(bos)] == bos + bos
        return ids[len(bos) :] if twice else ids

    async def plain(self, text: str, *, special: bool) -> Ids:
        """See `TokenizerRoutes`."""
        return await self._ask("/tokenize", wire.tokenize(text, special=special), by_ids.token_ids)

    async def text(self, ids: Ids) -> str:
        """See `TokenizerRoutes`."""
        return await self._ask("/detokenize", wire.detokenize(ids), wire.text)

    async def spells_spaces(self) -> bool:
        """See `TokenizerRoutes`."""
        found = await self._ask("/tokenize", wire.spell("a"), wire.pieces)
        return bool(found) and found[0][1].startswith(b" ")

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """See `TokenizerRoutes`."""
        return await self._ask(COMPLETION, wire.force(ids, (token,), 1), completions.tried) == "eos"

    async def spell(self, ids: Ids) -> Mapping[int, bytes]:
        """See `TokenizerRoutes`; the server knows the bytes of each."""
        return dict(zip(ids, await self.spelled(ids), strict=True))

    async def spelled(self, ids: Ids) -> list[bytes]:
        """The bytes of each token, special ones by their names."""
        if any(token not in self._spelled for token in ids):
            distinct = tuple(dict.fromkeys(ids))
            found = await self._ask("/tokenize", wire.spell(distinct), wire.pieces)
            self._spelled.update(found)
        return [self._spelled.get(token, b"") for token in ids]

    async def letter(self) -> int:
        """A token that is whole characters whatever comes before it."""
        if self._letter is None:
            found = await self.plain("a", special=False)
            if not found:
                raise Failed(Failure("unparseable", "the server makes no tokens of a letter"))
            self._letter = found[-1]
        return self._letter


class Connection(ByIds):
    """A connection to one model of llama-server."""

    kind = "llamacpp"
    server_name = "llama-server"
    score_method = "forced"
    tokenizer = Tokenizer
    _config: Config
    _tokenizer: Tokenizer

    def __init__(self, endpoint: Endpoint, transport: Transport, config: Config) -> None:
        dialect = Dialect(system_role=config.system_role)
        super().__init__(endpoint, transport, dialect, config, raw=True)
        self._has_grammar = True
        self._found: Cache[str, _Server] = Cache(1)
        self._told_of_metrics = False

    # -- what is asked ----------------------------------------------------------------------------

    @as_outcome
    async def generate(self, ask: GenerateAsk, seed: int) -> Generation:
        """See `orchestrator.backend.Backend`."""
        self._check_turns(ask.messages)
        server = await self._server()
        prompt = await self._contexts.prompt(ask.messages)
        extra = {"cache_prompt": self._config.cache_prompt, **self.dialect.others}
        made = await self._ask(
            COMPLETION,
            wire.generate(prompt, ask, seed, extra),
            lambda body, secret: completions.draft(body, len(prompt), secret),
        )
        if not made.complete or ask.sampling.stop:
            spelled = await self._tokenizer.spelled(made.tokens)
            lacking = completions.place(made, spelled)
            if lacking:
                async with server.turns:
                    for at in lacking:
                        before = (*prompt, *made.tokens[:at])
                        found, _ = await self._look_up(before, made.tokens[at], ask.top_logprobs)
                        completions.fill(made, at, found, ask.top_logprobs)
        return completions.generation(made, self._reading(ask, raw=True))

    @as_outcome
    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """See `orchestrator.backend.Backend`."""
        await self._server()
        return await self._tokenizer.spell(tuple(ids))

    @as_outcome
    async def provenance(self) -> Provenance | Failure:
        """Build and fingerprint; a failure if the server does not have the model."""
        server = await self._server()
        reply = await self._got("/health")
        if reply.status != 200:
            return self._classified(reply)
        # A short hash of the known facts about weights and template.
        meta, props = server.meta, server.props
        stated = (props.model_ftype, meta.n_vocab, meta.n_params, meta.size, props.chat_template)
        fingerprint = hashlib.sha256(repr(stated).encode()).hexdigest()[:16]
        return self._stated(text_of(props.build_info), fingerprint)

    async def load(self) -> ServerLoad | None:
        """Figures from `/metrics`; None where the server was started without them."""
        reply = await self._transport.get("/metrics", CONTROL_TIMEOUT_S)
        if isinstance(reply, Failure):
            return None
        model = self._endpoint.model
        found = replies.load_figures(reply.body, model) if reply.status == 200 else None
        if found is None and not self._told_of_metrics:
            self._told_of_metrics = True
            logger.info(_NO_METRICS, self._endpoint.base_url)
        return found

    # -- how it is done ---------------------------------------------------------------------------

    async def _score(self, ask: ScoreAsk) -> Scored:
        await self._server()  # says what to do where it is another server
        return await super()._score(ask)

    async def _forced(self, prompt: Ids, ids: Ids, n_top: int) -> Forced:
        server = await self._server()
        eos = server.props.eos_token.encode("utf-8", "replace")
        steps: list[Step] = []
        async with server.turns:
            for begin, stop in wire.runs(await self._tokenizer.spelled(ids), eos):
                before = (*prompt, *ids[:begin])
                steps += await self._stretch(before, ids[begin:stop], n_top)
        logprobs = [value for step in steps for value in step.logprobs]
        listed = [row for step in steps for row in step.listed]
        top = completions.top_of(listed, n_top) if n_top else None
        n_cached = steps[0].n_cached if steps else 0
        return Forced(np.array(logprobs, dtype=np.float32), top, n_cached)

    async def _choose(self, ask: ChooseAsk) -> Choice:
        server = await self._server()
        whole, walk = await self._labels(ask)
        async with server.turns:
            n_vocab = server.meta.n_vocab
            usual = n_vocab if n_vocab <= _SMALL_VOCABULARY else _ALTERNATIVES
            n_listed = min(self._config.choose_top_logprobs or usual, n_vocab)
            reading, n_cached = await self._look(whole, n_listed)
            walk.add([()], [reading])
            n_requests = 1
            while nodes := walk.unread():
                reading, _ = await self._look((*whole, *nodes[0]), n_listed)
                walk.add(nodes[:1], [reading])
                n_requests += 1
            for node, tokens in walk.missing().items():
                for token in tokens:
                    step = await self._step((*whole, *node), token, 1)
                    n_requests += 1
                    if not math.isnan(step.logprobs[0]):
                        walk.add([node], [by_ids.Reading({token: step.logprobs[0]})])
        return walk.choice(f"{self.kind}.n_probs", len(whole), n_cached, n_requests)

    # -- tokens that the server is made to draw ----------------------------------------------------

    async def _stretch(self, before: Ids, tokens: Ids, n_listed: int) -> list[Step]:
        """Several tokens by a grammar where the server can, else one by one."""
        if self._has_grammar and len(tokens) > 1:
            try:
                return [await self._made(before, tokens, n_listed)]
            except Failed as failed:
                failure = failed.failure
                if failure.status not in {400, 500} or "grammar" not in failure.message.lower():
                    raise
                # An old server knows no token ids in grammars; a new one may refuse some tokens.
                self._has_grammar = failure.status != 400
        return [
            await self._step((*before, *tokens[:at]), token, n_listed)
            for at, token in enumerate(tokens)
        ]

    async def _step(self, before: Ids, token: int, n_listed: int) -> Step:
        """The log-probability of one token after others."""
        (piece,) = await self._tokenizer.spelled((token,))
        if wire.is_text(piece):
            try:
                return await self._made(before, (token,), n_listed)
            except Failed as failed:
                if failed.failure.cause != FRAGMENT:
                    raise
        reading, n_cached = await self._look_up(before, token, n_listed)
        ranked = sorted(reading.logprobs.items(), key=lambda pair: -pair[1])
        value = reading.logprobs.get(token, float("nan"))
        return Step([value], [ranked[:n_listed]], n_cached)

    async def _look_up(self, before: Ids, token: int, n_listed: int) -> tuple[Reading, int]:
        """A distribution in which a token is listed, unless it weighs nothing; tokens cached."""
        n_vocab = (await self._server()).meta.n_vocab
        n = min(max(_LIKELY, n_listed), n_vocab)
        reading, n_cached = await self._look(before, n)
        if token not in reading.logprobs and n < n_vocab:
            reading, _ = await self._look(before, n_vocab)
        return reading, n_cached

    async def _look(self, before: Ids, n_listed: int) -> tuple[Reading, int]:
        """The most likely tokens after others, and how many prompt tokens were cached."""
        # What is drawn must be told of, so it is a letter; the list is of what was likely.
        letter = await self._tokenizer.letter()
        return looked(await self._made(before, (letter,), n_listed), letter)

    async def _made(self, before: Ids, tokens: Ids, n_listed: int) -> Step:
        """Tokens, drawn by force after others."""
        return await self._ask(
            COMPLETION,
            wire.force(before, tokens, n_listed, cache=self._config.cache_prompt),
            lambda body, secret: forced(body, len(before), tokens, secret),
        )

    # -- what the server is -----------------------------------------------------------------------

    async def _server(self) -> _Server:
        """Return the facts about the server.

        Raises:
            Failed: If it does not say, or its numbers can't be right.
        """
        return await self._found.learn("", self._find, lambda _: 1)

    async def _find(self) -> _Server:
        reply = await self._got("/props")
        if reply.status in (404, 405):
            raise Failed(_PYTHON_SERVER)
        secret = self._endpoint.secret
        props = known(self._read(reply, lambda body: wire.props(body, secret)))
        if props.drafts != "none":
            raise Failed(unsupported(failures.clean(_DRAFTS.format(props.drafts))))
        listed = await self._got("/v1/models")
        models = known(self._read(listed, lambda body: wire.served(body, secret)))
        name = self._endpoint.model
        model = next((one for one in models if name in one.names), None)
        if model is None:
            self._names = tuple(dict.fromkeys(other for one in models for other in one.names))
            raise Failed(Failure("not_found", self._no_such_model(), permanent=True))
        turns = asyncio.Semaphore(max(props.total_slots or 1, 1))
        return _Server(props, model.meta or wire.Meta(), turns)


class Kind(HttpKind[Config]):
    """Connections to models of such a server."""

    cites = ("llamacpp",)
    made = Connection
    capabilities = Capabilities(generate=True, score=True, choose="exact", plain_choose=True)

    def connect(self, endpoint: Endpoint) -> Backend:
        """See `orchestrator.backend.BackendKind.connect`."""
        try:
            check_names(dict(endpoint.extra_body), OWN_FIELDS | wire.OWN_FIELDS)
        except ValueError as error:
            raise UsageError(f"extra_body of {endpoint.model!r}: {error}") from None
        return super().connect(endpoint)
