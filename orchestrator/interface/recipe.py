"""Recipes built in Python: the same settings, checks and messages as those of YAML files."""

import contextlib
import copy
import dataclasses
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from orchestrator import plugins
from orchestrator.dataset.memory import SupportsArrow, to_json_lines
from orchestrator.disk import files
from orchestrator.errors import (
    DatasetError,
    Fault,
    RecipeError,
    StoreError,
    UsageError,
    on_disk_error,
)
from orchestrator.plugins.base import Plugin
from orchestrator.recipe import schema, source
from orchestrator.recipe.load import find, validated
from orchestrator.recipe.source import MAX_DEPTH, Arguments, Source, Written
from orchestrator.store import RunDirectory

Entry = Mapping[str, object] | BaseModel | Plugin[Any]
"""Settings by name, as under the same key of a YAML file; or a plug-in with its settings."""
DatasetLike = str | PathLike[str] | SupportsArrow | Sequence[Mapping[str, object]] | Entry

KEPT: Final = "recipe.yaml"
"""The recipe that Python gave, in the directory of its run."""
_FILE: Final = "Recipe"


class Recipe:
    """A recipe: which models, asked what, judged how.

    Every argument is the setting of the same name in a YAML recipe (`docs/recipes.md`). It is
    checked at once; relative paths start from the working directory.

    Args:
        models: The models by name, or a list of mappings that each have a `name`.
        dataset: A polars or pandas frame (anything with `__arrow_c_stream__`), a list of mappings,
            the path of a file, the name of a bundled dataset, or a mapping with `kind`. To name the
            columns of a frame: `{"rows": frame, "fields": {"prompt": "question"}}`.
        methods: Kinds, mappings with `kind` and its settings, or plug-ins with their settings.
        name: Name of the recipe and of its run directory, `runs/NAME`.
        analyses: As `methods`.
        description: A line or two.
        seed: Seed of sampled texts and bootstraps.
        limit: Use only this many items from the start.
        subset: Use only a random part of the items: a number of them, or a share such as `"10%"`.
        statistics: Intervals and stopping rules: `{"confidence_level": 0.9}`.
        limits: Requests at a time, timeouts and retries of every model.
        budget: Bounds of the run: `{"money": 5.0}`.
        window: Bounds on what is open at the same time.
        resources: What launched servers may take of this machine.
        cluster: Resources of each launched server with `on="slurm"` or `on="ray"`.
        probe: Probe servers for the features they support.
        reuse: Run directories to copy outcomes from.
        gates: Requirements that `gate` holds the run against, such as "large > medium".
        on_end: Command to run when a call ends; needs `allow_code`.
        log_to: Trackers of experiments: "wandb", "mlflow" or "trackio", or mappings with `kind`.
        allow_code: Run code and programs that the recipe names.

    Raises:
        RecipeError: With all faults; each names the argument, such as `Recipe(methods[0].judges)`.
        DatasetError: If the rows of a frame or list can't be written as JSON.

    Example:
        >>> recipe = Recipe(
        ...     name="colours",
        ...     models={"small": {"server": "fake", "weights": "small:0.3"}},
        ...     dataset=[{"prompt": "Name a colour.", "reference": "red"}],
        ...     methods=["answers"],
        ... )
        >>> recipe.name
        'colours'
    """

    def __init__(  # noqa: PLR0913 (the parts of a recipe, by keyword)
        self,
        *,
        models: Mapping[str, Entry] | Sequence[Entry],
        dataset: DatasetLike,
        methods: Sequence[str | Entry],
        name: str = "untitled",
        analyses: Sequence[str | Entry] = (),
        description: str | None = None,
        seed: int | None = None,
        limit: int | None = None,
        subset: int | str | None = None,
        statistics: Entry | None = None,
        limits: Entry | None = None,
        budget: Entry | None = None,
        window: Entry | None = None,
        resources: Entry | None = None,
        cluster: Entry | None = None,
        probe: bool | None = None,
        reuse: Sequence[str | PathLike[str]] | None = None,
        gates: Sequence[str] | None = None,
        on_end: str | Entry | None = None,
        log_to: str | Sequence[str | Entry] | None = None,
        allow_code: bool = False,
    ) -> None:
        entry, self._rows = _dataset(dataset)
        given = {
            "name": name, "models": _named(models), "dataset": entry, "methods": _kinds(methods),
            "analyses": _kinds(analyses), "description": description, "seed": seed, "limit": limit,
            "subset": subset, "statistics": statistics, "limits": limits, "budget": budget,
            "window": window, "resources": resources, "cluster": cluster, "probe": probe,
            "reuse": reuse, "gates": gates, "on_end": on_end, "log_to": log_to,
        }  # fmt: skip
        data = {key: _plain(value, (key,)) for key, value in given.items() if value is not None}
        self._set(Arguments(_FILE, data, {}), Path.cwd() / "recipe", allow_code=allow_code)

    @classmethod
    def from_yaml(cls, path: str | PathLike[str], *, allow_code: bool = False) -> "Recipe":
        """Read a recipe from a YAML file.

        Args:
            path: The file, or the name of a recipe that comes with this package.
            allow_code: Run code and programs that the recipe names.

        Returns:
            The recipe.

        Raises:
            UsageError: If there is no such file.
            RecipeError: With all faults of the file, each with file and line.

        Example:
            >>> Recipe.from_yaml("pairwise_ranking").name
            'pairwise_ranking'
        """
        file = find(path)
        with on_disk_error(f"{file}: cannot be read"):
            content = file.read_bytes()
        found = cls.__new__(cls)
        found._rows = None  # noqa: SLF001 (its own)
        written = source.parse(content, str(file))
        found._set(written, file, allow_code=allow_code)  # noqa: SLF001 (its own)
        return found

    def _set(self, written: Source, file: Path, *, allow_code: bool) -> None:
        self._source = written
        self._file = file
        self.allow_code = allow_code
        if self._rows is not None:
            self._source.data["dataset"]["path"] = str(self._rows.path)
        self._name = self.load().name

    @property
    def name(self) -> str:
        """Name of the recipe and of its run directory."""
        return self._name

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as given, as plain data."""
        found: dict[str, Any] = copy.deepcopy(self._source.data)
        return found

    def load(
        self, overrides: Sequence[str] = (), limit: int | None = None, *, allow_code: bool = False
    ) -> schema.Recipe:
        """Return the validated settings; for the functions that take a recipe.

        Raises:
            RecipeError: With all faults, also those of the overrides.
        """
        written = Written(self._source, overrides)
        allow_code = allow_code or self.allow_code
        return validated(written, self._file, limit=limit, allow_code=allow_code)

    @contextlib.contextmanager
    def blaming(self) -> Iterator[None]:
        """Name the argument, not the temporary file, in what is wrong with the rows.

        Raises:
            DatasetError: If one is raised inside.
        """
        try:
            yield
        except DatasetError as error:
            if self._rows is None:
                raise
            message = str(error).replace(str(self._rows.path), f"{_FILE}(dataset)")
            raise DatasetError(message) from error

    def to_yaml(self, path: str | PathLike[str] | None = None) -> str:
        """Return the recipe as YAML, and write it to a file if a path is given.

        Relative paths in it are left as they are. The rows of a frame or list are written beside
        the file, as `NAME.items.jsonl`.

        Args:
            path: The file to write.

        Returns:
            The text.

        Raises:
            UsageError: If the dataset is a frame or list and no path is given, or a file can't be
                written.

        Example:
            >>> print(Recipe.from_yaml("pairwise_ranking").to_yaml()[:22])
            name: pairwise_ranking
        """
        data = self.settings
        target = None if path is None else Path(path)
        if self._rows is not None:
            if target is None:
                raise UsageError(
                    "the dataset is in memory; give a file, to_yaml('recipe.yaml'), and its "
                    "rows are written beside it"
                )
            items = target.with_name(f"{target.stem}.items.jsonl")
            data["dataset"]["path"] = items.name
            with on_disk_error(f"{items} cannot be written"):
                files.write(items, self._rows.path.read_bytes())
        text = source.dump_yaml(data)
        if target is not None:
            with on_disk_error(f"{target} cannot be written"):
                files.write(target, text.encode())
        return text

    def keep(self, resolved: schema.Recipe, run_dir: RunDirectory) -> schema.Recipe:
        """Write the recipe, and items that are in memory, into a run directory.

        `orchestrator run RUN/recipe.yaml --run-dir RUN` continues such a run.

        Args:
            resolved: As it is run.
            run_dir: Locked for writing.

        Returns:
            The recipe with the path of the items in the run directory.

        Raises:
            StoreError: If a file can't be written.
        """
        data = resolved.resolved()
        with on_disk_error(f"{run_dir.path / KEPT} cannot be written", StoreError):
            if self._rows is not None:
                path = run_dir.path.resolve() / self._rows.path.name
                files.write(path, self._rows.path.read_bytes())
                config = resolved.dataset.config.model_copy(update={"path": str(path)})
                dataset = schema.PluginRef(resolved.dataset.kind, config)
                resolved = dataclasses.replace(resolved, dataset=dataset)
                data["dataset"] = {**dataset.resolved(), "path": path.name}
            files.write(run_dir.path / KEPT, source.dump_yaml(data).encode())
        return resolved

    def __repr__(self) -> str:
        """Return the name, and how many models and methods there are."""
        data = self._source.data
        return (
            f"<Recipe {self.name!r}: {len(data['models'])} models, {len(data['methods'])} methods>"
        )


class HeldRows:
    """Items that Python gave, in a temporary file that lives as long as this object.

    Attributes:
        path: The file, JSON Lines; its name is a hash of its content.
    """

    def __init__(self, content: bytes) -> None:
        folder = tempfile.mkdtemp(prefix="orchestrator-")
        digest = blake2b(content, digest_size=8).hexdigest()
        self.path = Path(folder) / f"dataset-{digest}.jsonl"
        self.path.write_bytes(content)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)


def _dataset(given: DatasetLike) -> tuple[object, HeldRows | None]:
    """The setting `dataset`, and the rows where they are in memory."""
    if isinstance(given, BaseModel | Plugin):
        return given, None
    if isinstance(given, Mapping) and not isinstance(given, SupportsArrow):
        if "rows" not in given:
            return given, None
        others = {key: value for key, value in given.items() if key != "rows"}
        return {"kind": "jsonl", **others}, HeldRows(to_json_lines(given["rows"]))
    if isinstance(given, str) and given in plugins.kinds(plugins.DATASETS):
        return {"kind": given}, None
    if isinstance(given, str | PathLike):
        return {"path": fspath(given)}, None
    return {"kind": "jsonl"}, HeldRows(to_json_lines(given))


def _named(models: object) -> object:
    """The models by name; what is neither a mapping nor a list is left to the schema."""
    if isinstance(models, Mapping) or not isinstance(models, Sequence) or isinstance(models, str):
        return models
    found: dict[str, object] = {}
    for place, entry in enumerate(models):
        settings = _plain(entry, ("models", place))
        name = settings.pop("name", None) if isinstance(settings, dict) else None
        if not isinstance(name, str) or name in found:
            what = f"duplicate model {name!r}" if name in found else "'name' is missing"
            raise RecipeError([Fault(f"{_FILE}(models[{place}])", 0, what)])
        found[name] = settings
    return found


def _kinds(entries: object) -> object:
    """Methods or analyses; a kind alone stands for a mapping without settings."""
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        return entries
    return [{"kind": one} if isinstance(one, str) else one for one in entries]


def _plain(value: object, path: source.KeyPath) -> object:
    if len(path) > MAX_DEPTH:
        raise RecipeError([Arguments(_FILE, None, {}).fault(path[:1], "nested too deep")])
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Plugin):
        settings = value.config.model_dump(mode="json", exclude_unset=True)
        return _plain({"kind": plugins.kind_of(type(value)), **settings}, path)
    if isinstance(value, BaseModel):
        plain = partial(_plain, path=path)
        return plain(value.model_dump(mode="json", exclude_unset=True, fallback=plain))
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, (*path, str(key))) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, (*path, place)) for place, inner in enumerate(value)]
    message = f"must be plain data (text, numbers, lists, mappings), not a {type(value).__name__}"
    raise RecipeError([Arguments(_FILE, None, {}).fault(path, message)])
