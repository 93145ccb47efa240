"""The contracts of plug-ins, checked when one is loaded: a broken file is a fault, no traceback.

A family has a base class, and a list of its parts, each a name and a test of its value. The texts
of what is wrong name the class and where it is. The bases of methods, summaries and analyses are
here (`method.py`).
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

from orchestrator import plugins
from orchestrator.backend import Backend, BackendKind, Capabilities, Endpoint
from orchestrator.columns import (
    COLUMN_TYPES,
    AnswerColumns,
    PairColumns,
    RewriteColumns,
    ScoreColumns,
)
from orchestrator.contracts.method import (
    STATUS_COLUMNS,
    Analysis,
    Method,
    MethodSettings,
    Statistic,
    StatisticSettings,
    Summary,
    frame_of,
    roles_of,
    schema_of,
)
from orchestrator.dataset import About, DatasetKind
from orchestrator.errors import PluginError
from orchestrator.plugins.base import Plugin, Settings
from orchestrator.serving import LaunchKind

# Summaries add the last two beside `item`: what intervals are over, and what is counted.
_OF_THE_RUN: Final = frozenset({"method", "server_epoch", "cluster", "prompt_key"})

_T = TypeVar("_T")
_PluginT = TypeVar("_PluginT", bound=Plugin)
_Fault = Callable[[Any], str]
"""Gives what is wrong with a value, to stand after its name; empty for nothing."""


def load(base: type[_PluginT], kind: str, *, allow_code: bool = False) -> type[_PluginT]:
    """Return the class of a kind, of the family with this base, if it keeps their contract.

    Raises:
        PluginError: If there is none, if it is not allowed, or if it breaks the contract.
    """
    family = next(family for family, of in BASES.items() if of is base)
    module = plugins.load(family, kind, allow_code=allow_code)
    found = plugins.class_in(module, base, plugins.class_name(family, kind))
    check_class(family, found)  # type: ignore[arg-type]  # classes have hashes
    return found


def summary(kind: str, of: type[Method]) -> type[Summary] | None:
    """Return the class that turns a method's rows into tables; None where there is none.

    Of methods of this project it has the name of the kind, or of the frame that kinds share.

    Raises:
        PluginError: If it breaks the contract.
    """
    if of.summary is not None:
        check_class(plugins.SUMMARIES, of.summary)
        return of.summary
    own = (kind, frame_of(of, kind)) if kind in plugins.kinds(plugins.METHODS) else ()
    known = [name for name in own if name in plugins.kinds(plugins.SUMMARIES)]
    return load(Summary, known[0]) if known else None


@cache
def check_class(family: str, found: type[Plugin]) -> None:
    """See that a class keeps the contract of its family; a recipe names one for each model.

    Raises:
        PluginError: If it does not, with everything that is wrong.
    """
    faults = []
    for name, fault_of in _PARTS[family].items():
        if not hasattr(found, name):
            faults.append(f"it has no {name!r}")
        elif fault := fault_of(inspect.getattr_static(found, name)):
            faults.append(f"its {name!r} {fault}")
    if issubclass(found, Method) and not faults:
        if both := sorted(found.unit_columns.keys() & found.columns.keys()):
            faults = [f"'unit_columns' and 'columns' both have {', '.join(both)}"]
        elif fault := roles_of(found).fault(schema_of(found)):
            faults = [f"its {fault}"]
    if faults:
        said = "; ".join(faults)
        place = f"{found.__module__}:{found.__qualname__}"
        raise PluginError(f"{place} is not a {plugins.WORDS[family]}: {said}")


def place_of(plugin: type) -> str:
    """Return the file of a plug-in's class, or the name of its module where that has no file."""
    module = sys.modules.get(plugin.__module__)
    return plugin.__module__ if module is None else plugins.place_of(module)


def listed(plugin: Plugin[Settings], function: str, value: object, of: type[_T]) -> list[_T]:
    """Return what a method of a plug-in returned, if it is a list of values of a type.

    Raises:
        PluginError: If it is not.
    """
    if not isinstance(value, list | tuple):
        said = f"returned {type(value).__name__}, not a list"
    else:
        wrong = [one for one in value if not isinstance(one, of)]
        said = f"returned a list with {type(wrong[0]).__name__} in it" if wrong else ""
    if said:
        raise broken(plugin, function, said)
    return list(cast("Sequence[_T]", value))


def broken(plugin: Plugin[Settings], function: str, said: str) -> PluginError:
    """Return the error of a plug-in whose function breaks its contract."""
    return PluginError(f"{place_of(type(plugin))}: {function}() {said}")


def check(method: Method[MethodSettings]) -> None:
    """See that the properties of a method that name models give names.

    Raises:
        PluginError: If one does not.
    """
    for name in ("judges", "candidates"):
        value = getattr(method, name)
        if name == "candidates" and value is None:
            continue
        if not (isinstance(value, tuple | list) and all(isinstance(one, str) for one in value)):
            said = f"must be a tuple of names of models, not {_short(value)}"
            raise PluginError(f"{place_of(type(method))}: its {name!r} {said}")


