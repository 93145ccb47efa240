"""The fake server (`orchestrator servers serve --fake`): its routes, invented numbers.

It is described in `docs/fake-server.md`.
"""

from backends._openai_compatible import Native, NativeKind, native_dialect
from backends._transport import http_transport
from orchestrator.backend import Backend, Endpoint


class _Fake(Native):
    kind = "fake"


class FakeKind(NativeKind):
    """Connections to models of such a server."""

    def connect(self, endpoint: Endpoint) -> Backend:
        """See `orchestrator.backend.BackendKind.connect`."""
        transport = http_transport(endpoint, self.config.keepalive_s)
        return _Fake(endpoint, transport, native_dialect(self.config), raw=True)
