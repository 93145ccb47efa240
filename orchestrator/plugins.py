"""Plug-ins found by file name: `kind: vllm` in the family "backends" is `backends/vllm.py`.

No registry and no import side effects. A kind with a dot is a full module path; such a module is
imported only where the caller allows code from outside (`allow_code`).
"""

import contextlib
import difflib
import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from traceback import extract_tb
from types import ModuleType
from typing import TypeVar

from orchestrator import own_packages
from orchestrator.errors import OrchestratorError, PluginError

T = TypeVar("T")

BACKENDS = "backends"
LAUNCH = "launch"
METHODS = "orchestrator.methods"
ANALYSES = "orchestrator.analyses"
SUMMARIES = "orchestrator.summaries"
DATASETS = "orchestrator.datasets"

_WORDS = {
    BACKENDS: "backend",
    LAUNCH: "server",
    METHODS: "method",
    ANALYSES: "analysis",
    SUMMARIES: "summary",
    DATASETS: "dataset",
}


# Files of modules from outside this project that were loaded: what they raise is theirs.
_foreign_files: dict[str, str] = {}


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
        PluginError: If there is none, with the nearest name, if it can't be imported, or if it is a
            dotted path and code from outside is not allowed.
    """
    if "." in kind:
        return _load_dotted(kind, allow_code=allow_code)
    known = kinds(family)
    if kind in known:
        return _imported(f"{family}.{kind}", kind)
    near = difflib.get_close_matches(kind, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
    raise PluginError(f"no {word_of(family)} of kind {kind!r}{hint}")


def class_in(module: ModuleType, base: type[T], name: str = "") -> type[T]:
    """Return the one class of a family that a module defines.

    A class that it imports doesn't count, nor does one whose name begins with an underscore.

    Args:
        module: Of the plug-in.
        base: The base class of the family.
        name: Of the class, where the kind names one (`module:Class`); it may be an imported one.

    Raises:
        PluginError: If there is none, if there are several, or if it still lacks a method.
    """
    if name:
        found = vars(module).get(name)
        if not (isinstance(found, type) and issubclass(found, base)):
            raise PluginError(f"{place_of(module)} has no class {name} derived from {_said(base)}")
        chosen = found
    else:
        own = [
            value
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, base)
            and value.__module__ == module.__name__
            and name == value.__name__
            and name[0] != "_"
        ]
        if not own:
            raise PluginError(
                f"{place_of(module)} has no class derived from {_said(base)}; where the class is "
                f"defined in another module, name that one"
            )
        if len(own) > 1:
            names = ", ".join(one.__name__ for one in own)
            raise PluginError(
                f"{place_of(module)} has several classes derived from {_said(base)} ({names}); "
                f"name one by 'module:Class', or begin the names of the others with an underscore"
            )
        (chosen,) = own
    if lacking := sorted(getattr(chosen, "__abstractmethods__", ())):
        raise PluginError(f"{place_of(module)}: {chosen.__name__} lacks {', '.join(lacking)}")
    return chosen


def _said(base: type) -> str:
    return f"orchestrator.plugin.{base.__name__}"


def word_of(family: str) -> str:
    """Return what a plug-in of a family is called."""
    return _WORDS.get(family, family)


def place_of(module: ModuleType) -> str:
    """Return the file of a module, or its name where it has none."""
    return getattr(module, "__file__", None) or module.__name__


@contextlib.contextmanager
def blaming() -> Iterator[None]:
    """Turn what code from outside raises inside into an error that names its file and line.

    Raises:
        PluginError: For an exception that passed through such code.
    """
    try:
        yield
    except OrchestratorError:
        raise
    except Exception as error:
        blamed = blame(error)
        if blamed is None:
            raise
        raise blamed from error


def blame(error: BaseException) -> PluginError | None:
    """Return the error that names file and line of the code from outside that raised it.

    None where no such code took part.
    """
    frames = reversed(extract_tb(error.__traceback__))
    last = next((frame for frame in frames if frame.filename in _foreign_files), None)
    if last is None:
        return None
    kind = _foreign_files[last.filename]
    return PluginError(
        f"{last.filename}:{last.lineno}: {kind!r} raised {type(error).__name__}: {error}"
    )


def _load_dotted(kind: str, *, allow_code: bool) -> ModuleType:
    if not all(part.isidentifier() for part in kind.split(".")):
        raise PluginError(
            f"{kind!r} is no module; give its name, such as 'mypackage.mymethod', and have its "
            f"folder on PYTHONPATH"
        )
    if not allow_code:
        raise PluginError(f"{kind!r} is code from outside this project; allow it by --allow-code")
    module = _imported(kind, kind)
    _foreign_files[place_of(module)] = kind
    return module


def _imported(name: str, kind: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    # A module may raise anything while it is imported.
    except (Exception, SystemExit) as error:
        raise PluginError(f"can't import {kind!r}: {_why(error, name)}") from error


def _why(error: BaseException, name: str) -> str:
    """Describe the error of an import, with file and line unless the import itself failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and (name == missing or name.startswith(f"{missing}.")):
        is_package = missing == name.partition(".")[0]
        return f"{error}; is its folder on PYTHONPATH?" if is_package else str(error)
    # Frames of the import system itself have no file.
    frames = [
        frame
        for frame in extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and frame.filename not in {__file__, _IMPORTLIB}
    ]
    where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return f"{where}{type(error).__name__}: {error}"


_IMPORTLIB = importlib.__file__
