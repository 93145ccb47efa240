"""`orchestrator list`: available kinds, and where each comes from."""

import argparse
import ast
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from orchestrator import plugins
from orchestrator.disk.paths import answers
from orchestrator.errors import EXIT_COMPLETE, PluginError, UsageError
from orchestrator.plugins import by_path
from orchestrator.recipe import source
from orchestrator.recipe.load import find
from orchestrator.report import tables
from orchestrator.report.page import print_to
from orchestrator.report.text import write_to
from orchestrator.runner.planning.prepare import listing as dataset_listing

_FAMILIES: Final = {
    "methods": plugins.METHODS,
    "analyses": plugins.ANALYSES,
    "statistics": plugins.STATISTICS,
    "backends": plugins.BACKENDS,
    "servers": plugins.LAUNCH,
    "datasets": plugins.DATASETS,
}
BUNDLED: Final = "bundled"


class Listed(msgspec.Struct, frozen=True):
    """A kind that a recipe may name.

    Attributes:
        family: "methods", "datasets", …
        kind: As recipes name it.
        origin: "bundled", an installed package with its version, or the file of the code.
        about: A line on what it is, or why it can't be loaded.
    """

    family: str
    kind: str
    origin: str
    about: str


def kinds(options: argparse.Namespace) -> int:
    """List what recipes can name.

    Raises:
        UsageError: If a recipe is given with a kind that recipes do not define.
    """
    if options.kind in {"recipes", "weights"}:
        if options.recipe is not None:
            raise UsageError(f"`orchestrator list {options.kind}` takes no recipe")
        module = importlib.import_module(f"orchestrator.runner.commands.{options.kind}")
        return int(getattr(module, options.kind)(options))
    families = list(_FAMILIES) if options.kind == "plugins" else [options.kind]
    found = [one for family in families for one in listed(family)]
    if options.recipe is not None:
        found += _named_by(find(options.recipe), families)
    if options.json:
        write_to(sys.stdout, json.dumps([msgspec.to_builtins(one) for one in found]) + "\n")
        return EXIT_COMPLETE
    for family in families:
        rows = _rows([one for one in found if one.family == family], family)
        if len(families) > 1:
            write_to(sys.stdout, f"{family}\n")
        print_to(sys.stdout, tables.listing(rows))
    return EXIT_COMPLETE


def listed(family: str) -> Iterator[Listed]:
    """Yield the kinds of this project, then those of installed packages, which are imported."""
    package = _FAMILIES[family]
    bundled = plugins.kinds(package)
    for kind in bundled:
        yield Listed(family, kind, BUNDLED, _about(package, kind))
    points = plugins.installed(package)
    names = [point.name for point in points]
    for point in points:
        origin = plugins.package_of(point)
        if point.name in bundled:
            about = f"not used: a bundled kind has this name; use its module name, {point.value!r}"
        else:
            about = _about(package, point.name)
        kind = point.name if names.count(point.name) == 1 else point.value
        yield Listed(family, kind, origin, about)


def _about(package: str, kind: str) -> str:
    try:
        return _first_line(plugins.load(package, kind).__doc__)
    except PluginError as error:
        return str(error)


def _rows(found: list[Listed], family: str) -> list[tuple[str, str]]:
    rows = [(one.kind, one.about) for one in found if one.origin == BUNDLED]
    if family == "datasets":
        rows = dataset_listing()
    for one in found:
        if one.origin != BUNDLED:
            rows += [(one.kind, one.about), ("", f"from {one.origin}")]
    return rows


def _named_by(recipe: Path, families: list[str]) -> Iterator[Listed]:
    """The code that a recipe names, each once; it is read, and not run."""
    data = source.parse_bytes(recipe.read_bytes(), str(recipe)).data
    seen = set()
    for family, kind in _kinds_of(data if isinstance(data, dict) else {}):
        is_file = by_path.is_file(kind)
        if family not in families or (family, kind) in seen:
            continue
        if not is_file and not {".", ":"} & set(kind):
            continue
        seen.add((family, kind))
        place = by_path.absolute(kind, str(recipe.parent)) if is_file else _place_of(kind)
        yield Listed(family, kind, place or "not found", _docstring(Path(place)) if place else "")


def _kinds_of(data: dict[str, object]) -> Iterator[tuple[str, str]]:
    models = data.get("models")
    said: list[tuple[str, object]] = [("datasets", data.get("dataset"))]
    for family in ("methods", "analyses"):
        entries = data.get(family)
        said += [(family, entry) for entry in (entries if isinstance(entries, list) else ())]
    statistics = data.get("statistics")
    entries = statistics.get("of") if isinstance(statistics, dict) else None
    said += [("statistics", entry) for entry in (entries if isinstance(entries, list) else ())]
    for model in models.values() if isinstance(models, dict) else ():
        if isinstance(model, dict):
            said += [("servers", model.get("server")), ("backends", model.get("backend"))]
    for family, entry in said:
        kind = entry.get("kind") if isinstance(entry, dict) else entry
        if isinstance(kind, str):
            yield family, kind


def _place_of(kind: str) -> str:
    """The file of a module, as far as it can be told without importing a package."""
    top, _, rest = kind.partition(":")[0].partition(".")
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ""
    if found is None or not rest:
        return (found and found.origin) or ""
    for folder in found.submodule_search_locations or ():
        place = Path(folder, *rest.split("."))
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if answers(file, Path.is_file):
                return str(file)
    return ""


def _docstring(file: Path) -> str:
    try:
        return _first_line(ast.get_docstring(ast.parse(file.read_bytes())))
    except (OSError, ValueError, SyntaxError) as error:
        return f"cannot be read: {error}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
