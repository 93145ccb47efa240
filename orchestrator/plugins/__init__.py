"""Discovery of plug-ins by kind.

Kinds are searched in this order: a file or package of this project (in the family "backends"
`kind: fake` is `backends/fake.py` and `kind: vllm` is `backends/vllm/__init__.py`), a class of a
file that several kinds share (`KINDS` in the family's package names it, as `file:Class`), an entry
point of an installed package, a file beside the recipe (`kind: ./my_method.py`), and a module
(`kind: package.module` or `package.module:Class`). An installed package is trusted; the last two
are imported only with `allow_code`.
"""

import contextlib
import importlib
import importlib.util
import logging
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Final, TypeVar

from orchestrator.errors import NotAllowedError, OrchestratorError, PluginError, nearest
from orchestrator.plugins import by_path

T = TypeVar("T")

BACKENDS: Final = "backends"
LAUNCH: Final = "launch"
METHODS: Final = "orchestrator.methods"
ANALYSES: Final = "orchestrator.analyses"
SUMMARIES: Final = "orchestrator.summaries"
STATISTICS: Final = "orchestrator.estimates"
DATASETS: Final = "orchestrator.datasets"

WORDS = {
    BACKENDS: "backend",
    LAUNCH: "server",
    METHODS: "method",
    ANALYSES: "analysis",
    SUMMARIES: "summary",
    STATISTICS: "statistic",
    DATASETS: "dataset",
}
_GROUPS = {
    BACKENDS: "orchestrator.backends",
    LAUNCH: "orchestrator.servers",
    METHODS: "orchestrator.methods",
    ANALYSES: "orchestrator.analyses",
    DATASETS: "orchestrator.datasets",
    STATISTICS: "orchestrator.statistics",
}

REMOVED: Final[Mapping[str, str]] = {
    "adaptive_pairs": "ask fewer with stop_when, or a sample of the items with subset",
    "calibrate": "correct win rates by the known winners with human_labels",
    "chat_template_kwargs": "write it in the model's `extra_body`",
    "example_of_dataset": "write judgments that the judge is shown as `examples`",
    "extra_body": "write `extra_body` of the model, beside `backend`",
    "extra_parameters": "methods say how texts are drawn; for other fields write `extra_body` "
    "of the model",
    "extra_sampling": "methods say how texts are drawn; for other fields write `extra_body` "
    "of the model",
    "judge_audit": "see its flips and verdict in each report; compare its scores with its "
    "comparisons by meta_evaluation",
    "judge_calibration": "its tables are among those of judge_accuracy",
    "judge_recalibration": "see judge_accuracy, and correct win rates with human_labels",
    "juries": "run jury",
    "jury_reliability": "use self_preference for how well each judge tells models apart, and jury",
    "labelled_examples": "write judgments that the judge is shown as `examples`",
    "listwise": "compare pairs with pairwise_ranking",
    "observe": "it reads the tokens that come with the answer; glass_box scores answers",
    "padded_answers": "see what length is worth in the ratings at equal style of each report",
    "rated_by": "reward models are asked by /pooling",
    "style_control": "every report of judged pairs has ratings at equal style",
}
"""Kinds and settings that are gone, and what to do instead."""

OWN_PACKAGES: Final = (BACKENDS, LAUNCH)
"""Packages that belong to this `orchestrator` and have common names.

A folder or package of a user can come before them on the module path. They are therefore imported
from where `orchestrator` itself lies.
"""
_HOME: Final = Path(__file__).resolve().parents[2]

_log = logging.getLogger(__name__)

# Files of plug-ins from outside this project that were loaded, with their kinds: what they raise is
# theirs.
_foreign_files: dict[str, str] = {}


@cache
def kinds(family: str) -> tuple[str, ...]:
    """Names of the plug-ins in a family: files without an underscore before, and keys of `KINDS`.

    Raises:
        PluginError: If another package of that name was imported before ours.
    """
    if family in OWN_PACKAGES:
        claim(family)
    files = pkgutil.iter_modules(importlib.import_module(family).__path__)
    return tuple(sorted({*(one.name for one in files if one.name[0] != "_"), *_shared(family)}))


def _shared(family: str) -> Mapping[str, str]:
    """The kinds of a family that share a file with others, as `file:Class`."""
    found: Mapping[str, str] = getattr(importlib.import_module(family), "KINDS", {})
    return found


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


def load(family: str, kind: str, *, allow_code: bool = False) -> ModuleType:
    """The module of a kind.

    Raises:
        PluginError: If there is none, with the nearest name, if it can't be imported, or if it is a
            file or module from outside and these are not allowed.
    """
    if kind in kinds(family):
        _warn_of_shadowed(family, kind)
        return _imported(f"{family}.{_shared(family).get(kind, kind).partition(':')[0]}", kind)
    point = _installed_one(family, kind)
    if point is not None:
        return _from_outside(point.module, kind)
    if not (by_path.is_file(kind) or set(".:") & set(kind)):
        known = known_kinds(family)
        hint = was_removed(kind) or nearest(kind, known)
        raise PluginError(f"no {WORDS[family]} of kind {kind!r}{hint}")
    if not by_path.is_file(kind):
        module, _, chosen = kind.partition(":")
        parts = [*module.split("."), *([chosen] if ":" in kind else [])]
        if not all(part.isidentifier() for part in parts):
            raise PluginError(
                f"{kind!r} is neither a file that ends in {by_path.SUFFIX} nor a module; give "
                f"'./my_method.py' or 'mypackage.mymethod'"
            )
    if not allow_code:
        raise NotAllowedError(f"{kind!r} is code that the recipe names, which needs permission")
    return _from_outside(kind.partition(":")[0], kind)


