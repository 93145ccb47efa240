"""The fake server (`orchestrator servers serve --fake`): its routes, invented numbers.

It is described in `docs/fake-server.md`.
"""

from backends._openai_compatible import Native, NativeKind


class _Fake(Native):
    kind = "fake"


class FakeKind(NativeKind):
    """Connections to models of such a server."""

    made = _Fake
