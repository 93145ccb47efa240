"""The second step of validation: models, and settings of plug-ins by the `Config` of their kind."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, get_args
from unicodedata import is_normalized, normalize
from urllib.parse import parse_qsl, urlsplit

from pydantic import ValidationError

from orchestrator import contracts, plugins
from orchestrator.backend import LOCAL, PLAIN, base_url_fault, server_address, with_query
from orchestrator.contracts.method import Method, NamesModel
from orchestrator.disk.paths import OTHER_FORMS, answers, expanded, suffix_of
from orchestrator.errors import NotAllowedError, PluginError, UsageError
from orchestrator.network import trust
from orchestrator.plugins import by_path
from orchestrator.plugins.permission import how_to_permit
from orchestrator.recipe.faults import from_pydantic
from orchestrator.recipe.schema import Limits, ModelEntry, ModelSpec, PluginRef, Price, RecipeFile
from orchestrator.recipe.settings import GivenAnswers
from orchestrator.recipe.source import KeyPath, Written
from orchestrator.serving import LaunchKind
from orchestrator.weights import PACKAGE_PREFIX, split_package

_FOLDER: Final = "folder"
"""Kind of a dataset whose path is a folder."""

_OF_SPECS: Final = {
    **dict.fromkeys(("server", "weights", "base_url", "backend", "answers", "model", "price")),
    "limits": Limits(),
}
"""Parts of an entry that `ModelSpec` has itself; those of plug-ins may hold secrets."""


BUNDLED_PREFIX: Final = "bundled:"
_ASKED: Final = ("backend", "system", "template", "thinking", "extra_body")
_SENT: Final = ("headers", "query", "ca_file", "batch")
_WAYS: Final = {
    "server": ("weights", "replicas", "min_servers", *_ASKED),
    "base_url": ("model", "api_key_env", *_SENT, "min_servers", *_ASKED),
    "answers": (),
}
"""The three ways to a model, one of which an entry has, and the keys that go with each."""


class Plugs:
    """Validates models and plug-ins of a recipe; what is wrong is among the faults of `written`.

    Settings find in the validation context the recipe's folder as "folder", for the names of files,
    and the kind of its dataset as "dataset", for defaults that depend on it.
    """

    def __init__(self, written: Written, folder: str, *, allow_code: bool) -> None:
        self._written = written
        self._folder = Path(folder)
        self._context: dict[str, str] = {"folder": folder}
        self._allow_code = allow_code

    def mapping(self, family: str, value: object, path: KeyPath) -> PluginRef | None:
        """A mapping of `kind` and its settings; of servers and back-ends the kind alone too."""
        may_be_kind = family in plugins.OWN_PACKAGES
        if may_be_kind and isinstance(value, str):
            return self.ref(family, value, {}, path)
        if not isinstance(value, Mapping):
            kind_or = "a kind, or " if may_be_kind else ""
            self._written.refuse(path, f"must be {kind_or}a mapping with a 'kind'")
            return None
        kind = value.get("kind")
        if not isinstance(kind, str):
            what = "'kind' is missing" if kind is None else "'kind' must be text"
            there = ", ".join(_kinds(family))
            self._written.refuse(path, f"{what}; available: {there}", "kind")
            return None
        return self.ref(family, kind, value, path)

    def _found(self, kind: str) -> str:
        """A kind, the path of a file made absolute, so that a run finds it from any folder."""
        if not by_path.is_file(kind):
            return kind
        return by_path.absolute(kind, self._context["folder"])

    def made(self, family: str, value: object, path: KeyPath) -> tuple[str, Any] | None:
        """A kind and its plug-in, from a mapping of `kind` and the kind's settings."""
        found = self.mapping(family, value, path)
        if found is None:
            return None
        plugin = contracts.load(contracts.BASES[family], found.kind, allow_code=self._allow_code)
        try:
            with plugins.blaming():
                made = plugin(found.config)
                if isinstance(made, Method):
                    contracts.check(made)
                return found.kind, made
        except PluginError as error:
            self._written.refuse(path, str(error))
        except TypeError as error:
            said = f"{found.kind!r} can't be made of its settings: {error}"
            self._written.refuse(path, said)
        return None

    def models_named(self, kind: str) -> list[str]:
        """The settings of a kind of method that name models; [] where it can't be had."""

        def names(annotation: object) -> bool:
            return isinstance(annotation, NamesModel) or any(
                map(names, (*get_args(annotation), *getattr(annotation, "__metadata__", ())))
            )

        try:
            found = contracts.load(Method, self._found(kind), allow_code=self._allow_code)
        except PluginError:
            return []
        fields = found.Config.model_fields.items()
        return [
            name
            for name, field in fields
            if names(field.annotation) or any(map(names, field.metadata))
        ]

    def dataset(self, value: object) -> PluginRef | None:
        """The dataset, whose kind may be told by its path; before what depends on its kind."""
        path: KeyPath = ("dataset",)
        file = value.get("path") if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping) or not isinstance(file, str) or "kind" in value:
            return self.mapping(plugins.DATASETS, value, path)
        known: dict[str, str] = {}
        suffix = suffix_of(file)
        # Most kinds are named by their suffix: then no other is imported.
        for kind in sorted(_kinds(plugins.DATASETS), key=lambda kind: f".{kind}" != suffix):
            dataset = self._class(plugins.DATASETS, kind, path)
            known |= {} if dataset is None else dict.fromkeys(dataset.suffixes, kind)
            if suffix in known:
                return self.ref(plugins.DATASETS, kind, value, path)
        bases = (self._folder, Path.cwd())
        if any(answers(base / expanded(file), Path.is_dir) for base in bases):
            return self.ref(plugins.DATASETS, _FOLDER, value, path)
        said = OTHER_FORMS.get(suffix, "set 'kind'")
        message = f"cannot detect the kind of {file!r} from its suffix; {said}, or use one of "
        self._written.refuse(path, message + ", ".join(known), "path")
        return None

    def ref(
        self, family: str, kind: str, value: Mapping[str, object], path: KeyPath
    ) -> PluginRef | None:
        """The settings of `value` by the `Config` of a kind."""
        kind = self._found(kind)
        if family == plugins.LAUNCH and kind in {*_kinds(plugins.BACKENDS)} - {*_kinds(family)}:
            what = f"a server of kind {kind!r} is not launched by this program; start it, and give "
            self._written.refuse(path, f"{what}'base_url' and 'backend: {kind}' instead")
            return None
        found = self._class(family, kind, path)
        if found is None:
            return None
        settings = {key: setting for key, setting in value.items() if key != "kind"}
        try:
            with plugins.blaming():
                config = found.Config.model_validate(settings, context=self._context)
        except ValidationError as error:
            from_pydantic(error, self._written, path, found.Config)
            return None
        except PluginError as error:
            self._written.refuse(path, str(error))
            return None
        if family == plugins.LAUNCH and not self._allow_code:
            launch = contracts.load(LaunchKind, kind, allow_code=self._allow_code)
            for setting, reason in launch(config).programs():
                what = f"{setting}: {reason}; {how_to_permit(self._folder)}"
                self._written.refuse(path, what, setting)
        if family == plugins.DATASETS:
            self._context["dataset"] = kind
        return PluginRef(kind, config)

    def need_permission(self, path: KeyPath, what: str) -> None:
        """Note a fault where a recipe names something to run, unless its code is allowed."""
        if not self._allow_code:
            said = f"{what} is not run without permission; {how_to_permit(self._folder)}"
            self._written.faults.append(self._written.fault(path, said))

    def _class(self, family: str, kind: str, path: KeyPath) -> type[Any] | None:
        try:
            return contracts.load(contracts.BASES[family], kind, allow_code=self._allow_code)
        except NotAllowedError as error:
            self._written.refuse(path, f"{error}; {how_to_permit(self._folder)}", "kind")
            return None
        except PluginError as error:
            self._written.refuse(path, str(error), "kind")
            return None

    def models(self, data: object, checked: RecipeFile | None) -> dict[str, ModelSpec]:
        """Every model, in order; what can't be built is left out and has a fault."""
        found: dict[str, ModelSpec] = {}
        for name, entry in data.items() if isinstance(data, Mapping) else ():
            if not isinstance(entry, Mapping):
                continue  # the schema has said so
            self._check_kind(name, entry)
            if not is_normalized("NFC", name):
                self._fault(name, "", f"must be in Unicode's form NFC: {normalize('NFC', name)!r}")
            server, backend, config = self._plug_ins(name, entry)
            self._check_urls(name, entry)
            weights = self._weights(name, entry.get("weights"))
            if checked is not None and name in checked.models:
                own = checked.models[name]
                answers = self._answers(name, own.answers)
                limits = {key: getattr(own.limits, key) for key in own.limits.model_fields_set}
                # What is no secret is a part of the address, as if it were written there.
                shown = {key: one for key, one in own.query.items() if isinstance(one, str)}
                urls = tuple(with_query(server_address(url), shown) for url in own.base_url or ())
                file = own.ca_file and str(existing(own.ca_file, self._folder) or own.ca_file)
                try:
                    trust(file or "")
                except UsageError as error:
                    self._fault(name, "ca_file", str(error))
                self._check_batch(name, own, backend)
                secret = {key: one for key, one in own.query.items() if key not in shown}
                batch = own.batch
                if batch is not None and batch.folder is not None:
                    folder = str(self._folder / expanded(batch.folder))
                    batch = batch.model_copy(update={"folder": folder})
                update = {**_OF_SPECS, "query": secret, "ca_file": file, "batch": batch}
                n_servers = len(urls) or own.replicas
                if own.min_servers > n_servers:
                    said = (
                        f"must be at most the number of servers, {n_servers}, got {own.min_servers}"
                    )
                    self._fault(name, "min_servers", said)
                found[name] = ModelSpec(
                    name=name,
                    server=server,
                    weights=weights,
                    base_url=urls[0] if urls else None,
                    backend=backend,
                    backend_config=config,
                    model=own.model or name,
                    entry=own.model_copy(update=update),
                    limits=checked.limits.model_copy(update=limits),
                    price=Price() if answers else own.price,
                    answers=answers,
                    base_urls=urls if len(urls) > 1 else (),
                    finds_backend=bool(urls) and own.batch is None and not _given(entry, "backend"),
                )
        return found

    def _check_kind(self, name: str, entry: Mapping[str, Any]) -> None:
        given = [way for way in _WAYS if _given(entry, way)]
        if not given:
            hint = (
                "'server' (launched here, with 'weights'), 'base_url' (running elsewhere) or "
                "'answers' (a file of its answers)"
            )
            self._fault(name, "", f"needs {hint}")
        elif len(given) > 1:
            first, second = given[:2]
            self._fault(name, second, f"conflicts with {first!r}; give only one of them")
        elif given == ["server"] and not _given(entry, "weights"):
            what = "a folder, a GGUF file, a hub id, 'package:MODULE/FILE.gguf' or 'bundled:NAME'"
            self._fault(name, "", f"'weights' is missing; give {what}")
        if len(given) == 1:
            # Keys that go with another way to a model are faults
            for key in dict.fromkeys(key for keys in _WAYS.values() for key in keys):
                if key not in _WAYS[given[0]] and _given(entry, key):
                    others = " or ".join(repr(other) for other in _WAYS if key in _WAYS[other])
                    self._fault(name, key, f"can be used only with {others}, not with {given[0]!r}")
        if entry.get("template") == "none" and _given(entry, "system"):
            self._fault(name, "system", "a base model (template: none) cannot have a system prompt")

    def _plug_ins(self, name: str, entry: Mapping[str, Any]) -> tuple[PluginRef | None, str, Any]:
        path = ("models", name)
        server = None
        if _given(entry, "server"):
            server = self.mapping(plugins.LAUNCH, entry["server"], (*path, "server"))
        speaks = PLAIN
        if server:
            launch = contracts.load(LaunchKind, server.kind, allow_code=self._allow_code)
            speaks = launch.backend
        if not _given(entry, "backend"):
            if not _given(entry, "base_url"):
                return server, speaks, None
            backend = self.ref(plugins.BACKENDS, speaks, {}, path)
        else:
            backend = self.mapping(plugins.BACKENDS, entry["backend"], (*path, "backend"))
        if backend is None:
            return server, speaks, None
        if server and backend.kind != speaks:
            message = f"server {server.kind!r} needs backend {speaks!r}, not {backend.kind!r}"
            self._fault(name, "backend", message)
        return server, backend.kind, backend.config

    def _check_urls(self, name: str, entry: Mapping[str, object]) -> None:
        """One address, or a list of several; and what is sent there, each under one name."""
        urls, query, headers = (entry.get(key) for key in ("base_url", "query", "headers"))
        said = {*query} if isinstance(query, Mapping) else set[str]()
        if isinstance(headers, Mapping) and len({str(one).lower() for one in headers}) < len(
            headers
        ):
            self._fault(name, "headers", "names a header twice, in another case")
        several = urls if isinstance(urls, list) else [urls]
        for url in several:
            if not isinstance(url, str):
                continue
            if url == LOCAL:
                continue
            if fault := base_url_fault(url):
                self._fault(name, "base_url", fault)
            elif both := sorted(
                said & dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)).keys()
            ):
                self._fault(name, "query", f"{both[0]!r} is in base_url already")
        if isinstance(urls, list):
            plain = [server_address(url) for url in urls if isinstance(url, str)]
            if not urls or len(set(plain)) < len(plain):
                self._fault(
                    name, "base_url", "must be one address or a list of different addresses"
                )

    def _check_batch(self, name: str, own: ModelEntry, backend: str) -> None:
        """See that a model that is asked in batches can be, and that no other has no server."""
        batch, urls = own.batch, own.base_url or []
        has_folder = batch is not None and batch.folder is not None
        if (LOCAL in urls) != has_folder and urls:
            self._fault(name, "base_url", "'local' is for files that no server takes: batch.folder")
        if batch is None:
            return
        sent = (*own.headers.values(), *own.query.values())
        if len(urls) > 1 or backend != PLAIN or any(not isinstance(one, str) for one in sent):
            said = (
                "batches are sent to one address, by `backend: openai`, with no header or query "
                "from the environment"
            )
            self._fault(name, "batch", said)

    def _weights(self, name: str, weights: object) -> str | None:
        """An absolute path where there is such a file or folder; hub ids as they are."""
        if not isinstance(weights, str) or weights.startswith(BUNDLED_PREFIX):
            return weights if isinstance(weights, str) else None
        if weights.startswith(PACKAGE_PREFIX):
            if split_package(weights) is None:
                hint = "names no file of a package; write package:MODULE/FILE.gguf"
                self._fault(name, "weights", f"{weights!r} {hint}")
            return weights
        found = existing(weights, self._folder)
        if found is not None:
            return str(found)
        if weights.startswith((".", "/", "~")):
            self._fault(name, "weights", f"no such file or folder: {weights!r}")
        return weights

    def _answers(self, name: str, answers: GivenAnswers | None) -> GivenAnswers | None:
        """The same with an absolute path."""
        if answers is None or answers.path is None:
            return answers
        file = existing(answers.path, self._folder)
        if file is None or not file.is_file():
            what = "no such file:" if file is None else "is a folder:"
            self._fault(name, "answers", f"{what} {answers.path!r}")
            return answers
        return answers.model_copy(update={"path": str(file)})

    def _fault(self, name: str, key: str, message: str) -> None:
        self._written.refuse(("models", name, key) if key else ("models", name), message)


