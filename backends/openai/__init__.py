"""Hosted endpoints and anything else that speaks OpenAI's chat completions.

See https://platform.openai.com/docs/api-reference/chat. Label probabilities come from the
alternatives of one token, so labels must be one token each; nothing can be scored.

Reasoning models of hosted endpoints refuse much: `reasoning: true` says what they take. LiteLLM may
drop fields it does not know in silence, and log-probabilities with them; that is a failure here,
not an empty list. Ollama cuts prompts over its `num_ctx` in silence, which nothing shows.

The model that a reply names is found without decoding, for it is looked at in every reply. Where a
name stands is found by its key, which no text of a reply can hold: there its quotes are escaped.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal, TypeVar

import msgspec
from pydantic import Field, field_validator

from backends._openai_compatible import NO_LOGPROBS, ChatConfig, Decode, OpenaiCompatible, possible
from backends._transport import Reply, Transport, http_transport
from orchestrator.ask import ChooseAsk, GenerateAsk
from orchestrator.backend import (
    ROUTES_MISSING,
    Backend,
    BackendKind,
    Capabilities,
    Endpoint,
    ServerLoad,
    is_private,
)
from orchestrator.records import Choice, Failure, Generation
from orchestrator.wire import failures, rulings
from orchestrator.wire.requests import Dialect

T = TypeVar("T")
_log = logging.getLogger(__name__)

Origin = tuple[bytes, bytes]
"""The texts of `model` and `system_fingerprint`, escaped; empty where there are none."""


class Config(ChatConfig):
    """Settings of the connection."""

    transport: Literal["auto", "openai", "aiohttp"] = Field(
        "auto",
        description="Client library: the openai package, or aiohttp (eight times cheaper). auto: "
        "aiohttp for servers on this network and plain http, openai otherwise. A model with "
        "headers or a query from the environment is never asked by the openai package, which "
        "logs them.",
    )
    logprobs: bool = Field(True, description="If true, request log-probabilities.")  # noqa: FBT003
    top_logprobs: int = Field(
        20, ge=1, le=1000, description="Maximum number of alternatives that the endpoint lists."
    )
    top_k_off: int | None = Field(
        None,
        description="Value to send for no top-k; omitted by default, as OpenAI rejects the field. "
        "vLLM and llama.cpp: 0, SGLang: -1.",
    )
    reasoning: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="True for a hosted reasoning model: asked with max_completion_tokens, "
        "without temperature, top_p and log-probabilities, which it refuses.",
    )
    omit: tuple[str, ...] = Field(
        (),
        description="Fields that the endpoint rejects, such as temperature for reasoning models.",
    )
    continue_final_message: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="Set to true if the endpoint continues an assistant turn with "
        "continue_final_message; endpoints that do not support the field ignore it silently.",
    )
    raw_logprobs: bool | None = Field(
        None,
        description="True if log-probabilities are those before temperature and top-p; by default "
        "only where these change nothing.",
    )

    @field_validator("omit")
    @classmethod
    def _may_be_omitted(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if needed := sorted(_NEEDED & set(value)):
            raise ValueError(f"required in every request: {', '.join(needed)}")
        return value


class Connection(OpenaiCompatible):
    """A connection to one model of an endpoint, which says what to change where it refuses.

    Such an endpoint says little of itself, and its connections show nothing when it puts another
    model behind a name. Its replies do, so a change of what they say is a warning, and told.
    """

    lists = ("/v1/models", "/models")
    _reached: str | None = None
    _origin: Origin | None = None
    _origins: frozenset[Origin] = frozenset()

    async def load(self) -> ServerLoad | None:
        """None: nothing is published."""
        return None

    async def _post(self, route: str, body: bytes, decode: Decode[T]) -> T | Failure:
        path = self.path
        found = await super()._post(route, body, decode)
        if not isinstance(found, Failure):
            self._reached = path
        elif found.status in ROUTES_MISSING and self._reached != path:
            # Many providers have the routes right behind the address that they print.
            self.asked_again()
            other = await self._post_to(route, body, decode)
            if not isinstance(other, Failure) or {other.status, other.cause} & _OF_A_ROUTE:
                self.path = self._reached = ""
                return other
        return found

    def _read(self, reply: Reply, decode: Decode[T]) -> T | Failure:
        if reply.status == 200:
            self._look_at(reply.body)
        return super()._read(reply, decode)

    def _look_at(self, body: bytes) -> None:
        """Notice whose replies these are."""
        origin = origin_of(body)
        if origin == self._origin:
            return
        before, self._origin = self._origin, origin
        if origin in self._origins or len(self._origins) >= _MOST_ORIGINS:
            return
        self._origins |= {origin}
        if before is not None:
            model, secret = self._endpoint.model, self._endpoint.secret
            how = "%s: replies are of %s no more, but of %s: their numbers may differ"
            said = (words(one, secret) for one in (before, origin))
            _log.warning(how, model, *said, extra={"model": model})
            self.renamed()

    async def _in_its_form(
        self, ask: ChooseAsk | GenerateAsk, send: Callable[[], Awaitable[T | Failure]]
    ) -> T | Failure:
        """Ask, and again in a form that the endpoint takes where it refuses one of no weight.

        Of many alike that come together one goes ahead, and learns for all.
        """
        role = ask.messages[0].role
        shape = role, getattr(ask, "sampling", None), getattr(ask, "top_logprobs", None)
        if (first := self._firsts.get(shape)) is None:
            self._firsts[shape] = asyncio.get_running_loop().create_future()
        elif not first.done() and not self.defers:
            await asyncio.wait([first], timeout=_REFUSED_WITHIN_S)
        try:
            while True:
                sent = self.dialect
                found = await send()
                if not isinstance(found, Failure) or found.cause not in _OF_A_FORM:
                    return found
                if self.dialect is sent:
                    other = _taken(sent, found.message, has_system=role == "system")
                    if other is None:
                        return found
                    self.dialect, said = other
                    model = self._endpoint.model
                    _log.warning("%s: the endpoint %s", model, said, extra={"model": model})
                self.asked_again()
        finally:
            if first is None:
                self._firsts[shape].set_result(None)

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `orchestrator.backend.Backend`."""
        drawn = await self._in_its_form(ask, partial(super().generate, ask, seed))
        return _advised(drawn) if isinstance(drawn, Failure) else possible(drawn)

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """See `orchestrator.backend.Backend`."""
        chosen = await self._in_its_form(ask, partial(super().choose, ask))
        return _advised(chosen) if isinstance(chosen, Failure) else chosen


