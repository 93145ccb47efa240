"""Check, before anything is sent, that the servers of a recipe can do what its methods ask."""

from collections.abc import Iterable
from typing import Final

from orchestrator import contracts, plugins
from orchestrator.ask import ChooseAsk
from orchestrator.backend import Capabilities
from orchestrator.contracts.method import Stage
from orchestrator.errors import UsageError
from orchestrator.plugins.base import Settings
from orchestrator.recipe.schema import ModelSpec, Recipe
from orchestrator.records import NO_PREFIX
from orchestrator.units import Part

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
    "of them, or set continue_final_message: true in the settings of the backend if the "
    "endpoint accepts that field"
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
                kind = backend_kind(spec, allow_code=allow_code)
                can = capabilities_of(kind, spec.backend_config, allow_code=allow_code)
                lacking = missing(stage, can)
                if spec.plain and stage.ask == "choose" and not can.plain_choose:
                    lacking = _NO_PLAIN_CHOICE
                lacking = f" ({kind}): {lacking}" if lacking else ""
            if lacking:
                faults[f"{part.name}: {stage.name} by {stage.model!r}{lacking}"] = None
    if faults:
        raise UsageError("\n".join(faults))


def backend_kind(spec: ModelSpec, *, allow_code: bool = False) -> str:
    """Kind of the back-end that speaks to a model's server."""
    if spec.server is None:
        return spec.backend
    return contracts.load(plugins.LAUNCH, spec.server.kind, allow_code=allow_code).backend


def capabilities_of(
    kind: str, config: Settings | None, *, allow_code: bool = False
) -> Capabilities:
    """Return the features of a kind of back-end; settings of None stand for its defaults."""
    backend = contracts.load(plugins.BACKENDS, kind, allow_code=allow_code)
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
    lacking = sorted(set(stage.features) - capabilities.features)
    if lacking:
        return f"it does not provide {', '.join(lacking)}; {_REMEDY['features']}"
    return ""
