"""The classes that the files of launch kinds hold."""

from types import ModuleType
from typing import Any

from orchestrator import plugins
from orchestrator.serving import LaunchKind


def kind_in(module: ModuleType) -> type[LaunchKind[Any]]:
    """Return the launch kind that a file holds."""
    return plugins.class_in(module, LaunchKind)
