"""The embedded server, `orchestrator serve`: exact scores and label probabilities.

Its routes are described in `docs/embedded-server.md`.
"""

from typing import Final

from backends._openai_compatible import (
    NATIVE_CAPABILITIES,
    NATIVE_DIALECT,
    Native,
    NativeConfig,
    native_transport,
)
from orchestrator.backend import Backend, Capabilities, Endpoint

CAPABILITIES: Final[Capabilities] = NATIVE_CAPABILITIES


class Config(NativeConfig):
    """Settings of the connection."""


class _Embedded(Native):
    kind = "embedded"


def create(endpoint: Endpoint, config: Config) -> Backend:
    """A connection to one model of the server.

    Raises:
        UsageError: If the base URL or the key can't be used.
    """
    return _Embedded(endpoint, native_transport(endpoint, config), NATIVE_DIALECT, raw=True)
