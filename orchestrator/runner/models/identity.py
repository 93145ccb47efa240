"""The models of a recipe before any server: identities, capabilities, given answers, comparers."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from orchestrator import contracts
from orchestrator.ask import ChooseAsk, digest
from orchestrator.backend import LOCAL, BackendKind, Capabilities, ComparerKind, Provenance
from orchestrator.contracts.method import Stage
from orchestrator.errors import UsageError
from orchestrator.plugins.base import Settings
from orchestrator.recipe.schema import Limits, ModelEntry, ModelSpec, Price, Recipe
from orchestrator.records import NO_PREFIX
from orchestrator.serving import LaunchKind
from orchestrator.units import Given, Part


def launch_of(spec: ModelSpec, *, allow_code: bool) -> LaunchKind:
    """Return the launch kind of a model with its settings.

    Raises:
        UsageError: If it is not launched.
    """
    if spec.server is None:
        raise UsageError(f"model {spec.name!r} has no server to launch")
    kind = contracts.load(LaunchKind, spec.server.kind, allow_code=allow_code)
    return kind(spec.server.config)


# Stands for the address of a server we launched: its port is another one each time.
LAUNCHED: Final = "launched"


def model_identity(spec: ModelSpec, *, allow_code: bool = False) -> dict[str, str]:
    """Return all that decides a model's numbers, found without any server.

    Raises:
        LaunchError: If weights are missing.
    """
    if spec.server is None:
        found = {
            "base_url": address(spec),
            "model": spec.model or spec.name,
            "backend": spec.backend,
        }
        if spec.backend_config is not None:
            # Settings that change what a request says, where they differ from the defaults.
            settings = spec.backend_config.model_dump(mode="json", exclude_defaults=True)
            found |= {
                f"backend.{name}": json.dumps(value, sort_keys=True)
                for name, value in settings.items()
                if name != "transport"  # it changes how requests travel, not what they say
            }
    else:
        found = dict(launch_of(spec, allow_code=allow_code).identity(spec.weights or ""))
    said = {
        "system": spec.entry.system,
        "template": "none" if spec.plain else None,
        "thinking": spec.thinking_end,
        "extra_body": spec.entry.extra_body and json.dumps(spec.entry.extra_body, sort_keys=True),
    }
    return found | {name: value for name, value in said.items() if value}


def address(spec: ModelSpec) -> str:
    """Return the address of a model; of several addresses the order plays no part."""
    return " ".join(sorted(addresses(spec)))


def addresses(spec: ModelSpec) -> tuple[str, ...]:
    """Return the addresses of a model's servers; none if they are launched."""
    return spec.base_urls or ((spec.base_url,) if spec.base_url else ())


def identity_key(identity: Mapping[str, str]) -> bytes:
    """The identity as it enters the keys of asks."""
    return digest(sorted(identity.items()))


def server_label(model: str, identity: bytes) -> str:
    """Return the label of a model's servers: a changed model has another, whatever its name."""
    return f"{model} {identity.hex()[:12]}"


def provenance_words(provenance: Provenance) -> str:
    """A server in a few words."""
    version = f" {provenance.version}" if provenance.version else ""
    fingerprint = f" ({provenance.fingerprint})" if provenance.fingerprint else ""
    return f"{provenance.backend}{version}{fingerprint} as {provenance.model!r}"


def open_given(specs: Mapping[str, ModelSpec]) -> dict[str, tuple[Given, dict[str, str], str]]:
    """The answers of the models that have them instead of a server, by model.

    What gives the answer to a turn of an item, what decides the answers, in words, and what their
    file was taken for, as a sentence; empty for a column of the dataset.

    Raises:
        DatasetError: If a file is missing or malformed.
    """
    found = {}
    for name, spec in specs.items():
        if spec.answers is not None:
            # It knows every form of file, which takes long to import.
            from orchestrator.runner.models.answers import given_answers  # noqa: PLC0415

            found[name] = given_answers(spec.answers, name)
    return found