class Kind(BackendKind[Config]):
    """Connections to models of such an endpoint."""

    @property
    def capabilities(self) -> Capabilities:
        """Texts, and label probabilities where log-probabilities are asked for."""
        has_logprobs = self.config.logprobs and not self.config.reasoning
        return Capabilities(
            generate=True,
            score=False,
            choose="top" if has_logprobs else "none",
            choose_begun=self.config.continue_final_message,
        )

    def connect(self, endpoint: Endpoint) -> Backend:
        """See `orchestrator.backend.BackendKind.connect`."""
        config, reasoning = self.config, self.config.reasoning
        dialect = Dialect(
            max_tokens_field="max_completion_tokens" if reasoning else "max_tokens",
            logprobs=config.logprobs and not reasoning,
            top_logprobs=config.top_logprobs,
            top_k_off=config.top_k_off,
            omit=(*config.omit, *(("temperature", "top_p") if reasoning else ())),
            system_role=config.system_role,
        )
        kind, transport = Connection, None
        if endpoint.batch is not None:
            # Most runs send no batch.
            from backends.openai.batch import Batched, batch_transport  # noqa: PLC0415

            kind, transport = Batched, batch_transport(endpoint)
        return kind(
            endpoint,
            transport or _transport(endpoint, config),
            dialect,
            prefill=config.continue_final_message,
            raw=config.raw_logprobs,
        )


_INSTEAD: Final = re.compile(r"max_tokens.{0,80}max_completion_tokens", re.IGNORECASE | re.DOTALL)
# Without these a begun answer would be a finished turn, and the verdict one behind it.
_BEGUN: Final = frozenset({"continue_final_message", "add_generation_prompt"})
_NEEDED: Final = _BEGUN | {"model", "messages"}
# What answers so is there.
_OF_A_ROUTE: Final = frozenset({400, 401, 402, 422, 429, "no_answer", "no_logprobs"})
# Causes of a refusal of the request's form.
_OF_A_FORM: Final = frozenset({"unsupported", "bad_request"})
# A refusal comes before anything is drawn: what takes longer is being answered.
_REFUSED_WITHIN_S: Final = 3.0
# More tokens than any endpoint is known to insist on.
_MOST_LEAST: Final = 64
# An endpoint of many machines may have as many fingerprints.
_MOST_ORIGINS: Final = 8
_OF_REASONING: Final = re.compile(r"(?i)unsupported (?:parameter|value): '(?:temperature|top_p)'")


