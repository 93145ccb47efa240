"""The embedded server, `orchestrator servers serve`: exact scores and label probabilities.

Its routes are described in `docs/embedded-server.md`.
"""

from collections.abc import Mapping, Sequence

from backends._openai_compatible import Native, NativeKind
from backends._tokens import as_outcome


class Connection(Native):
    """A connection to one model of such a server."""

    kind = "embedded"

    @as_outcome
    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """See `orchestrator.backend.Backend`."""
        return await self._tokenizer.spell(tuple(ids))


class Kind(NativeKind):
    """Connections to models of such a server."""

    cites = ("wolf2020transformers",)

    made = Connection