def _kinds(family: str) -> tuple[str, ...]:
    """Names for a message; a family that can't be listed says why when a kind is loaded."""
    try:
        return tuple(plugins.known_kinds(family))
    except PluginError:
        return ()


DEFAULTS: Final = "defaults"
_DEFAULTS_OF: Final = ("models", "methods")


def merge_defaults(written: Written, known: Collection[str]) -> None:
    """Write the settings of `defaults:` into models and methods, and drop blocks for anchors.

    `known` are the settings of a recipe. What an entry says itself goes before its default, and a
    model that is reached in another way takes none that go with the default's way. A block for
    anchors has a name that begins with `x-`, or an anchor that is used.
    """
    data = written.data
    if not isinstance(data, dict):
        return
    given = data.get(DEFAULTS)
    families = given.keys() & {*_DEFAULTS_OF} if isinstance(given, dict) else ()
    is_block = DEFAULTS in written.source.shared and not families
    blocks = {key for key in data if key.startswith("x-") or key in written.source.shared}
    dropped = (blocks - {*known}) | {DEFAULTS}
    written.data = {key: value for key, value in data.items() if key not in dropped}
    if given is None or is_block:
        return
    for family, settings in given.items() if isinstance(given, dict) else ((None, None),):
        if family not in _DEFAULTS_OF or not isinstance(settings, dict):
            message = (
                "'defaults' has 'models' and 'methods', each with settings that are written into "
                "every one of them; a block for anchors has a name that begins with 'x-'"
            )
            written.refuse((), message, DEFAULTS, *([family] if family else []))
            continue
        if isinstance(entries := data.get(family), dict):
            written.data[family] = {name: _merged(settings, one) for name, one in entries.items()}
        elif isinstance(entries, list):
            written.data[family] = [_merged(settings, one) for one in entries]


def _merged(settings: dict[str, object], entry: object) -> object:
    if not isinstance(entry, dict):
        return entry
    ways = [way for way in _WAYS if way in entry]
    others = [way for way in _WAYS if ways and way not in ways and way in settings]
    kept = {key for way in ways for key in _WAYS[way]}
    left_out = {key for way in others for key in (way, *_WAYS[way])} - kept
    return {**{key: value for key, value in settings.items() if key not in left_out}, **entry}


def existing(path: str, base: Path) -> Path | None:
    """The absolute path of what is there, looked for from `base`, then from the working folder."""
    places = (folder / expanded(path) for folder in (base, Path.cwd()))
    return next((place.resolve() for place in places if answers(place, Path.exists)), None)


def _given(entry: Mapping[str, Any], key: str) -> bool:
    return entry.get(key) is not None
