"""A plug-in as a recipe names it."""

from dataclasses import dataclass
from typing import Any

from orchestrator import plugins
from orchestrator.settings import Settings


@dataclass(frozen=True, slots=True)
class PluginRef:
    """A plug-in and its validated settings: of a method, a server or a dataset."""

    kind: str
    config: Settings

    @property
    def name(self) -> str:
        """Name in tables: its own name, else its kind."""
        return getattr(self.config, "name", None) or plugins.label(self.kind)

    def resolved(self) -> dict[str, Any]:
        """Kind and settings as plain data."""
        return {"kind": self.kind, **self.config.model_dump(mode="json")}
