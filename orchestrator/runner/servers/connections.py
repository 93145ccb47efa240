"""Connections to servers: settings and keys, the kind behind an address, and which one answered."""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from orchestrator import contracts, plugins
from orchestrator.backend import LOCAL, PLAIN, Backend, BackendKind, Endpoint, Provenance
from orchestrator.errors import ServerChangedError, UsageError
from orchestrator.plugins.base import Settings
from orchestrator.probing.replies import PATHS, identify
from orchestrator.recipe.schema import ModelSpec, Sent
from orchestrator.records import Failure
from orchestrator.runner.event_loop import Errand
from orchestrator.runner.models.asking import Http
from orchestrator.runner.models.identity import (
    LAUNCHED,
    address,
    launch_of,
    provenance_words,
    server_label,
)
from orchestrator.runner.planning.reuse import Copies
from orchestrator.store import Store
from orchestrator.wire.failures import LONG_SECRET

_log = logging.getLogger(__name__)


def create_backend(
    spec: ModelSpec, kind: str, endpoint: Endpoint, *, allow_code: bool = False
) -> Backend:
    """A back-end of a kind, connected to a model's server.

    Raises:
        UsageError: If the address or the key can't be used.
    """
    backend = contracts.load(BackendKind, kind, allow_code=allow_code)
    # Settings of the recipe are those of the kind that it names.
    is_named = spec.server is not None or kind == spec.backend
    config = (
        backend_config(spec, backend.Config, allow_code=allow_code)
        if is_named
        else backend.Config()
    )
    return contracts.connected(backend(config), endpoint)


def backend_config(
    spec: ModelSpec, config: type[Settings], *, allow_code: bool = False
) -> Settings:
    """Settings of a back-end: the recipe's, then those of a launched server, then defaults."""
    known: Mapping[str, object] = {}
    if spec.server is not None:
        known = launch_of(spec, allow_code=allow_code).backend_settings(spec.name)
    if spec.backend_config is None:
        return config.model_validate(known)
    said = spec.backend_config.model_fields_set
    left_open = {name: value for name, value in known.items() if name not in said}
    return spec.backend_config.model_copy(update=left_open)


def endpoint_of(spec: ModelSpec, base_url: str) -> Endpoint:
    """Return the endpoint of a model that runs elsewhere, with what the environment holds for it.

    Raises:
        UsageError: If a variable that is to hold a key or another value is not set.
    """
    entry = spec.entry
    values = {}
    for variable in spec.variables:
        is_key = variable == entry.api_key_env
        try:
            values[variable] = key_in(variable, is_word=is_key)
        except UsageError as error:
            what = "the API key" if is_key else "what the recipe takes from it for requests to"
            raise UsageError(
                f"model {spec.name!r}: {error}; set it to {what}{' of' * is_key} {spec.base_url}"
            ) from error
    hidden: list[str] = []

    def fill(said: Sent) -> dict[str, str]:
        found = {}
        for name, one in said.items():
            if isinstance(one, str):
                found[name] = one
            else:
                found[name] = value = values[one["env"]]
                # Servers repeat the token of `Bearer TOKEN`, or one of several cookies, alone.
                parts = re.split(r"[\s;,=]+", value)
                hidden.extend((value, *(part for part in parts if len(part) >= LONG_SECRET)))
        return found

    return Endpoint(
        base_url=base_url,
        model=spec.model or spec.name,
        api_key=values.get(entry.api_key_env or "", ""),
        headers=fill(entry.headers),
        query=fill(entry.query),
        hidden="\n".join(hidden),
        ca_file=entry.ca_file or "",
    )


def key_in(variable: str, *, is_word: bool = True) -> str:
    """The value that an environment variable holds, without the white space around it.

    Files of secrets mostly end with a newline, which no header can carry; files of variables may
    have a key in quotes, which Docker keeps.

    Args:
        variable: Its name.
        is_word: Whether it is a key, which has no spaces.

    Raises:
        UsageError: If there is none, or it can't be sent.
    """
    value = os.environ.get(variable, "").strip()
    if is_word and value[:1] in {"'", '"'} and value[:1] == value[-1:]:
        value = value.strip(value[:1]).strip()
    if not value:
        raise UsageError(f"the environment variable {variable} is not set")
    if not (value.isascii() and value.isprintable()) or (is_word and " " in value):
        has = f"{'white space' if is_word else 'a line break'} or a character outside ASCII"
        raise UsageError(f"the environment variable {variable} has {has}")
    return value