def was_removed(name: str) -> str:
    """Return the end of a message about a kind or setting that is gone; empty for others."""
    return f"; it was removed: {REMOVED[name]}" if name in REMOVED else ""


def known_kinds(family: str) -> list[str]:
    """Names of a family's kinds of this project and of installed packages, sorted."""
    return sorted({*kinds(family), *(point.name for point in installed(family))})


@cache
def installed(family: str) -> tuple[EntryPoint, ...]:
    """Entry points of installed packages for a family, sorted by name."""
    group = _GROUPS.get(family)
    found = () if group is None else entry_points(group=group)
    # A folder that is twice on the module path has its packages twice.
    points = {(point.name, point.value, package_of(point)): point for point in found}
    return tuple(points[key] for key in sorted(points))


def package_of(point: EntryPoint) -> str:
    """Return name and version of the package that an entry point belongs to."""
    package = point.dist
    return "an unknown package" if package is None else f"{package.name} {package.version}"


def class_name(family: str, kind: str) -> str:
    """Return the class that a kind names in its module; empty where it names none."""
    if kind in kinds(family) or by_path.is_file(kind):
        return _shared(family).get(kind, "").partition(":")[2]
    point = _installed_one(family, kind)
    return kind.partition(":")[2] if point is None else point.attr or ""


def kind_of(plugin: type) -> str:
    """Return the kind by which a recipe names a class of ours, `module:Class` for another one."""
    family, _, file = plugin.__module__.rpartition(".")
    if family not in WORDS:
        return f"{plugin.__module__}:{plugin.__qualname__}"
    shared = {place: kind for kind, place in _shared(family).items()}
    return shared.get(f"{file}:{plugin.__name__}", file)


def about(family: str, kind: str) -> str:
    """Return the line that a kind says of itself: of the class that it names, else of its module.

    Raises:
        PluginError: If it can't be imported.
    """
    module = load(family, kind)
    named = vars(module).get(class_name(family, kind))
    return (getattr(named, "__doc__", None) or module.__doc__ or "").strip().partition("\n")[0]


def label(kind: str) -> str:
    """Return what tables and frames call a kind where nobody gives it another name."""
    if by_path.is_file(kind):
        return by_path.label(kind)
    module, _, chosen = kind.partition(":")
    return chosen or module.rpartition(".")[2]


@cache
def _warn_of_shadowed(family: str, kind: str) -> None:
    for point in installed(family):
        if point.name == kind:
            _log.warning(
                "the %s %r of %s is not used because orchestrator has one of this name; use "
                "the name of its module, %r",
                WORDS[family], kind, package_of(point), point.value,
            )  # fmt: skip


def _installed_one(family: str, kind: str) -> EntryPoint | None:
    """The entry point of a kind.

    Raises:
        PluginError: If several packages have one of this name.
    """
    points = [point for point in installed(family) if point.name == kind]
    if len(points) > 1:
        packages = " and ".join(map(package_of, points))
        raise PluginError(
            f"the {WORDS[family]} {kind!r} is in {packages}; uninstall one of them, or name its "
            f"module ({' or '.join(repr(point.value) for point in points)})"
        )
    return points[0] if points else None


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
                f"{place_of(module)} has no class derived from {_said(base)}; if the class is "
                "defined in another module, name that module"
            )
        if len(own) > 1:
            names = ", ".join(one.__name__ for one in own)
            raise PluginError(
                f"{place_of(module)} has several classes derived from {_said(base)} ({names}); "
                "choose one with 'module:Class', or start the names of the others with an "
                "underscore"
            )
        (chosen,) = own
    if lacking := sorted(getattr(chosen, "__abstractmethods__", ())):
        raise PluginError(f"{place_of(module)}: {chosen.__name__} lacks {', '.join(lacking)}")
    return chosen


def _said(base: type) -> str:
    return f"orchestrator.plugin.{base.__name__}"


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
    except (OrchestratorError, KeyboardInterrupt):
        raise
    # Code from outside may end the program (`sys.exit`), but not this one.
    except BaseException as error:
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


def _from_outside(name: str, kind: str) -> ModuleType:
    module = _imported(name, kind)
    # A package has more files.
    files = by_path.files(kind) if by_path.is_file(kind) else ()
    _foreign_files.update(dict.fromkeys((place_of(module), *files), kind))
    return module


def _imported(name: str, kind: str) -> ModuleType:
    try:
        if by_path.is_file(kind):
            return by_path.load(kind)
        return importlib.import_module(name)
    except (PluginError, KeyboardInterrupt):
        raise
    # A module may raise anything while it is imported.
    except BaseException as error:
        raise PluginError(f"cannot import {kind!r}: {_why(error, name)}") from error


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
        if not frame.filename.startswith("<") and frame.filename not in _IMPORTERS
    ]
    where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    hint = by_path.hint_for_neighbour(name, missing) if missing else ""
    return f"{where}{type(error).__name__}: {error}{hint}"


_IMPORTERS = {__file__, by_path.__file__, importlib.__file__}
