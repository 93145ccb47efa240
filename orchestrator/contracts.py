"""The contracts of plug-ins, checked when one is loaded: a broken file is a fault, no traceback.

Each family has a list of requirements, each a name that the module must export and a test of its
value. The texts of what is wrong name the file.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any, Final, Literal, cast, overload

from pydantic import BaseModel

from orchestrator import plugins
from orchestrator.backend import BackendKind, Capabilities
from orchestrator.errors import PluginError
from orchestrator.plugin_base import Plugin
from orchestrator.serving import LaunchKind

COLUMN_TYPES: Final = ("str", "f64", "i64", "bool", "list[f64]", "list[str]")
STATUS_COLUMNS: Final = {"status": "str", "cause": "str", "message": "str"}
# Summaries add `cluster`, which intervals are over, beside `item`.
_OF_THE_RUN: Final = frozenset({"method", "server_epoch", "cluster"})

_Fault = Callable[[Any], str]
"""Gives what is wrong with a value, to stand after its name; empty for nothing."""


@overload
def load(
    family: Literal["backends"], kind: str, *, allow_code: bool = False
) -> type[BackendKind]: ...


@overload
def load(family: Literal["launch"], kind: str, *, allow_code: bool = False) -> type[LaunchKind]: ...


@overload
def load(
    family: Literal["orchestrator.methods", "orchestrator.analyses", "orchestrator.datasets"],
    kind: str,
    *,
    allow_code: bool = False,
) -> ModuleType: ...


@overload
def load(family: str, kind: str, *, allow_code: bool = False) -> type[Plugin] | ModuleType: ...


def load(family: str, kind: str, *, allow_code: bool = False) -> type[Plugin] | ModuleType:
    """Return the class of a kind if it keeps the contract of its family.

    Of families that have no base class yet it is the module, as from `plugins.load`.

    Raises:
        PluginError: If there is none, if it is not allowed, or if it breaks the contract.
    """
    module = plugins.load(family, kind, allow_code=allow_code)
    base = _BASES.get(family)
    if base is None:
        check(family, module)
        return module
    found = plugins.class_in(module, base, plugins.class_name(family, kind))
    check_class(family, found)
    return found


def check_class(family: str, found: type[Plugin]) -> None:
    """See that a class keeps the contract of its family.

    Raises:
        PluginError: If it does not, with everything that is wrong.
    """
    faults = []
    for name, fault_of in _PARTS[family].items():
        if not hasattr(found, name):
            faults.append(f"it has no {name!r}")
        elif fault := fault_of(inspect.getattr_static(found, name)):
            faults.append(f"its {name!r} {fault}")
    if faults:
        said = "; ".join(faults)
        place = f"{found.__module__}:{found.__qualname__}"
        raise PluginError(f"{place} is no {plugins.word_of(family)}: {said}")


@cache
def check(family: str, module: ModuleType) -> None:
    """See that a module keeps the contract of its family.

    Raises:
        PluginError: If it does not, with everything that is wrong.
    """
    required, optional = _FAMILIES[family]
    missing = [repr(name) for name in required if not hasattr(module, name)]
    faults = [f"it has no {', '.join(missing)}"] if missing else []
    for name, fault_of in (required | optional).items():
        fault = fault_of(getattr(module, name)) if hasattr(module, name) else ""
        if fault:
            faults.append(f"its {name!r} {fault}")
    if faults:
        said = "; ".join(faults)
        raise PluginError(f"{module.__name__} is no {plugins.word_of(family)}: {said}")


def listed(module: object, function: str, value: object, of: type | tuple[type, ...]) -> list[Any]:
    """Return what a function of a plug-in returned, if it is a list of values of a type.

    Args:
        module: The plug-in.
        function: Its name there, for messages.
        value: What it returned.
        of: The type of each entry; a tuple of types where each entry is a tuple of these.

    Raises:
        PluginError: If it is not.
    """
    if not isinstance(value, list | tuple):
        said = f"returned {type(value).__name__}, not a list"
    else:
        wrong = [one for one in value if not _is_entry(one, of)]
        said = f"returned a list with {type(wrong[0]).__name__} in it" if wrong else ""
    if said:
        place = plugins.place_of(module) if isinstance(module, ModuleType) else "a method"
        raise PluginError(f"{place}: {function}() {said}")
    return list(cast("Sequence[Any]", value))


def _is_entry(one: object, of: type | tuple[type, ...]) -> bool:
    if isinstance(of, type):
        return isinstance(one, of)
    is_tuple = isinstance(one, tuple) and len(one) == len(of)
    return is_tuple and all(map(isinstance, cast("tuple[Any, ...]", one), of))


def called_with(*names: str, is_async: bool = False) -> _Fault:
    """Return the test of a function that is called with these arguments, in this order."""
    wanted = f"({', '.join(names)})"

    def fault(value: object) -> str:
        if not callable(value):
            return f"must be a function, called with {wanted}"
        if is_async and not inspect.iscoroutinefunction(value):
            return "must be a coroutine function (async def)"
        try:
            inspect.signature(value).bind(*names)
        except (TypeError, ValueError):
            return f"must take {wanted}, not {_signature(value)}"
        return ""

    return fault


def _signature(value: Callable[..., object]) -> str:
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return "something else"


def _config(value: object) -> str:
    is_model = isinstance(value, type) and issubclass(value, BaseModel)
    return "" if is_model else "must be a pydantic model"


def _version(value: object) -> str:
    return "" if type(value) is int and value >= 1 else "must be a whole number from 1 up"


def _frame(value: object) -> str:
    if isinstance(value, str) and value.isascii() and value.isidentifier() and value != "items":
        return ""
    return f"must be a name other than 'items', such as 'answers', not {_short(value)}"


def _schema(value: object) -> str:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return "must be a mapping of column to type"
    for name, type_ in value.items():
        if type_ not in COLUMN_TYPES:
            return f"gives {name!r} the type {_short(type_)}; there are {', '.join(COLUMN_TYPES)}"
    taken = sorted(_OF_THE_RUN & value.keys())
    if taken:
        return f"declares {', '.join(taken)}, which the run adds"
    lacking = [name for name, type_ in STATUS_COLUMNS.items() if value.get(name) != type_]
    if lacking:
        return f"lacks {', '.join(lacking)}: begin it with **STATUS_COLUMNS"
    return ""


def _scores(value: object) -> str:
    is_map = isinstance(value, Mapping) and all(sign in {1, -1} for sign in value.values())
    return "" if is_map else "must map columns to 1 (more is better) or -1"


def _of_type(type_: type) -> _Fault:
    return lambda value: "" if isinstance(value, type_) else f"must be a {type_.__name__}"


def _property_of(type_: type) -> _Fault:
    plain = _of_type(type_)
    return lambda value: "" if isinstance(value, property) else plain(value)


def _suffixes(value: object) -> str:
    is_list = isinstance(value, tuple | list)
    good = is_list and all(isinstance(one, str) and one.startswith(".") for one in value)  # type: ignore[attr-defined]
    return "" if good else "must be a tuple of suffixes, such as ('.txt',)"


def _short(value: object) -> str:
    return f"{value!r:.60}" if isinstance(value, str) else type(value).__name__


_Names = dict[str, _Fault]
_FAMILIES: Final[dict[str, tuple[_Names, _Names]]] = {
    plugins.METHODS: (
        {
            "Config": _config,
            "VERSION": _version,
            "FRAME": _frame,
            "SCHEMA": _schema,
            "combinations": called_with("candidates", "config"),
            "columns": called_with("unit"),
            "stages": called_with("candidates", "config"),
            "companions": called_with("config"),
            "evaluate": called_with("unit", "ask", "config", is_async=True),
        },
        {
            "needs": called_with("config"),
            "summarise": called_with("context"),
            "demonstrates": called_with("config"),
            "compared": called_with("config"),
            "comparers": called_with("config"),
            "scores": called_with("config"),
            "derive": called_with("rows", "config"),
            "SCORES": _scores,
        },
    ),
    plugins.ANALYSES: ({"Config": _config, "summarise": called_with("context")}, {}),
    plugins.DATASETS: (
        {"Config": _config, "create": called_with("config", "base")},
        {"SUFFIXES": _suffixes},
    ),
}

_BASES: Final[dict[str, type[Plugin]]] = {
    plugins.BACKENDS: BackendKind,
    plugins.LAUNCH: LaunchKind,
}
_PARTS: Final[dict[str, _Names]] = {
    plugins.BACKENDS: {
        "capabilities": _property_of(Capabilities),
        "connect": called_with("self", "endpoint"),
    },
    plugins.LAUNCH: {
        "backend": _of_type(str),
        "multi_model": _of_type(bool),
        "identity": called_with("self", "weights"),
        "start": called_with("self", "models", "log_path", is_async=True),
        "backend_settings": called_with("self", "model"),
        "programs": called_with("self"),
        "footprint": called_with("self", "models"),
        "placed": called_with("self", "gpus", "memory_fraction"),
        "tokenizer": called_with("self", "weights"),
    },
}
