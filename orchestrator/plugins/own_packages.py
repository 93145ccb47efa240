"""The packages `backends` and `launch` that belong to this `orchestrator`.

Their names are common, so that a folder or package of a user can come before them on the module
path. They are therefore imported from where `orchestrator` itself lies.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from orchestrator.errors import PluginError

NAMES = ("backends", "launch")
_HOME = Path(__file__).resolve().parents[2]


def claim(name: str) -> ModuleType:
    """Import our package of this name, whatever else is on the module path.

    Raises:
        PluginError: If it is not installed, or if another package of that name has been imported
            into this process.
    """
    folder = _HOME / name
    present = sys.modules.get(name)
    if present is not None:
        there = list(getattr(present, "__path__", ()))
        if not any(Path(entry).resolve() == folder for entry in there):
            origin = there[0] if there else present.__file__
            raise PluginError(
                f"the package {name!r} of {origin} was imported before orchestrator's own "
                f"{name!r}, which this run needs; rename yours, or start the run in another "
                "process (orchestrator run RECIPE)"
            )
        return present
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not (folder / "__init__.py").is_file():
        raise PluginError(f"the package {name!r} is missing from {_HOME}; reinstall orchestrator")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
