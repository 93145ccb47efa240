"""The base class of statistics: one number a model, made of a column of a method's rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypeVar

from orchestrator.plugins.base import Plugin
from orchestrator.settings import Settings

Values = NDArray[np.float64]


class StatisticSettings(Settings):
    """Base of every statistic's settings."""

    method: str = Field(description="Name of a method of this recipe.")
    column: str = Field(description="A column of numbers in its rows.")


StatisticConfigT = TypeVar(
    "StatisticConfigT", bound=StatisticSettings, covariant=True, default=StatisticSettings
)


class Statistic(Plugin[StatisticConfigT], ABC):
    """One number a model, of a column of a method's rows, with a bootstrap interval.

    `of` is called with the values of one model and with each resample of them: whole items are
    drawn with replacement, or whole clusters of items where the dataset names them.
    """

    Config = StatisticSettings

    @property
    def title(self) -> str:
        """Heading of the number in tables; the name of the class by default."""
        return type(self).__name__

    @abstractmethod
    def of(self, values: Values) -> float:
        """Return the number for values of shape (n,), n >= 1; nan where it is undefined."""
