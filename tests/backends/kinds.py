"""The classes that the files of back-ends hold."""

from types import ModuleType
from typing import Any

from orchestrator import plugins
from orchestrator.backend import BackendKind


def kind_in(module: ModuleType) -> type[BackendKind[Any]]:
    """Return the kind of back-end that a file holds."""
    return plugins.class_in(module, BackendKind)
