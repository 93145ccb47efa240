"""Quantile: the value that a share of the rows do not exceed."""

import numpy as np
from pydantic import Field

from orchestrator.contracts.method import Values
from orchestrator.plugin import Statistic, StatisticSettings


class Config(StatisticSettings):
    """Settings of `quantile`."""

    q: float = Field(0.5, ge=0, le=1, description="The share of rows; 0.5 is the median.")


class Quantile(Statistic[Config]):
    """The value that a share of the rows do not exceed, interpolated between two rows."""

    @property
    def title(self) -> str:
        """Heading, with the share."""
        return f"quantile {self.config.q:g}"

    def of(self, values: Values) -> float:
        """Return the quantile by linear interpolation (type 7 of Hyndman and Fan 1996)."""
        return float(np.quantile(values, self.config.q))
