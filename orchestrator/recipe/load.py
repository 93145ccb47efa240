"""A recipe file to a `Recipe`, or every fault of it at once."""

import difflib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from orchestrator import plugins
from orchestrator.contracts.method import clash_in, frame_of, schema_of
from orchestrator.dataset import FileSettings, FolderSettings
from orchestrator.disk.paths import STORE_NAME, answers
from orchestrator.errors import Fault, RecipeError, UsageError, nearest
from orchestrator.gates import MEASURES, Requirement, Token, UnreadableError, read
from orchestrator.plugins.permission import is_allowed
from orchestrator.recipe import source
from orchestrator.recipe.faults import (
    complaint,
    from_pydantic,
    refuse_in_requests,
    refuse_infinite,
    refuse_secrets,
)
from orchestrator.recipe.schema import (
    NAME_PATTERN,
    MethodRef,
    PluginRef,
    Recipe,
    RecipeFile,
    StatisticsSettings,
)
from orchestrator.recipe.settings import ReusedRun
from orchestrator.recipe.source import Written
from orchestrator.recipe.validation import Plugs, existing, merge_defaults

_Named = Literal["model", "judge", "method"]


def read_checked(text: str, names: Mapping[_Named, Collection[str]]) -> Requirement:
    """Return a requirement whose names are known.

    Args:
        text: The requirement.
        names: Those of the recipe: of a "model" that is evaluated, a "judge" and a "method".

    Raises:
        UnreadableError: If it can't be read, or a name is unknown; with the nearest name.
    """
    found = read(text)
    for term in found.terms:
        for role, argument in zip(MEASURES[term.measure].roles, term.names, strict=False):
            _check(role, argument, names[role], text)
        if len({one.text for one in term.names}) < len(term.names):
            raise UnreadableError("a model or judge is named twice", text, term.names[1].column)
        if judge := term.options.get("judge"):
            _check("judge", judge, names["judge"], text)
        if method := term.options.get("method"):
            # A score may be named with its column.
            name = replace(method, text=method.text.partition(".")[0])
            _check("method", name, names["method"], text)
    return found


def _check(what: str, argument: Token, known: Collection[str], text: str) -> None:
    if argument.text not in known:
        message = f"unknown {what} {argument.text!r}{nearest(argument.text, known)}"
        raise UnreadableError(message, text, argument.column)


RECIPE_SUFFIXES: Final = (".yaml", ".yml")
# As they were written they may hold secrets.
_ELSEWHERE: Final[dict[str, object]] = {
    "models": {},
    "dataset": None,
    "methods": [],
    "analyses": [],
    "reuse": [],
}
_PACKAGE: Final = Path(__file__).parents[1]


def load(
    path: str | os.PathLike[str],
    *,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    allow_code: bool = False,
) -> Recipe:
    """Read and validate a recipe file. Starts nothing, sends nothing, reads no secret.

    Args:
        path: The file.
        overrides: `a.b=c` settings written over the file's, values in YAML.
        limit: Use only the first so many items, whatever the file says.
        allow_code: Run code and programs that the recipe names, also where its folder is not
            allowed (`orchestrator.plugins.permission`).

    Raises:
        RecipeError: With all faults of the file and the overrides, sorted by line.
    """
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise RecipeError([Fault(str(file), 0, message)]) from error
    return loads(content, file, overrides=overrides, limit=limit, allow_code=allow_code)


def loads(
    content: bytes,
    file: Path,
    *,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    allow_code: bool = False,
) -> Recipe:
    """As `load`, for the content of a file that need not be there.

    Raises:
        RecipeError: With all faults, sorted by line.
    """
    written = Written(source.parse(content, str(file)), overrides)
    return validated(written, file, limit=limit, allow_code=allow_code)


