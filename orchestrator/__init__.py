"""Evaluates language models with the models' own probabilities.

result = orchestrator.run("pairwise_ranking")
result.frames["judgments"]            # a polars frame
result = orchestrator.load("runs/pairwise_ranking")
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orchestrator.errors import DatasetError as DatasetError
    from orchestrator.errors import Fault as Fault
    from orchestrator.errors import LaunchError as LaunchError
    from orchestrator.errors import MethodError as MethodError
    from orchestrator.errors import NodeLostError as NodeLostError
    from orchestrator.errors import NotAllowedError as NotAllowedError
    from orchestrator.errors import OrchestratorError as OrchestratorError
    from orchestrator.errors import PluginError as PluginError
    from orchestrator.errors import RecipeError as RecipeError
    from orchestrator.errors import RunDirectoryError as RunDirectoryError
    from orchestrator.errors import RunInUseError as RunInUseError
    from orchestrator.errors import SchedulerError as SchedulerError
    from orchestrator.errors import ServerChangedError as ServerChangedError
    from orchestrator.errors import StatisticsError as StatisticsError
    from orchestrator.errors import StoreError as StoreError
    from orchestrator.errors import UsageError as UsageError
    from orchestrator.interface.api import Citation as Citation
    from orchestrator.interface.api import Comparison as Comparison
    from orchestrator.interface.api import GateResult as GateResult
    from orchestrator.interface.api import Merged as Merged
    from orchestrator.interface.api import Plan as Plan
    from orchestrator.interface.api import Recipe as Recipe
    from orchestrator.interface.api import Result as Result
    from orchestrator.interface.api import acheck as acheck
    from orchestrator.interface.api import acompare as acompare
    from orchestrator.interface.api import agate as agate
    from orchestrator.interface.api import aload as aload
    from orchestrator.interface.api import amerge as amerge
    from orchestrator.interface.api import aplan as aplan
    from orchestrator.interface.api import arun as arun
    from orchestrator.interface.api import check as check
    from orchestrator.interface.api import compare as compare
    from orchestrator.interface.api import gate as gate
    from orchestrator.interface.api import load as load
    from orchestrator.interface.api import merge as merge
    from orchestrator.interface.api import plan as plan
    from orchestrator.interface.api import run as run

__version__ = "0.1.0"
__all__ = [
    "Citation", "Comparison", "DatasetError", "Fault", "GateResult", "LaunchError", "Merged",
    "MethodError", "NodeLostError", "NotAllowedError", "OrchestratorError", "Plan", "PluginError",
    "Recipe", "RecipeError", "Result", "RunDirectoryError", "RunInUseError", "SchedulerError",
    "ServerChangedError", "StatisticsError", "StoreError", "UsageError", "acheck", "acompare",
    "agate", "aload", "amerge", "aplan", "arun", "check", "compare", "gate", "load", "merge",
    "plan", "run",
]  # fmt: skip
_ERRORS: Final = {name for name in __all__ if name.endswith("Error")} | {"Fault"}


if not TYPE_CHECKING:
    # A type checker that sees this takes every name for an attribute.

    def __getattr__(name: str) -> object:
        # Lazily: `import orchestrator` must not cost the import of polars and pydantic.
        if name not in __all__:
            raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
        module = "errors" if name in _ERRORS else "interface.api"
        return getattr(importlib.import_module(f"orchestrator.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
