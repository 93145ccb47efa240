"""The fake server (`orchestrator servers serve --fake`): its routes, invented numbers.

It is described in `docs/fake-server.md`.
"""

from backends._openai_compatible import Native, NativeKind


class Connection(Native):
    """A connection to one model of such a server."""

    kind = "fake"


class Kind(NativeKind):
    """Connections to models of such a server."""

    made = Connection
