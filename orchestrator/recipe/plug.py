"""The second step of validation: settings of plug-ins, each by the `Config` of its kind."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Final, NamedTuple, TypeVar

from pydantic import ValidationError

from orchestrator import contracts, plugins
from orchestrator.contracts.method import Method, naming_models
from orchestrator.disk.paths import answers, expanded
from orchestrator.errors import Fault, NotAllowedError, PluginError
from orchestrator.plugins import by_path
from orchestrator.plugins.base import Plugin
from orchestrator.plugins.permission import how_to_permit
from orchestrator.recipe.faults import about, from_pydantic
from orchestrator.recipe.overrides import Written
from orchestrator.recipe.plugin_ref import StatisticRef
from orchestrator.recipe.schema import AnalysisRef, MethodRef, PluginRef
from orchestrator.recipe.source import KeyPath
from orchestrator.settings import Settings

_FOLDER: Final = "folder"
"""Kind of a dataset whose path is a folder."""

_ModelT = TypeVar("_ModelT", bound=Settings)
_PluginT = TypeVar("_PluginT", bound=Plugin[Settings])


class _Named(NamedTuple):
    """A kind, and the mapping in the recipe that names it, with its settings."""

    kind: str
    settings: Mapping[str, object]


class Plugs:
    """Validates the plug-ins of a recipe; what is wrong is added to `faults`.

    Settings find in the validation context the recipe's folder as "folder", for the names of files,
    and the kind of its dataset as "dataset", for defaults that depend on it.
    """

    def __init__(
        self, written: Written, faults: list[Fault], folder: str, *, allow_code: bool
    ) -> None:
        self._written = written
        self._faults = faults
        self._context: dict[str, str] = {"folder": folder}
        self._allow_code = allow_code

    def slot(self, family: str, value: object, path: KeyPath) -> PluginRef | None:
        """A kind, or a mapping of `kind` and the kind's settings."""
        if isinstance(value, str):
            return self.ref(family, value, {}, path)
        if isinstance(value, Mapping):
            return self.mapping(family, value, path)
        self._fault(path, about(path, "must be a kind, or a mapping with a 'kind'"))
        return None

    def mapping(self, family: str, value: object, path: KeyPath) -> PluginRef | None:
        """A mapping of `kind` and the kind's settings."""
        named = self._kind(family, value, path)
        return None if named is None else self.ref(family, *named, path)

    def method(self, value: object, path: KeyPath) -> MethodRef | None:
        """A method with its settings, from a mapping of `kind` and the kind's settings."""
        named = self._kind(plugins.METHODS, value, path)
        if named is None:
            return None
        kind = self._found(named.kind)
        made = self._made(contracts.method, kind, named.settings, path)
        return None if made is None else MethodRef(kind, made)

    def analysis(self, value: object, path: KeyPath) -> AnalysisRef | None:
        """An analysis with its settings, from a mapping of `kind` and the kind's settings."""
        named = self._kind(plugins.ANALYSES, value, path)
        if named is None:
            return None
        kind = self._found(named.kind)
        made = self._made(contracts.analysis, kind, named.settings, path)
        return None if made is None else AnalysisRef(kind, made)

    def statistic(self, value: object, path: KeyPath) -> StatisticRef | None:
        """A statistic with its settings, from a mapping of `kind` and the kind's settings."""
        named = self._kind(plugins.STATISTICS, value, path)
        if named is None:
            return None
        kind = self._found(named.kind)
        made = self._made(contracts.statistic, kind, named.settings, path)
        return None if made is None else StatisticRef(kind, made)

    def _found(self, kind: str) -> str:
        """A kind, the path of a file made absolute, so that a run finds it from any folder."""
        if not by_path.is_file(kind):
            return kind
        return by_path.absolute(kind, self._context["folder"])

    def _made(
        self,
        load: "contracts.Load[_PluginT]",
        kind: str,
        value: Mapping[str, object],
        path: KeyPath,
    ) -> _PluginT | None:
        plugin = self._class(load, kind, path)
        config = None if plugin is None else self.validate(plugin.Config, value, path)
        if plugin is None or config is None:
            return None
        try:
            with plugins.blaming():
                made = plugin(config)
                if isinstance(made, Method):
                    contracts.check_made(made)
                return made
        except PluginError as error:
            self._fault(path, about(path, str(error)))
        except TypeError as error:
            self._fault(path, about(path, f"{kind!r} can't be made of its settings: {error}"))
        return None

    def models_named(self, kind: str) -> list[str]:
        """The settings of a kind of method that name models; [] where it can't be had."""
        try:
            method = contracts.method(self._found(kind), allow_code=self._allow_code)
            return naming_models(method.Config)
        except PluginError:
            return []

    def _kind(self, family: str, value: object, path: KeyPath) -> _Named | None:
        if not isinstance(value, Mapping):
            self._fault(path, about(path, "must be a mapping with a 'kind'"))
            return None
        kind = value.get("kind")
        if not isinstance(kind, str):
            what = "'kind' is missing" if kind is None else "'kind' must be text"
            there = ", ".join(_kinds(family))
            self._fault((*path, "kind"), about(path, f"{what}; available: {there}"))
            return None
        return _Named(kind, value)

    def dataset(self, value: object) -> PluginRef | None:
        """The dataset, to be validated before what depends on its kind."""
        found = self._dataset(value)
        if found is not None:
            self._context["dataset"] = found.kind
        return found

    def _dataset(self, value: object) -> PluginRef | None:
        """The dataset; its kind may be told by the suffix of its path."""
        path: KeyPath = ("dataset",)
        file = value.get("path") if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping) or not isinstance(file, str) or "kind" in value:
            return self.mapping(plugins.DATASETS, value, path)
        known: dict[str, str] = {}
        for kind in _kinds(plugins.DATASETS):
            dataset = self._class(contracts.dataset, kind, path)
            known |= {} if dataset is None else dict.fromkeys(dataset.suffixes, kind)
        suffix = PurePath(file).suffix.lower()
        if suffix in known:
            return self.ref(plugins.DATASETS, known[suffix], value, path)
        bases = (Path(self._context["folder"]), Path.cwd())
        if any(answers(base / expanded(file), Path.is_dir) for base in bases):
            return self.ref(plugins.DATASETS, _FOLDER, value, path)
        message = f"cannot detect the kind of {file!r} from its suffix; set 'kind', or use one of "
        self._fault((*path, "path"), about(path, message + ", ".join(known)))
        return None

    def ref(
        self, family: str, kind: str, value: Mapping[str, object], path: KeyPath
    ) -> PluginRef | None:
        """The settings of `value` by the `Config` of a kind."""
        kind = self._found(kind)
        found = self._class(partial(contracts.load, family), kind, path)
        if found is None:
            return None
        config = self.validate(found.Config, value, path)
        if config is not None and family == plugins.LAUNCH and not self._allow_code:
            launch = contracts.load(plugins.LAUNCH, kind, allow_code=self._allow_code)
            for setting, reason in launch(config).programs():
                what = f"{setting}: {reason}; {self._how()}"
                self._fault((*path, setting), about(path, what))
        return None if config is None else PluginRef(kind, config)

    def validate(
        self, model: type[_ModelT], value: Mapping[str, object], path: KeyPath
    ) -> _ModelT | None:
        """The settings of `value`, its `kind` left out."""
        settings = {key: setting for key, setting in value.items() if key != "kind"}
        try:
            with plugins.blaming():
                return model.model_validate(settings, context=self._context)
        except ValidationError as error:
            self._faults += from_pydantic(error, self._written, path, model)
        except PluginError as error:
            self._fault(path, about(path, str(error)))
        return None

    def backend_of(self, server: PluginRef) -> str:
        """The kind of back-end that speaks to a launched server."""
        return contracts.load(plugins.LAUNCH, server.kind, allow_code=self._allow_code).backend

    def need_permission(self, path: KeyPath, what: str) -> None:
        """Note a fault where a recipe names something to run, unless its code is allowed."""
        if not self._allow_code:
            self._fault(path, f"{what} is not run without permission; {self._how()}")

    def _class(
        self, load: "contracts.Load[_PluginT]", kind: str, path: KeyPath
    ) -> type[_PluginT] | None:
        try:
            return load(kind, allow_code=self._allow_code)
        except NotAllowedError as error:
            self._fault((*path, "kind"), about(path, f"{error}; {self._how()}"))
            return None
        except PluginError as error:
            self._fault((*path, "kind"), about(path, str(error)))
            return None

    def _how(self) -> str:
        return how_to_permit(Path(self._context["folder"]))

    def _fault(self, path: KeyPath, message: str) -> None:
        self._faults.append(self._written.fault(path, message))


def _kinds(family: str) -> tuple[str, ...]:
    """Names for a message; a family that can't be listed says why when a kind is loaded."""
    try:
        return tuple(plugins.known_kinds(family))
    except PluginError:
        return ()