def validated(
    written: Written, file: Path, *, limit: int | None = None, allow_code: bool = False
) -> Recipe:
    """Validate the data of a recipe.

    Args:
        written: The data.
        file: Whose folder relative paths start from, and whose name is the default for `name`.
        limit: As in `load`.
        allow_code: As in `load`.

    Raises:
        RecipeError: With all faults, sorted by line.
    """
    if limit is not None and limit < 1:
        raise RecipeError([Fault("--limit", 0, f"must be at least 1, got {limit}")])
    allow_code = allow_code or is_allowed(file)
    recipe = _Loading(written, file, allow_code=allow_code).recipe(limit)
    if recipe is None or written.faults:
        raise RecipeError(written.faults)
    return recipe


def available() -> list[Path]:
    """The recipe files that come with this project, sorted by name."""
    folders = (_PACKAGE.parent / "recipes", _PACKAGE / "_recipes")
    found: dict[str, Path] = {}
    for folder in folders:
        for file in sorted(folder.glob("*")) if folder.is_dir() else ():
            if file.suffix in RECIPE_SUFFIXES:
                found.setdefault(file.stem, file)
    return [found[name] for name in sorted(found)]


def find(name_or_path: str | os.PathLike[str]) -> Path:
    """The file of a recipe, by its path or, for one that comes with this project, by its name.

    Raises:
        UsageError: If there is none, with the nearest name.
    """
    given = Path(name_or_path)
    if given.is_file():
        return given
    recipes = {file.stem: file for file in available()}
    if given.name == str(given) and given.suffix in {"", *RECIPE_SUFFIXES}:
        name = given.stem if given.suffix else given.name
        if name in recipes:
            return recipes[name]
    what = "is a folder, not a recipe file" if given.is_dir() else "no such recipe"
    folder = given.parent
    files = sorted(file for file in folder.glob("*") if file.suffix in RECIPE_SUFFIXES)
    # Another suffix or a slip in the path is nearer than what comes with this project.
    near = difflib.get_close_matches(str(given), map(str, files), n=1, cutoff=0.8)
    near = near or difflib.get_close_matches(given.stem, recipes, n=1)
    advice = (
        f"did you mean {near[0]!r}?" if near else "list recipes with: orchestrator list recipes"
    )
    raise UsageError(f"{given}: {what}{plugins.was_removed(str(given)) or f'; {advice}'}")


