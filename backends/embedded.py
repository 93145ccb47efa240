"""The embedded server, `orchestrator servers serve`: exact scores and label probabilities.

Its routes are described in `docs/embedded-server.md`.
"""

from collections.abc import Mapping, Sequence

from backends._by_ids import Separated
from backends._openai_compatible import Native, NativeKind
from backends._tokens import TokenizerRoutes, as_outcome


class Connection(Native):
    """A connection to one model of such a server."""

    kind = "embedded"
    _separated: Separated | None = None

    @as_outcome
    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """See `orchestrator.backend.Backend`."""
        if self._separated is None:
            self._separated = Separated(TokenizerRoutes(self._ask, self._endpoint.model))
        return await self._separated.spell(ids)


class Kind(NativeKind):
    """Connections to models of such a server."""

    cites = ("wolf2020transformers",)

    made = Connection
