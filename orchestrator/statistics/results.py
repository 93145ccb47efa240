"""Values that statistics give and take, without arrays: numbers with intervals, thresholds."""

import math
from dataclasses import dataclass
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.errors import StatisticsError

UNCERTAINTY: Final = "uncertainty over prompts, for this judge"
"""Scope of every interval here; another judge, or another draw of answers, is not in it."""

UNCERTAINTY_POOLED: Final = "uncertainty over prompts, for these judges"

BY_CLUSTER: Final = "uncertainty over clusters of prompts"
"""Its beginning where prompts belong together."""

ALONE: Final = "each rating's interval is for its model alone"
"""Said of more than two models: intervals of two may lie apart though no test of all pairs does."""

APPROXIMATE_BELOW: Final = 20
"""Independent prompts, or clusters of them, under which a ranking is flagged as resting on few."""

MISSED: Final = "so few could have missed rare large wins"
"""What a small sample cannot rule out, and why small differences stay open there."""

SKEWED: Final = "skewed: the interval may cover less than it says"
"""Said of a mean whose values are too skewed for Student's interval."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval; an infinite bound is open: the data do not bound it there.

    Attributes:
        low: Lower bound.
        high: Upper bound.
        confidence_level: In (0, 1).
        doubt: Why it may hold the truth less often than that; empty for no reason.
    """

    low: float
    high: float
    confidence_level: float
    doubt: str = ""

    def contains(self, value: float) -> bool:
        """Return True if `value` lies in it, ends included."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number with what it rests on.

    Attributes:
        value: nan where undefined; +inf or -inf where the data do not bound it.
        interval: None where there is none (see `undefined`).
        n: Clusters of prompts that it rests on; the prompts where each stands alone.
        method: Name of the interval's method.
        undefined: Why there is no value or no interval; None where there are both.
    """

    value: float
    interval: Interval | None
    n: int
    method: str
    undefined: str | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds of its interval; nan where it has none."""
        interval = self.interval
        return (math.nan, math.nan) if interval is None else (interval.low, interval.high)


def interval_or_none(low: float, high: float, confidence_level: float) -> Interval | None:
    """The interval, or None if a bound is nan."""
    if math.isnan(low) or math.isnan(high):
        return None
    return Interval(low, high, confidence_level)


def checked_level(confidence_level: float) -> float:
    """The level itself.

    Raises:
        StatisticsError: If it is not strictly between 0 and 1.
    """
    if not 0.0 < confidence_level < 1.0:
        raise StatisticsError(f"confidence_level must be between 0 and 1, got {confidence_level}")
    return confidence_level


class Thresholds(BaseModel):
    """Thresholds from which on a judge is not trusted, and its ranking is no result.

    `docs/statistics.md` derives the defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mass: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="A reading with less of the judge's probability on the labels does not answer "
        "in the form asked.",
    )
    low_readings: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of such readings from which on the judge is not trusted.",
    )
    flips: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of pairs whose winner flips with the order, for a judge that looks only "
        "at the order: a judge is trusted if its own share is shown to be smaller.",
    )
    usable_flips: float = Field(
        0.3,
        ge=0,
        lt=1,
        description="Share of flips up to which a judge is usable: one that is not trusted by "
        "`flips` is refused if its share is shown to be larger; else it cannot be said yet.",
    )
    missing: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of missing judgments from which on a judge is not trusted.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.usable_flips >= self.flips:
            raise ValueError("usable_flips must be below flips")
        return self