class _Loading:
    """One load: collects faults on the way."""

    def __init__(self, written: Written, file: Path, *, allow_code: bool) -> None:
        self._written = written
        self._file = file
        self._frames: dict[str, MethodRef] = {}
        self._plugs = Plugs(written, str(file.parent), allow_code=allow_code)

    def recipe(self, limit: int | None) -> Recipe | None:
        data = self._written.data
        if not isinstance(data, dict):
            what = "the file is empty; " if data is None else ""
            self._written.refuse(
                (), f"{what}a recipe is a mapping of 'name:', 'models:', 'dataset:', …"
            )
            return None
        refuse_secrets(self._written)
        merge_defaults(self._written, RecipeFile.model_fields)
        data = self._written.data
        refuse_in_requests(self._written)
        checked = self._common(data)
        models = self._plugs.models(data.get("models"), checked)
        dataset = self._dataset(data)
        methods = self._methods(data)
        entries = data.get("analyses")
        entries = entries if isinstance(entries, list) else []
        bundled = plugins.kinds(plugins.ANALYSES)
        named = [isinstance(one, dict) and one.get("kind") in bundled and one for one in entries]
        statistics = StatisticsSettings() if checked is None else checked.statistics
        if not self._written.faults:
            self._check_methods(("analyses",), named, methods)
            self._check_methods(("statistics", "of"), statistics.of, methods)
        analyses = self._made(plugins.ANALYSES, ("analyses",), entries)
        of = self._made(plugins.STATISTICS, ("statistics", "of"), statistics.of)
        statistics = statistics.model_copy(update={"of": [one.resolved() for one in of]})
        reuse = [] if checked is None else self._reuse(checked.reuse)
        self._check_gates([] if checked is None else checked.gates, models, methods)
        if checked is not None and checked.on_end is not None:
            self._plugs.need_permission(("on_end",), "on_end: a command of the recipe's choice")
        for path, what in () if checked is None else checked.cluster.programs():
            self._plugs.need_permission(("cluster", *path), what)
        refuse_infinite(self._written)
        if self._written.faults or checked is None or dataset is None:
            return None
        limit = checked.limit if limit is None else limit
        recipe = Recipe(
            settings=checked.model_copy(
                update={"limit": limit, "statistics": statistics, **_ELSEWHERE}
            ),
            name=checked.name or self._file.stem,
            models=models,
            dataset=dataset,
            methods=tuple(methods),
            analyses=tuple(analyses),
            reuse=tuple(reuse),
            file=str(self._file),
            fault=self._written.fault,
        )
        for index, method in enumerate(recipe.methods):
            self._check_left_out(recipe, index, method)
        return recipe

    def _common(self, data: dict[str, object]) -> RecipeFile | None:
        if data.get("name") is None and not re.match(NAME_PATTERN, self._file.stem):
            said = f"'name' is missing, and the file name {self._file.stem!r} is not a valid name"
            self._written.refuse((), said, "name")
        try:
            folder = str(self._file.parent)
            return RecipeFile.model_validate(data, context={"folder": folder})
        except ValidationError as error:
            from_pydantic(error, self._written, (), RecipeFile)
            return None

    def _dataset(self, data: dict[str, object]) -> PluginRef | None:
        if "dataset" not in data:
            return None  # the schema has said so
        found = self._plugs.dataset(data["dataset"])
        if found is None or not isinstance(found.config, FileSettings | FolderSettings):
            return found
        path = found.config.path
        file = existing(path, self._file.parent)
        is_folder = isinstance(found.config, FolderSettings)
        if file is None or file.is_dir() != is_folder:
            missing = f"no such {'folder' if is_folder else 'file'}: {path!r}"
            what = missing if file is None else f"{path!r} is a {'file' if is_folder else 'folder'}"
            message = f"{what}{_near_file(self._file.parent / path)}"
            self._written.refuse(("dataset", "path"), message)
            return None
        return PluginRef(found.kind, found.config.model_copy(update={"path": str(file)}))

    def _methods(self, data: dict[str, object]) -> list[MethodRef]:
        entries = data.get("methods")
        models = data.get("models")
        found = []
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            path = ("methods", index)
            made = self._plugs.made(plugins.METHODS, entry, path)
            if isinstance(entry, Mapping) and isinstance(models, Mapping):
                self._check_roles(entry, path, models)
            if made is not None:
                found.append(method := MethodRef(*made))
                # Methods may share a frame if its columns, and their roles, are the same
                plugin = type(method.method)
                frame = frame_of(plugin, method.kind)
                other = self._frames.setdefault(frame, method)
                if clash := clash_in(frame, plugin, type(other.method)):
                    said = f"{method.kind!r} and {other.kind!r} {clash}"
                    self._written.refuse(path, said, "kind")
        # Rows of two methods are told apart by the name
        names = [method.name for method in found]
        for index, name in enumerate(names):
            if name in names[:index]:
                said = f"duplicate method name {name!r}; give each method a 'name'"
                self._written.refuse(("methods", index), said)
        return found

    def _made(
        self, family: str, path: source.KeyPath, entries: Sequence[object]
    ) -> list[PluginRef]:
        made = [self._plugs.made(family, one, (*path, n)) for n, one in enumerate(entries)]
        return [PluginRef(one[0], one[1].config) for one in made if one is not None]

    def _reuse(self, paths: Sequence[str]) -> list[ReusedRun]:
        """The runs to copy from; whether their stores can be read is seen when they are opened."""
        found: list[ReusedRun] = []
        for index, said in enumerate(paths):
            path = ("reuse", index)
            run = existing(said, self._file.parent)
            if run is None or not answers(run / STORE_NAME, Path.is_file):
                what = "no such folder:" if run is None else "no run found at"
                near = _near_file(self._file.parent / said) if run is None else ""
                self._written.refuse(path, f"{what} {said!r}{near}")
            elif any(other.path == str(run) for other in found):
                self._written.refuse(path, f"duplicate run {said!r}")
            else:
                place = self._written.fault(path, f"reuse.{index}: ")
                found.append(ReusedRun(str(run), said, place))
        return found

    def _check_methods(
        self, path: source.KeyPath, entries: Sequence[object], methods: Sequence[MethodRef]
    ) -> None:
        """Every method that these entries name is one of the recipe, and has the column."""
        known = {one.name: one.method for one in methods}
        written = dict(source.walk(entries, path))
        for at, value in written.items():
            message, key = "", at[-1]
            if key == "column" and isinstance(value, str):
                of = known.get(str(written.get((*at[:-1], "method"), next(iter(known), ""))))
                columns: list[str] = []
                if of is not None:
                    numbers = {"f64", "i64", "bool"}
                    types = schema_of(type(of)).items()
                    columns = list(dict.fromkeys(
                        (*(name for name, one in types if one in numbers), *of.scores)
                    ))  # fmt: skip
                    columns += of.derived if path == ("analyses",) else ()
                if columns and value not in columns:
                    message = f"no numeric column {value!r}{nearest(value, columns)}"
            elif (key == "method" or at[-2:-1] == ("methods",)) and isinstance(value, str):
                said = f"unknown method {value!r}{nearest(value, known)}"
                message = "" if value in known else said
            if message:
                self._written.refuse(at, message)

    def _check_gates(
        self, gates: Sequence[str], models: Mapping[str, object], methods: Sequence[MethodRef]
    ) -> None:
        """Every requirement can be read, and names models, judges and methods of the recipe."""
        judges = {name for one in methods for name in one.method.judges}
        named = {name for one in methods for name in one.method.candidates or ()}
        names: dict[_Named, list[str]] = {
            "model": [name for name in models if name not in judges or name in named],
            "judge": sorted(judges),
            "method": [method.name for method in methods],
        }
        for index, text in enumerate(gates):
            try:
                read_checked(text, names)
            except UnreadableError as error:
                said = f"{text!r}: column {error.column}: {error.message}"
                self._written.refuse(("gates", index), said)

    def _check_roles(
        self, entry: Mapping[str, object], path: source.KeyPath, models: Mapping[str, object]
    ) -> None:
        """Every model that a method names is one of the recipe's, and is named once."""
        kind = entry.get("kind")
        roles = self._plugs.models_named(kind) if isinstance(kind, str) else []
        for role in roles:
            given = entry.get(role)
            names: list[Any] = given if isinstance(given, list) else [given]
            for index, name in enumerate(names):
                at = [index] if isinstance(given, list) else []
                if not isinstance(name, str):
                    continue  # the method's Config has said so
                if name not in models:
                    message = f"unknown model {name!r}{nearest(name, models)}"
                    self._written.refuse((*path, role), message, *at)
                elif name in names[:index]:
                    self._written.refuse((*path, role), f"duplicate model {name!r}", *at)

    def _check_left_out(self, recipe: Recipe, index: int, method: MethodRef) -> None:
        """Candidates that nobody named are enough for the method."""
        if method.method.candidates is not None:
            return
        names = recipe.candidates(method.method)
        written: Any = self._written.data
        settings = {**written["methods"][index], "candidates": list(names)}
        del settings["kind"]
        context = {"folder": str(self._file.parent)}
        try:
            type(method.method.config).model_validate(settings, context=context)
        except ValidationError as error:
            wrong = [complaint(found) for found in error.errors()]
            message = (
                f"'candidates' is not set and defaults to the models that are "
                f"not judges ({', '.join(names) or 'none'}): {'; '.join(wrong)}"
            )
            self._written.refuse(("methods", index), message)


def _near_file(file: Path) -> str:
    try:
        names = [entry.name for entry in file.parent.iterdir()]
    except (OSError, ValueError):
        return ""
    return nearest(file.name, names, "")