def connected(kind: BackendKind[Settings], endpoint: Endpoint) -> Backend:
    """Return the connection of a back-end; a `PluginError` if a run can't call what it has."""
    with plugins.blaming():
        connection, faults = kind.connect(endpoint), []
    called = {"generate": ("ask", "seed"), "score": ("ask",), "choose": ("ask",)}
    if not isinstance(connection, Backend):
        said = f"returned {type(connection).__name__}, which is not derived from Backend"
        raise broken(kind, "connect", said)
    for name in (*called, "provenance", "load", "close"):
        fault_of = called_with(*called.get(name, ()), is_async=True)
        if fault := fault_of(getattr(connection, name)):
            faults.append(f"{name!r} {fault}")
    if faults:
        said = f"returned {type(connection).__name__}, of which {'; '.join(faults)}"
        raise broken(kind, "connect", said)
    return connection


def called_with(*names: str, is_async: bool = False) -> _Fault:
    """Return the test of a function that is called with these arguments, in this order."""
    wanted = f"({', '.join(names)})"

    def fault(value: object) -> str:
        if not callable(value):
            return f"must be a function, called with {wanted}"
        if is_async and not inspect.iscoroutinefunction(value):
            return "must be a coroutine function (async def)"
        shown = "something else"
        try:
            signature = inspect.signature(value)
            shown = str(signature)
            signature.bind(*names)
        except (TypeError, ValueError):
            return f"must take {wanted}, not {shown}"
        return ""

    return fault


def _must(holds: Callable[[Any], bool], said: str) -> _Fault:
    """Return the test of a value of which something must hold."""
    return lambda value: "" if holds(value) else f"must {said}"


def _settings(base: type[Plugin | Settings]) -> _Fault:
    said = f"be derived from {base.__name__}"
    return _must(lambda value: isinstance(value, type) and issubclass(value, base), said)


def _frame(value: object) -> str:
    is_name = isinstance(value, str) and value.isascii() and value.isidentifier()
    if value == "" or (is_name and value != "items"):
        return ""
    return f"must be a name other than 'items', such as 'answers', not {_short(value)}"


def _columns(value: object) -> str:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return "must be a mapping of column to type"
    for name, type_ in value.items():
        if type_ not in COLUMN_TYPES:
            return f"gives {name!r} the type {_short(type_)}; available: {', '.join(COLUMN_TYPES)}"
    for taken, whose in ((_OF_THE_RUN, "the run adds"), (STATUS_COLUMNS, "every method has")):
        if both := sorted(taken & value.keys()):
            return f"declares {', '.join(both)}, which {whose}"
    return ""


def _scores(value: object) -> bool:
    is_map = isinstance(value, Mapping) and all(sign in {1, -1} for sign in value.values())
    return is_map or isinstance(value, property)


def _of_type(type_: type, *, or_none: bool = False) -> _Fault:
    said = f"must be {type_.__name__}(...), or None" if or_none else f"must be a {type_.__name__}"
    return lambda value: "" if isinstance(value, type_) or (or_none and value is None) else said


def _short(value: object) -> str:
    return f"{value!r:.60}" if isinstance(value, str) else type(value).__name__


_Names = dict[str, _Fault]
_PROPERTY: Final = _must(lambda value: not callable(value), "be a property: put @property above it")
BASES: Final[Mapping[str, type[Plugin]]] = {
    plugins.METHODS: Method,
    plugins.SUMMARIES: Summary,
    plugins.ANALYSES: Analysis,
    plugins.STATISTICS: Statistic,
    plugins.BACKENDS: BackendKind,
    plugins.LAUNCH: LaunchKind,
    plugins.DATASETS: DatasetKind,
}
"""The base class of each family."""
_PARTS: Final[dict[str, _Names]] = {
    plugins.METHODS: {
        "Config": _settings(MethodSettings),
        "version": _must(
            lambda value: type(value) is int and value >= 1, "be an integer of at least 1"
        ),
        "frame": _frame,
        "unit_columns": _columns,
        "columns": _columns,
        "evaluate": called_with("self", "unit", "ask", is_async=True),
        "combinations": called_with("self", "candidates"),
        "identify": called_with("self", "unit"),
        "stages": called_with("self", "candidates"),
        **dict.fromkeys(("companions", "needs", "compared", "comparers"), called_with("self")),
        "derive": called_with("self", "rows"),
        "scores": _must(_scores, "map columns to 1 (more is better) or -1, or be a property"),
        **dict.fromkeys(("name", "candidates", "judges", "top_logprobs"), _PROPERTY),
        "feeds_others": _of_type(bool),
        "pairs": _of_type(PairColumns, or_none=True),
        "distribution": _of_type(ScoreColumns, or_none=True),
        "rewriting": _of_type(RewriteColumns, or_none=True),
        "answers": _of_type(AnswerColumns, or_none=True),
        "summary": _must(
            lambda value: value is None or not _settings(Summary)(value),
            "be a class derived from Summary, or None",
        ),
    },
    plugins.SUMMARIES: {
        "summarise": called_with("self", "context"),
        "figures": called_with("self", "context"),
        "section": _of_type(str),
    },
    plugins.ANALYSES: {"summarise": called_with("self", "context")},
    plugins.STATISTICS: {
        "Config": _settings(StatisticSettings),
        "title": _PROPERTY,
        "of": called_with("self", "values"),
    },
    plugins.BACKENDS: {
        "capabilities": lambda value: (
            "" if isinstance(value, property) else _of_type(Capabilities)(value)
        ),
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
        "serve_command": called_with("self", "options"),
    },
    plugins.DATASETS: {
        "suffixes": _must(
            lambda value: (
                isinstance(value, tuple | list)
                and all(isinstance(one, str) and one.startswith(".") for one in value)
            ),
            "be a tuple of suffixes, such as ('.txt',)",
        ),
        "about": _of_type(About, or_none=True),
        "open": called_with("self", "base"),
    },
}
