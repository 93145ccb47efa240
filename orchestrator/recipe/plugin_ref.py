"""A plug-in as a recipe names it."""

from dataclasses import dataclass
from typing import Any

from orchestrator import plugins
from orchestrator.contracts.method import Method, MethodSettings
from orchestrator.contracts.statistic import Statistic
from orchestrator.contracts.summary import Analysis
from orchestrator.settings import Settings


@dataclass(frozen=True, slots=True)
class PluginRef:
    """A plug-in and its validated settings: of a server, a back-end or a dataset."""

    kind: str
    config: Settings

    def resolved(self) -> dict[str, Any]:
        """Kind and settings as plain data."""
        return {"kind": self.kind, **self.config.model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class MethodRef:
    """A method of a recipe, with its settings."""

    kind: str
    method: Method[MethodSettings]

    @property
    def name(self) -> str:
        """Its name in tables: the one that the recipe gives it, else its kind."""
        return self.method.name or plugins.label(self.kind)

    def resolved(self) -> dict[str, Any]:
        """Kind and settings as plain data."""
        return {"kind": self.kind, **self.method.config.model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class StatisticRef:
    """A statistic of a recipe, with its settings."""

    kind: str
    statistic: Statistic

    def resolved(self) -> dict[str, Any]:
        """Kind and settings as plain data."""
        return {"kind": self.kind, **self.statistic.config.model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class AnalysisRef:
    """An analysis of a recipe, with its settings."""

    kind: str
    analysis: Analysis[Settings]

    @property
    def name(self) -> str:
        """Its name in tables: its kind."""
        return plugins.label(self.kind)

    def resolved(self) -> dict[str, Any]:
        """Kind and settings as plain data."""
        return {"kind": self.kind, **self.analysis.config.model_dump(mode="json")}
