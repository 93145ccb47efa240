"""A ledger of bytes held, and of the most that it held at a time."""

from orchestrator.network import Ledger


class Watched(Ledger):
    """A ledger that remembers the most bytes it held."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.peak = 0

    async def hold(self, body, server, n_bytes) -> None:
        """Hold bytes as any ledger does."""
        self.peak = max(self.peak, self.n_bytes - self._held.get(body, 0) + n_bytes)
        await super().hold(body, server, n_bytes)