def local_models(
    parts: Iterable[Part], recipe: Recipe, base: Path, *, allow_code: bool = False
) -> dict[str, tuple[ModelSpec, dict[str, str]]]:
    """The back-ends that the methods of a recipe name by `comparers`, by their names.

    Each as a model that costs nothing and is asked one thing at a time, and what decides its
    numbers, in words.

    Raises:
        UsageError: If what one needs is not installed, or two things have one name.
    """
    found: dict[str, tuple[ModelSpec, dict[str, str]]] = {}
    for part in parts:
        for name, comparer in part.method.comparers().items():
            plugin = contracts.load(BackendKind, comparer.kind, allow_code=allow_code)
            if not issubclass(plugin, ComparerKind):
                raise UsageError(
                    f"back-end {comparer.kind!r} cannot compare texts; use a kind derived from "
                    "orchestrator.plugin.ComparerKind"
                )
            made = plugin(plugin.Config.model_validate(comparer.settings))
            identity = dict(made.identity(base))
            if name in recipe.models:
                raise UsageError(f"{name!r} is the name of a comparer; rename the model")
            if name in found and found[name][1] != identity:
                raise UsageError(
                    f"{part.name}: another method compares texts by another {name!r}; encoders "
                    f"whose folders have one name cannot be told apart in tables"
                )
            spec = ModelSpec(
                name=name,
                server=None,
                weights=None,
                base_url=LOCAL,
                backend=comparer.kind,
                backend_config=made.located(base).config,
                model=name,
                entry=ModelEntry(),
                limits=Limits(max_in_flight=1),
                price=Price(),
            )
            found[name] = spec, identity
    return found


_REMEDY: Final = {
    "score": "scoring given tokens needs a back-end that can score, such as embedded, vllm, sglang",
    "choose": "reading label probabilities needs a server that returns log-probabilities",
    "reward": "serve the weights of a reward model on vLLM, SGLang or the embedded server",
    "features": "the embedded server provides them: use `server: embedded`, or score the "
    "answers with another model",
    "generate": "its texts are given, so it cannot generate new ones",
}


_GIVEN: Final = (
    "only its answers are given, so it cannot be queried; set 'server' or 'base_url', or "
    "remove it from the candidates of this method"
)


_NO_PLAIN_CHOICE: Final = (
    "it cannot choose labels with a base model (template: none); the embedded server and vLLM can"
)


_NO_BEGUN_CHOICE: Final = (
    "it cannot read labels after the start of an answer (a second score, or a verdict after "
    "reasoning); vLLM, SGLang, llama.cpp and the embedded server can: omit `backend`, name one "
    "of them, or say `backend: {kind: openai, continue_final_message: true}` if the endpoint "
    "accepts that field"
)


def refuse_impossible(parts: Iterable[Part], recipe: Recipe, *, allow_code: bool = False) -> None:
    """Refuse a recipe whose methods ask what a model's server can't give.

    Raises:
        UsageError: With every method, model and what is missing.
    """
    faults: dict[str, None] = {}
    for part in parts:
        for stage in part.stages():
            spec = recipe.models.get(stage.model)
            if spec is None:
                continue  # a local back-end that the method brought along
            if spec.answers is not None:
                is_given = stage.ask == "generate" and stage.name == "answers"
                lacking = "" if is_given else f": {_GIVEN}"
            elif spec.finds_backend and recipe.settings.probe:
                lacking = ""  # the server is asked which kind it is before the first request
            else:
                kind = spec.backend
                can = capabilities_of(kind, spec.backend_config, allow_code=allow_code)
                lacking = missing(stage, can)
                if spec.plain and stage.ask == "choose" and not can.plain_choose:
                    lacking = _NO_PLAIN_CHOICE
                lacking = f" ({kind}): {lacking}" if lacking else ""
            if lacking:
                faults[f"{part.name}: {stage.name} by {stage.model!r}{lacking}"] = None
    if faults:
        raise UsageError("\n".join(faults))


def capabilities_of(
    kind: str, config: Settings | None, *, allow_code: bool = False
) -> Capabilities:
    """Return the features of a kind of back-end; settings of None stand for its defaults."""
    backend = contracts.load(BackendKind, kind, allow_code=allow_code)
    return backend(backend.Config() if config is None else config).capabilities


def missing(stage: Stage, capabilities: Capabilities) -> str:
    """Return the abilities a server lacks for a stage, with the remedy; empty for none."""
    can = {
        "generate": capabilities.generate,
        "score": capabilities.score,
        "choose": capabilities.choose != "none",
        "reward": capabilities.reward,
    }
    if not can.get(stage.ask, True):
        what = "rate answers" if stage.ask == "reward" else stage.ask
        return f"it cannot {what}; {_REMEDY[stage.ask]}"
    is_begun = any(isinstance(one, ChooseAsk) and one.prefix != NO_PREFIX for one in stage.examples)
    if is_begun and not capabilities.choose_begun:
        return _NO_BEGUN_CHOICE
    if lacking := sorted(set(stage.features) - capabilities.features):
        return f"it does not provide {', '.join(lacking)}; {_REMEDY['features']}"
    return ""
