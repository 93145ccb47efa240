"""Plug-ins found by file name: `kind: vllm` in the family "backends" is `backends/vllm.py`.

No registry and no import side effects. A kind with a dot is a full module path; such a module is
imported only where the caller allows code from outside (`allow_code`).
"""

import difflib
import importlib
import pkgutil
from functools import cache
from types import ModuleType

from orchestrator import own_packages
from orchestrator.errors import PluginError

BACKENDS = "backends"
LAUNCH = "launch"
METHODS = "orchestrator.methods"
ANALYSES = "orchestrator.analyses"
SUMMARIES = "orchestrator.summaries"

_WORDS = {
    BACKENDS: "backend",
    LAUNCH: "server",
    METHODS: "method",
    ANALYSES: "analysis",
    SUMMARIES: "summary",
    "orchestrator.datasets": "dataset",
}


@cache
def kinds(family: str) -> tuple[str, ...]:
    """Names of the plug-ins in a family; files that begin with an underscore are not plug-ins.

    Raises:
        PluginError: If another package of that name was imported before ours.
    """
    if family in own_packages.NAMES:
        own_packages.claim(family)
    package = importlib.import_module(family)
    names = sorted(
        info.name for info in pkgutil.iter_modules(package.__path__) if info.name[0] != "_"
    )
    return tuple(names)


def load(family: str, kind: str, *, allow_code: bool = False) -> ModuleType:
    """The module of a kind.

    Raises:
        PluginError: If there is none, with the nearest name, or if it is a dotted path and code
            from outside is not allowed.
    """
    if "." in kind:
        return _load_dotted(family, kind, allow_code=allow_code)
    known = kinds(family)
    if kind in known:
        return importlib.import_module(f"{family}.{kind}")
    near = difflib.get_close_matches(kind, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
    raise PluginError(f"no {_WORDS.get(family, family)} of kind {kind!r}{hint}")


def _load_dotted(family: str, kind: str, *, allow_code: bool) -> ModuleType:
    if not allow_code:
        raise PluginError(f"{kind!r} is code from outside this project; allow it by --allow-code")
    try:
        return importlib.import_module(kind)
    except ImportError as error:
        raise PluginError(f"{family}: can't import {kind!r}: {error}") from error
