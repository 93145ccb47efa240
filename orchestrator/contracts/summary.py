"""The base classes of statistics and summaries, which read a method's rows, and of analyses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypeVar

from orchestrator.plugins.base import ConfigT, Plugin, Settings

if TYPE_CHECKING:
    from orchestrator.contracts.context import Context
    from orchestrator.figures import Figure
    from orchestrator.tables import Table

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


class Summary(Plugin[ConfigT], ABC):
    """Tables of a method's rows; its settings are those of the method.

    It sends nothing: what it needs is in the frames.

    Attributes:
        reads: Columns of the rows that it is given; all where None. No others are read, so that the
            texts of a long run take no memory. Of methods of this project the rows are those of
            `ranking.cells.numbered`, which also reads columns that depend on settings.
        reads_alone: Whether its tables depend on nothing but the rows of the method, the clusters
            of items and settings: then a run keeps them, and computes them once. Of kinds of this
            project only.
        bradley_terry: True if its ratings are Bradley-Terry's over the pairs of its method: then
            those at equal style stand beside them, as they do where reports rank by the pairs.
        section: Heading of its figures in the report; the name of the method where empty.
        section_order: Sections with figures of methods stand by this, then as in the recipe.
    """

    reads: ClassVar[Sequence[str] | None] = None
    reads_alone: ClassVar[bool] = False
    bradley_terry: ClassVar[bool] = False
    section: ClassVar[str] = ""
    section_order: ClassVar[int] = 100

    @abstractmethod
    def summarise(self, context: Context) -> list[Table]:
        """Return the tables, most important first; [] where there is nothing to say."""

    def figures(self, context: Context) -> list[Figure]:  # noqa: ARG002 (for those that draw)
        """Return figures for the HTML report, most important first; none by default.

        Where a summary makes none, the first column with intervals of its first table is drawn.

        Args:
            context: As of `summarise`, but with all methods of the recipe as `sources`.
        """
        return []


class Analysis(Plugin[ConfigT], ABC):
    """Tables over the frames of a run, asked for under `analyses:` in a recipe.

    It sends nothing: what it needs is in the frames.
    """

    def check(self, items: Callable[[], Collection[str]], models: Collection[str]) -> None:
        """Check files that the settings name, before a run begins; by default there are none.

        Args:
            items: Gives the keys of all items of the dataset.
            models: Names of the recipe's models.

        Raises:
            OrchestratorError: With what is wrong, by file and line.
        """

    @abstractmethod
    def summarise(self, context: Context) -> list[Table]:
        """Return the tables, most important first; [] where there is nothing to say.

        Raises:
            OrchestratorError: If it can't be made; the text becomes a note of an empty table.
        """
