"""The fake server (`python -m launch._fake_server`): the embedded one's routes, invented numbers.

Its rules are described in `docs/fake-server.md`.
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


class _Fake(Native):
    kind = "fake"


def create(endpoint: Endpoint, config: Config) -> Backend:
    """A connection to one model of the server.

    Raises:
        UsageError: If the base URL or the key can't be used.
    """
    return _Fake(endpoint, native_transport(endpoint, config), NATIVE_DIALECT, raw=True)
