"""Progress of a run, and its failed units: counted once, for every format.

A unit has *ended* if it has rows. It has *failed* if one of its rows has: also where the next call
asks again, because a server was out of reach. It is *left* if it has no rows and needs some.
"""

import msgspec

from orchestrator import numbers


class Completeness(msgspec.Struct, frozen=True):
    """Progress of a run, in units.

    Attributes:
        total: Units of the plan.
        ended: Of these, units with rows.
        failed: Of these, units with a failed row.
        not_needed: Units that a stopping rule has found to be not needed.
    """

    total: int = 0
    ended: int = 0
    failed: int = 0
    not_needed: int = 0

    @property
    def left(self) -> int:
        """Units that have no row yet and need one."""
        return max(0, self.total - self.ended - self.not_needed)

    def words(self, *, has_results: bool = True) -> str:
        """Return the warning to show before the results; empty for a run that is complete.

        Args:
            has_results: Whether results follow.
        """
        if not self.left:
            return ""
        needed = self.total - self.not_needed
        failed = f", {numbers.count(self.failed)} of them failed" if self.failed else ""
        left = f"Incomplete: {numbers.count(self.left)} of {numbers.counted(needed, 'unit')} remain"
        if not has_results:
            return f"{left}{failed}."
        return f"{left}; these results use the {numbers.count(self.ended)} completed ones{failed}."

    def as_json(self) -> dict[str, object]:
        """The counts as JSON values."""
        return {"complete": not self.left, **msgspec.to_builtins(self), "left": self.left}
