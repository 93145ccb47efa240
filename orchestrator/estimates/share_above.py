"""Share above: the share of the rows whose value is larger than a threshold."""

import numpy as np
from pydantic import Field

from orchestrator.contracts.method import Values
from orchestrator.plugin import Statistic, StatisticSettings


class Config(StatisticSettings):
    """Settings of `share_above`."""

    threshold: float = Field(description="Values must be larger; an equal one does not count.")


class ShareAbove(Statistic[Config]):
    """The share of the rows whose value is larger than a threshold."""

    @property
    def title(self) -> str:
        """Heading, with the threshold."""
        return f"share above {self.config.threshold:g}"

    def of(self, values: Values) -> float:
        """Return the share, in [0, 1]."""
        return float(np.mean(values > self.config.threshold))
