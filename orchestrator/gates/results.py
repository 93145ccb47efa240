"""Verdicts on requirements, as plain values."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from orchestrator.errors import EXIT_COMPLETE, EXIT_GATE_FAILS, EXIT_GATE_OPEN

Verdict = Literal["holds", "fails", "not known yet"]

FORMAT: Final = 1
"""Raised when a field of the JSON changes its meaning or goes; new fields may come at any time."""


class Checked(msgspec.Struct, frozen=True):
    """A requirement and the verdict on it.

    Attributes:
        requirement: As it was written.
        verdict: On the requirement.
        value: Of the measure, or of the difference of the two; None where undefined.
        low: Lower bound; None without an interval, -inf where the data do not bound it.
        high: Upper bound likewise.
        threshold: Number that the value is compared with.
        operator: Comparison with the threshold.
        form: How the numbers are written, as of columns of tables.
        n: Items that it rests on; None for counts, which are exact.
        n_clusters: Clusters of these items; None where each stands alone.
        why: Why it is not known yet, or what else to know; empty for nothing.
        method: Of the interval.
        is_difference: True if the value is a difference of two terms.
    """

    requirement: str
    verdict: Verdict
    value: float | None
    low: float | None
    high: float | None
    threshold: float
    operator: str
    form: str
    n: int | None = None
    n_clusters: int | None = None
    why: str = ""
    method: str = ""
    is_difference: bool = False


class Decision(msgspec.Struct, frozen=True):
    """The verdict on a run; its fields are described where users meet it (`GateResult`)."""

    requirements: tuple[Checked, ...]
    run: Mapping[str, Any]
    against: Mapping[str, Any] | None
    confidence_level: float
    level: float
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict on all requirements together."""
        verdicts = {one.verdict for one in self.requirements}
        if "fails" in verdicts:
            return "fails"
        return "not known yet" if "not known yet" in verdicts else "holds"

    @property
    def exit_code(self) -> int:
        """0 if all requirements hold, 4 if one fails, 5 if none fails but one is not known yet."""
        codes = {"holds": EXIT_COMPLETE, "fails": EXIT_GATE_FAILS, "not known yet": EXIT_GATE_OPEN}
        return codes[self.verdict]

    @property
    def adjustment(self) -> str:
        """The share of the confidence level that each requirement has, in words."""
        n = round((1 - self.confidence_level) / (1 - self.level))
        level, each = f"{100 * self.confidence_level:.4g} %", f"{100 * self.level:.4g} %"
        if n < 2:
            return f"the {each} interval decides"
        return (
            f"the {each} interval decides, so that all {n} verdicts hold together at {level} "
            "(Bonferroni: each requirement can be decided wrongly in one way only, whichever way "
            "it is, so each takes an equal share of the error)"
        )