def _taken(dialect: Dialect, refusal: str, *, has_system: bool) -> tuple[Dialect, str] | None:
    """Return another form of requests, and in words why, after a refusal; None if there is none.

    Only what changes no number of the model's is left out or written in another way.
    """
    changed = partial(msgspec.structs.replace, dialect)
    most, fewest = rulings.most_in(refusal), rulings.LEAST.search(refusal)
    least = int(fewest[1]) if fewest else 0
    if dialect.max_tokens_field == "max_tokens" and _INSTEAD.search(refusal):
        other = changed(max_tokens_field="max_completion_tokens")
        return other, "takes max_completion_tokens for max_tokens"
    if rulings.CAP.search(refusal) and most and most < dialect.top_logprobs:
        return changed(top_logprobs=most), f"lists at most {most} alternatives"
    if rulings.field_in(refusal) == "seed" and "seed" not in dialect.omit:
        said = "takes no seed: the same seed gives another text, so no draw can be repeated; to "
        said += f"send none, in a new run {_say('omit: [seed]')}"
        return changed(omit=(*dialect.omit, "seed")), said
    if dialect.least_tokens < least <= _MOST_LEAST:
        return changed(least_tokens=least), f"draws at least {least} tokens: verdicts cost as many"
    if has_system and dialect.system_role and rulings.SYSTEM_REFUSED.search(refusal):
        said = "refuses the role system: it is written before the user's first message"
        return changed(system_role=False), said
    return None


def _say(setting: str) -> str:
    return f"say `backend: {{kind: openai, {setting}}}`"


def _advised(failure: Failure) -> Failure:
    """The same failure with what its reader can do about it."""
    if failure.retriable or failure.message == NO_LOGPROBS:
        return failure
    said, advice = failure.message, ""
    if _OF_REASONING.search(said):
        advice = f"{_say('reasoning: true')}; it then draws as it likes"
    elif failure.cause == "no_logprobs":
        texts = f"for texts alone {_say('logprobs: false')}"
        advice = f"methods that read probabilities need another endpoint; {texts}"
    elif rulings.CAP.search(said):
        most = rulings.most_in(said)
        advice = _say(f"top_logprobs: {'N' if most is None else most}")
    elif failure.cause == "unsupported" and (field := rulings.field_in(said)):
        advice = _say("continue_final_message: false" if field in _BEGUN else f"omit: [{field}]")
    return msgspec.structs.replace(failure, message=f"{said} ({advice})") if advice else failure


def _transport(endpoint: Endpoint, config: Config) -> Transport:
    near = is_private(endpoint.base_url) or endpoint.base_url.startswith("http://")
    by_aiohttp = config.transport == "aiohttp" or (config.transport == "auto" and near)
    # The openai package and its HTTP library log headers and whole addresses.
    if by_aiohttp or endpoint.hidden:
        return http_transport(endpoint)
    # Imported here: the openai package takes most of a second, and most runs never need it.
    from backends.openai.transport import OpenaiTransport  # noqa: PLC0415

    return OpenaiTransport(endpoint)


_MODEL: Final = b'"model":'
_FINGERPRINT: Final = b'"system_fingerprint":'
_HEAD: Final = 512
_TAIL: Final = 1024
_MOST: Final = 300


def origin_of(body: bytes) -> Origin:
    """Return model and fingerprint near the beginning and the end of a chat completion."""
    tail = max(len(body) - _TAIL, 0)
    last = _member(body, _FINGERPRINT, tail, len(body))
    return _member(body, _MODEL, 0, _HEAD), last or _member(body, _FINGERPRINT, 0, _HEAD)


def _member(body: bytes, key: bytes, start: int, end: int) -> bytes:
    at = body.find(key, start, end)
    opened = body.find(b'"', at + len(key), at + len(key) + 2) if at >= 0 else -1
    closed = body.find(b'"', opened + 1, opened + _MOST) if opened >= 0 else -1
    return body[opened + 1 : closed] if closed >= 0 else b""


def words(origin: Origin, secret: str) -> str:
    """An origin for people."""
    model, fingerprint = (
        failures.clean(part.decode("utf-8", "replace"), secret) for part in origin
    )
    return f"{model or 'no name'}{f' ({fingerprint})' if fingerprint else ''}"
