"""Connections to servers: settings and keys, and the kind of server behind an address."""

import asyncio
import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from orchestrator import contracts, plugins
from orchestrator.backend import PLAIN, Backend, Endpoint
from orchestrator.errors import UsageError
from orchestrator.plugins.base import Settings
from orchestrator.probing.replies import PATHS, identify
from orchestrator.recipe.schema import ModelSpec, Sent
from orchestrator.records import Failure
from orchestrator.runner.models.asking import Http
from orchestrator.runner.models.identity import launch_of, same_identity
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
    backend = contracts.load(plugins.BACKENDS, kind, allow_code=allow_code)
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

    Files of secrets mostly end with a newline, which no header can carry.

    Args:
        variable: Its name.
        is_word: Whether it is a key, which has no spaces.

    Raises:
        UsageError: If there is none, or it can't be sent.
    """
    value = os.environ.get(variable, "").strip()
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
                _log.warning(
                    "%s: the environment variable %s is not set; the run will stop when it "
                    "queries this model",
                    spec.name,
                    variable,
                    extra={"model": spec.name},
                )


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


class Kinds:
    """Finds the kinds of servers, and remembers them for a run.

    Where not `enabled`, nothing is asked, and every server is taken for a plain one.
    """

    def __init__(self, store: Store, copies: Copies | None, *, enabled: bool) -> None:
        self._store = store
        self._copies = copies
        self._enabled = enabled
        self._locks: dict[str, asyncio.Lock] = {}
        self._found: dict[str, str] = {}

    async def kind(self, spec: ModelSpec, label: str, endpoint: Endpoint) -> str | Failure:
        """Kind of the back-end for a model; a failure where its server does not answer.

        `label` is what the store remembers its server by.
        """
        if not (spec.finds_backend and self._enabled):
            return spec.backend
        async with self._locks.setdefault(spec.name, asyncio.Lock()):
            found = self._found.get(spec.name) or self._before(label) or await _asked(endpoint)
            if not isinstance(found, Failure) and spec.name not in self._found:
                self._found[spec.name] = found
                _log.info(
                    "%s: %s, using `backend: %s`",
                    spec.name,
                    endpoint.base_url,
                    found,
                    extra={"model": spec.name, "note": True},
                )
            return found

    def gives_up(self, spec: ModelSpec, kind: str, failure: Failure) -> bool:
        """True where a server lacks what its kind needs, and is taken for a plain one from now on.

        As a vLLM of an older version. Nothing of that is done where the recipe names the kind.
        `failure` came of asking its server for its version.
        """
        is_found = spec.finds_backend and self._enabled and kind != PLAIN
        if not is_found or failure.cause != "unsupported":
            return False
        _log.warning(
            "%s: %s; using it as a plain OpenAI endpoint", spec.name, failure.message,
            extra={"model": spec.name},
        )  # fmt: skip
        self._found[spec.name] = PLAIN
        return True

    def _before(self, label: str) -> str:
        """The kind by which this run, or one that it copies from, was answered; empty for none."""
        earlier = self._store.server_of_model(label)
        if earlier is not None:
            return earlier.provenance.backend
        servers = self._copies.servers() if self._copies is not None else iter(())
        return next(
            (one.provenance.backend for one in servers if same_identity(one.model, label)), ""
        )


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
        _log.warning(
            "%s is %s, but offers only routes under /v1; using it as a plain OpenAI endpoint",
            endpoint.base_url,
            found,
        )
        return PLAIN
    return found