def warn_of_missing_keys(specs: Iterable[ModelSpec]) -> None:
    """Warn of each model whose key, or another value, is in no environment variable."""
    for spec in specs:
        for variable in spec.variables:
            if not os.environ.get(variable, "").strip():
                how = "%s: the environment variable %s is not set; its first request ends the run"
                _log.warning(how, spec.name, variable, extra={"model": spec.name})


# The kind of server behind an address, asked for where a recipe names no back-end.
#
# A model's identity is made before any server is asked, so the kind is no part of it: a recipe
# without `backend` has the identity that it has with `backend: openai`, whatever is found. A run
# therefore keeps the kind that it began with.


_MODELS: Final = "/v1/models"
_NOT_IMPLEMENTED: Final = 501
# Behind a gateway a server may show only what is under /v1; its own routes are needed to speak to
# it as one of its kind.
_OWN_ROUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("/version",),
    "sglang": ("/server_info", "/get_server_info"),
    "llamacpp": ("/props",),
}


async def _asked(endpoint: Endpoint) -> str | Failure:
    """The kind that a server shows itself to be."""
    async with Http(endpoint) as http, asyncio.TaskGroup() as group:
        tasks = {path: group.create_task(http.get(path)) for path in PATHS}
    replies = {path: task.result() for path, task in tasks.items()}
    # Nothing can be told yet where nobody answers, or a gateway whose server is not up.
    statuses = {reply.status for reply in replies.values()}
    listing = replies[_MODELS]
    if not any(statuses):
        return Failure("connection", listing.words)
    # One route that is refused, or fails, says nothing where others are answered in whatever way.
    if all(
        status in {0, 429} or (status >= 500 and status != _NOT_IMPLEMENTED) for status in statuses
    ):
        return Failure("server_error", f"{listing.status} {listing.words}", status=listing.status)
    found = identify(replies)
    if found not in plugins.kinds(plugins.BACKENDS):
        return PLAIN
    routes = _OWN_ROUTES.get(found, ())
    if routes and not any(replies[path].status == 200 for path in routes):
        how = "%s is %s, but offers only routes under /v1; using it as a plain OpenAI endpoint"
        _log.warning(how, endpoint.base_url, found)
        return PLAIN
    return found


def is_reached(spec: ModelSpec) -> bool:
    """True for a model whose server somebody else has started."""
    return spec.base_url is not None and spec.base_url != LOCAL


