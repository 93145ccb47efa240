"""The base classes of summaries, which read a method's rows, and of analyses, which read all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from orchestrator.plugin_base import ConfigT, Plugin

if TYPE_CHECKING:
    from orchestrator.contracts.context import Context
    from orchestrator.tables import Table


class Summary(Plugin[ConfigT], ABC):
    """Tables of a method's rows; its settings are those of the method.

    It sends nothing: what it needs is in the frames.

    Attributes:
        reads: Columns of the rows that it needs; all where None. No others are read, so that the
            texts of a long run take no memory.
    """

    reads: ClassVar[Sequence[str] | None] = None

    @abstractmethod
    def summarise(self, context: Context) -> list[Table]:
        """Return the tables, most important first; [] where there is nothing to say."""


class Analysis(Plugin[ConfigT], ABC):
    """Tables over the frames of a run, asked for under `analyses:` in a recipe.

    It sends nothing: what it needs is in the frames.
    """

    @abstractmethod
    def summarise(self, context: Context) -> list[Table]:
        """Return the tables, most important first; [] where there is nothing to say.

        Raises:
            OrchestratorError: If it can't be made; the text becomes a note of an empty table.
        """
