"""The fake server (`orchestrator servers serve --fake`): its routes, invented numbers.

It is described in `docs/fake-server.md`.
"""

from backends._openai_compatible import Native, NativeKind, native_dialect, native_transport
from orchestrator.backend import Backend, Endpoint


class _Fake(Native):
    kind = "fake"


class FakeKind(NativeKind):
    """Connections to models of such a server."""

    def connect(self, endpoint: Endpoint) -> Backend:
        """Make a connection to one model of the server.

        Raises:
            UsageError: If the base URL or the key can't be used.
        """
        transport = native_transport(endpoint, self.config)
        return _Fake(endpoint, transport, native_dialect(self.config), raw=True)