class Held:
    """Knows which servers answered, and finds of which kinds they are.

    A server is held to what answered for the same identity, unless `accept_change`; so are those of
    `copies`. Where not `asks`, no server is asked for its kind, and each is taken for a plain one.

    Attributes:
        server_ids: Number in the store of the server that a model is connected to.
    """

    def __init__(
        self,
        store: Store,
        identities: Mapping[str, bytes],
        copies: Copies | None,
        *,
        accept_change: bool = False,
        asks: bool,
    ) -> None:
        self._store = store
        self._identities = dict(identities)
        self._copies = copies
        self._accept_change = accept_change
        self._asks = asks
        self._locks: dict[str, asyncio.Lock] = {}
        self._found: dict[str, str] = {}
        self.server_ids: dict[str, int] = {}

    def label(self, spec: ModelSpec) -> str:
        """Return what the store remembers the servers of a model by."""
        return server_label(spec.name, self._identities[spec.name])

    async def kind(self, spec: ModelSpec, endpoint: Endpoint) -> str | Failure:
        """Kind of the back-end for a model; a failure where its server does not answer."""
        if not (spec.finds_backend and self._asks):
            return spec.backend
        async with self._locks.setdefault(spec.name, asyncio.Lock()):
            found = self._found.get(spec.name) or self._before(spec) or await _asked(endpoint)
            if not isinstance(found, Failure) and spec.name not in self._found:
                self._found[spec.name] = found
                named, told = (spec.name, endpoint.base_url), {"model": spec.name, "note": True}
                _log.info("%s: %s, using `backend: %s`", *named, found, extra=told)
            return found

    def gives_up(self, spec: ModelSpec, kind: str, failure: Failure) -> bool:
        """True where a server lacks what its kind needs, and is taken for a plain one from now on.

        As a vLLM of an older version. Nothing of that is done where the recipe names the kind.
        `failure` came of asking its server for its version.
        """
        is_found = spec.finds_backend and self._asks and kind != PLAIN
        if not is_found or failure.cause != "unsupported":
            return False
        how, told = "%s: %s; using it as a plain OpenAI endpoint", {"model": spec.name}
        _log.warning(how, spec.name, failure.message, extra=told)
        self._found[spec.name] = PLAIN
        return True

    def _before(self, spec: ModelSpec) -> str:
        """The kind by which this run, or one that it copies from, was answered; empty for none."""
        label = self.label(spec)
        earlier = self._store.server_of_model(label)
        if earlier is not None:
            return earlier.provenance.backend
        servers = self._copies.servers(label) if self._copies is not None else iter(())
        return next((one.provenance.backend for _, one in servers), "")

    def check(self, spec: ModelSpec, provenance: Provenance) -> str:
        """Hold a server to what answered before; return its label.

        Raises:
            ServerChangedError: If another server answered this run before.
        """
        if spec.server is not None:
            provenance = msgspec.structs.replace(provenance, base_url=LAUNCHED)
        elif spec.base_urls:
            provenance = msgspec.structs.replace(provenance, base_url=address(spec))
        label = self.label(spec)
        earlier = self._store.server_of_model(label)
        known = [] if earlier is None else [earlier.provenance]
        if earlier is not None and earlier.run:
            # Of several whose answers were copied none was the last.
            known += self._store.servers.known(label)
        if earlier is not None and provenance not in known:
            now, before = provenance_words(provenance), provenance_words(earlier.provenance)
            if not self._accept_change:
                said, other = f"this run was answered by {before}", "--fresh"
                if earlier.run:
                    said = f"answers by {before} were copied from {earlier.run}"
                    other = "--fresh and without that run"
                raise ServerChangedError(
                    f"model {spec.name!r}: {said}, now it would be by {now}. Their numbers may "
                    f"differ. Continue with --accept-server-change, or start a new run with {other}"
                )
            said = f"{spec.name}: served by {now}, previously by {before}"
            _log.warning("%s", said, extra={"model": spec.name})
        if self._copies is not None:
            self._copies.check(spec.name, provenance)
        self.server_ids[spec.name] = self._store.server_id(label, provenance)
        return label


# Servers whose connections broke are compared with what they were before they are sent more.
#
# Where nobody answers for a while, the next trial connects anew, which compares too. A server that
# is back at once, or stands behind a proxy, would be taken for the one before.


Server = tuple[str, int]
"""A model and the number of one of its servers."""

# How long a server that was compared is then left alone, seconds.
_LOOKED_S: Final = 5.0


class Doubts:
    """Compares each server at most once at a time and every few seconds."""

    def __init__(self, errand: Callable[[Errand], None]) -> None:
        self._errand = errand
        self._doubted: set[Server] = set()
        self._looking: set[Server] = set()

    def doubt(
        self, server: Server, hold: Callable[[bool], None], compare: Callable[[], Awaitable[None]]
    ) -> None:
        """Note that a connection to a server broke.

        `hold` keeps requests from the server until that is known, or no longer. If `compare`
        raises, since another server answers, it stays held.
        """
        self._doubted.add(server)
        if server not in self._looking:
            self._looking.add(server)
            hold(True)  # noqa: FBT003
            self._errand(lambda: self._look(server, hold, compare))

    async def _look(
        self, server: Server, hold: Callable[[bool], None], compare: Callable[[], Awaitable[None]]
    ) -> None:
        while server in self._doubted:
            self._doubted.discard(server)
            hold(True)  # noqa: FBT003
            await compare()
            hold(False)  # noqa: FBT003
            await asyncio.sleep(_LOOKED_S)
        self._looking.discard(server)
