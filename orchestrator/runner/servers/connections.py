"""Connections to servers: settings and keys of the back-ends."""

import logging
import os
from collections.abc import Iterable, Mapping

from orchestrator import contracts, plugins
from orchestrator.backend import Backend, Endpoint
from orchestrator.errors import UsageError
from orchestrator.plugins.base import Settings
from orchestrator.recipe.schema import ModelSpec
from orchestrator.runner.models.launch_kinds import launch_of

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
    return backend(config).connect(endpoint)


def backend_config(
    spec: ModelSpec, config: type[Settings], *, allow_code: bool = False
) -> Settings:
    """Settings of the back-end: the recipe's, then those of a launched server, then the defaults.

    Args:
        spec: The model.
        config: The back-end's `Config`.
        allow_code: Load kinds from outside this project.
    """
    known: Mapping[str, object] = {}
    if spec.server is not None:
        known = launch_of(spec, allow_code=allow_code).backend_settings(spec.name)
    if spec.backend_config is None:
        return config.model_validate(known)
    said = spec.backend_config.model_fields_set
    left_open = {name: value for name, value in known.items() if name not in said}
    return spec.backend_config.model_copy(update=left_open)


def api_key_of(spec: ModelSpec) -> str:
    """The key of a model's server; empty where it needs none.

    Raises:
        UsageError: If the variable that is to hold it is not set.
    """
    if spec.api_key_env is None:
        return ""
    try:
        return key_in(spec.api_key_env)
    except UsageError as error:
        raise UsageError(
            f"model {spec.name!r}: {error}; set it to the API key of {spec.base_url}"
        ) from error


def key_in(variable: str) -> str:
    """The key that an environment variable holds, without the white space around it.

    Files of secrets mostly end with a newline, which no header can carry.

    Raises:
        UsageError: If there is none, or it can't be sent.
    """
    value = os.environ.get(variable, "").strip()
    if not value:
        raise UsageError(f"the environment variable {variable} is not set")
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise UsageError(
            f"the environment variable {variable} has white space or a character outside ASCII "
            "in the key"
        )
    return value


def warn_of_missing_keys(specs: Iterable[ModelSpec]) -> None:
    """Warn of each model whose key is in no environment variable."""
    for spec in specs:
        if spec.api_key_env is not None and not os.environ.get(spec.api_key_env, "").strip():
            _log.warning(
                "%s: the environment variable %s is not set; the run will stop when it queries "
                "this model",
                spec.name,
                spec.api_key_env,
                extra={"model": spec.name},
            )
