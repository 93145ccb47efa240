"""A ledger of bytes held, and of the most that it held at a time."""

from orchestrator.network import Ledger


class Watched(Ledger):
    """A ledger that remembers the most bytes it held."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.peak = 0

    def hold(self, *arguments) -> bool:
        """Hold bytes as any ledger does."""
        may_go_on = super().hold(*arguments)
        self.peak = max(self.peak, self.n_bytes)
        return may_go_on
