"""The embedded server, `orchestrator serve`: exact scores and label probabilities.

Its routes are described in `docs/embedded-server.md`.
"""

from backends._openai_compatible import NATIVE_DIALECT, Native, NativeKind, native_transport
from orchestrator.backend import Backend, Endpoint


class _Embedded(Native):
    kind = "embedded"


class EmbeddedKind(NativeKind):
    """Connections to models of such a server."""

    cites = ("wolf2020transformers",)

    def connect(self, endpoint: Endpoint) -> Backend:
        """Make a connection to one model of the server.

        Raises:
            UsageError: If the base URL or the key can't be used.
        """
        transport = native_transport(endpoint, self.config)
        return _Embedded(endpoint, transport, NATIVE_DIALECT, raw=True)
