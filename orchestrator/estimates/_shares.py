"""A share of the rows and the value that bounds it: each is found from the other."""

import numpy as np
from pydantic import Field

from orchestrator.contracts.method import Values
from orchestrator.plugin import Statistic, StatisticSettings


class QuantileConfig(StatisticSettings):
    """Settings of `quantile`."""

    q: float = Field(0.5, ge=0, le=1, description="The share of rows; 0.5 is the median.")


class Quantile(Statistic[QuantileConfig]):
    """Quantile: the value that a share of the rows do not exceed.

    It is interpolated between two rows.
    """

    @property
    def title(self) -> str:
        """Heading, with the share."""
        return f"quantile {self.config.q:g}"

    def of(self, values: Values) -> float:
        """Return the quantile by linear interpolation (type 7 of Hyndman and Fan 1996)."""
        return float(np.quantile(values, self.config.q))


class ShareAboveConfig(StatisticSettings):
    """Settings of `share_above`."""

    threshold: float = Field(description="Values must be larger; an equal one does not count.")


class ShareAbove(Statistic[ShareAboveConfig]):
    """Share above: the share of the rows whose value is larger than a threshold."""

    @property
    def title(self) -> str:
        """Heading, with the threshold."""
        return f"share above {self.config.threshold:g}"

    def of(self, values: Values) -> float:
        """Return the share, in [0, 1]."""
        return float(np.mean(values > self.config.threshold))
