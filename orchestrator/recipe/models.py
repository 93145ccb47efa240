"""The `models` of a recipe: launched, reached or given, limits filled in and paths made whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator import plugins
from orchestrator.backend import base_url_fault
from orchestrator.disk.paths import answers, expanded
from orchestrator.errors import Fault
from orchestrator.recipe.answers import GivenAnswers
from orchestrator.recipe.faults import about
from orchestrator.recipe.overrides import Written
from orchestrator.recipe.plug import Plugs
from orchestrator.recipe.schema import (
    ModelSpec,
    PluginRef,
    Price,
    RecipeFile,
)
from orchestrator.weights import PACKAGE_PREFIX, split_package

BUNDLED_PREFIX: Final = "bundled:"
DEFAULT_BACKEND: Final = "openai"
_ASKED: Final = ("backend", "system", "template", "thinking")
_WAYS: Final = {
    "server": ("weights", "replicas", "min_servers", *_ASKED),
    "base_url": ("model", "api_key_env", "min_servers", *_ASKED),
    "answers": (),
}
"""The three ways to a model, one of which an entry has, and the keys that go with each."""


class ModelLoader:
    """Checks and builds the models; what is wrong is added to `faults`."""

    def __init__(self, written: Written, faults: list[Fault], plugs: Plugs, base: Path) -> None:
        self._written = written
        self._faults = faults
        self._plugs = plugs
        self._base = base

    def models(self, data: object, checked: RecipeFile | None) -> dict[str, ModelSpec]:
        """Every model, in order; what can't be built is left out and has a fault."""
        found: dict[str, ModelSpec] = {}
        for name, entry in data.items() if isinstance(data, Mapping) else ():
            if not isinstance(entry, Mapping):
                continue  # the schema has said so
            self._check_kind(name, entry)
            server, backend, config = self._plug_ins(name, entry)
            self._check_urls(name, entry.get("base_url"))
            weights = self._weights(name, entry.get("weights"))
            if checked is not None and name in checked.models:
                own = checked.models[name]
                answers = self._answers(name, own.answers)
                limits = {key: getattr(own.limits, key) for key in own.limits.model_fields_set}
                urls = tuple(
                    url.rstrip("/").removesuffix("/v1").rstrip("/") for url in own.base_url or ()
                )
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
                    api_key_env=own.api_key_env,
                    system=own.system,
                    limits=checked.limits.model_copy(update=limits),
                    price=Price() if answers else own.price,
                    answers=answers,
                    plain=own.template == "none",
                    thinking_end=own.thinking.end if own.thinking else "",
                    replicas=own.replicas,
                    base_urls=urls if len(urls) > 1 else (),
                    min_servers=own.min_servers,
                    finds_backend=bool(urls) and not _given(entry, "backend"),
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
            server = self._plugs.slot(plugins.LAUNCH, entry["server"], (*path, "server"))
        speaks = self._plugs.backend_of(server) if server else DEFAULT_BACKEND
        if not _given(entry, "backend"):
            if not _given(entry, "base_url"):
                return server, speaks, None
            backend = self._plugs.ref(plugins.BACKENDS, speaks, {}, path)
        else:
            backend = self._plugs.slot(plugins.BACKENDS, entry["backend"], (*path, "backend"))
        if backend is None:
            return server, speaks, None
        if server and backend.kind != speaks:
            message = f"server {server.kind!r} needs backend {speaks!r}, not {backend.kind!r}"
            self._fault(name, "backend", message)
        return server, backend.kind, backend.config

    def _check_urls(self, name: str, urls: object) -> None:
        """One address, or a list of several."""
        several = urls if isinstance(urls, list) else [urls]
        for url in several:
            if not isinstance(url, str):
                continue
            if fault := base_url_fault(url):
                self._fault(name, "base_url", fault)
        if isinstance(urls, list):
            plain = [url.rstrip("/") for url in urls if isinstance(url, str)]
            if not urls or len(set(plain)) < len(plain):
                self._fault(
                    name, "base_url", "must be one address or a list of different addresses"
                )

    def _weights(self, name: str, weights: object) -> str | None:
        """An absolute path where there is such a file or folder; hub ids as they are."""
        if not isinstance(weights, str) or weights.startswith(BUNDLED_PREFIX):
            return weights if isinstance(weights, str) else None
        if weights.startswith(PACKAGE_PREFIX):
            if split_package(weights) is None:
                hint = "names no file of a package; write package:MODULE/FILE.gguf"
                self._fault(name, "weights", f"{weights!r} {hint}")
            return weights
        found = existing(weights, self._base)
        if found is not None:
            return str(found)
        if weights.startswith((".", "/", "~")):
            self._fault(name, "weights", f"no such file or folder: {weights!r}")
        return weights

    def _answers(self, name: str, answers: GivenAnswers | None) -> GivenAnswers | None:
        """The same with an absolute path."""
        if answers is None or answers.path is None:
            return answers
        file = existing(answers.path, self._base)
        if file is None or not file.is_file():
            what = "no such file:" if file is None else "is a folder:"
            self._fault(name, "answers", f"{what} {answers.path!r}")
            return answers
        return answers.model_copy(update={"path": str(file)})

    def _fault(self, name: str, key: str, message: str) -> None:
        path = ("models", name, key) if key else ("models", name)
        self._faults.append(self._written.fault(path, about(path, message)))


def existing(path: str, base: Path) -> Path | None:
    """The absolute path of what is there, looked for from `base`, then from the working folder."""
    places = (folder / expanded(path) for folder in (base, Path.cwd()))
    return next((place.resolve() for place in places if answers(place, Path.exists)), None)


def _given(entry: Mapping[str, Any], key: str) -> bool:
    return entry.get(key) is not None
