"""Citations of a run: a paragraph on its methods, and BibTeX of what it used."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator import __version__, contracts, numbers, plugins
from orchestrator.clusters import clusters_of
from orchestrator.columns import ITEMS
from orchestrator.contracts.context import Source
from orchestrator.errors import PluginError
from orchestrator.interface.exporting import material
from orchestrator.interface.result import Result
from orchestrator.references import Citation, cited
from orchestrator.report.html.figures import Material
from orchestrator.report.text import safe_line

# Works behind every rating and every comparison of neighbours.
_RATINGS: Final = (
    "bradley1952rank", "gaffke2005three", "holm1979simple", "shaffer1986modified",
)  # fmt: skip
# Values that change nothing are not said.
_DEFAULTS: Final[dict[str, object]] = {"top_p": 1.0, "top_k": 0}
_MAX_TEMPLATE: Final = 40
_DIGEST: Final = re.compile(r"[0-9a-f]{32,}")
_DIGITS: Final = 12


def cite(result: Result) -> Citation:
    """Return the citations of a run.

    Raises:
        OrchestratorError: If the run can't be read.
    """
    of_run = material(result)
    sources = of_run.context.sources
    version = of_run.version or __version__
    own, allowed = _OWN_ENTRY % version, result.allow_code
    works = {
        "methods": [work for source in sources for work in type(source.method).cites],
        "dataset": list(_cites(plugins.DATASETS, _kind(of_run.settings.get("dataset")), allowed)),
        "servers": [
            work
            for kind in _kinds(of_run, sources)
            for work in _cites(plugins.BACKENDS, kind, allowed)
            or _cites(plugins.LAUNCH, kind, allowed)
        ],
        "statistics": list(_RATINGS) if of_run.rankings else [],
        "analyses": [work for _, found in _analyses(of_run, allowed) for work in found],
    }
    entries = cited([work for found in works.values() for work in found] + [own])
    facts = _about(result, of_run, version)
    marks = {part: _mark(found) for part, found in works.items()}
    sentences = [
        *_dataset(facts, marks),
        *(_method(source) for source in sources),
        *_models(facts, marks["servers"]),
        *_basis(of_run, marks["statistics"]),
        *(
            f"Analysis {safe_line(plugins.label(kind))}{_mark(works)}."
            for kind, works in _analyses(of_run, allowed)
            if works
        ),
        *_outcome(result),
    ]
    return Citation(" ".join(sentences), entries, facts)


def _about(result: Result, of_run: Material, version: str) -> dict[str, Any]:
    settings = of_run.settings
    return {
        "recipe": of_run.name,
        "version": version,
        "seed": settings.get("seed", 0),
        "dataset": settings.get("dataset", {}),
        "n_items": clusters_of(result.frames).n_prompts if ITEMS in result.frames else None,
        "evaluated": of_run.models,
        "models": {
            name: {**of_run.identities.get(name, {}), "servers": list(of_run.servers.get(name, ()))}
            for name in settings.get("models", {})
        },
        "methods": [
            {
                "name": source.name,
                "kind": plugins.label(source.kind),
                "version": source.method.version,
                "settings": source.method.config.model_dump(mode="json"),
            }
            for source in of_run.context.sources
        ],
        "statistics": settings.get("statistics", {}),
        **result.completeness.as_json(),
    }


def _dataset(facts: Mapping[str, Any], marks: Mapping[str, str]) -> Iterator[str]:
    models = facts["evaluated"]
    items = "" if facts["n_items"] is None else f" on {numbers.counted(facts['n_items'], 'item')}"
    kind = safe_line(plugins.label(_kind(facts["dataset"])))
    yield (
        f"We evaluated {numbers.counted(len(models), 'model')} ({_listed(models)}){items} of the "
        f"dataset {kind}{marks['dataset']}, with selfeval-orchestrator {facts['version']} "
        f"[selfeval-orchestrator] (recipe {safe_line(facts['recipe'])}, seed {facts['seed']})."
    )


def _method(source: Source) -> str:
    settings = source.method.config.model_dump(mode="json")
    parts = [f"version {source.method.version}"]
    judges = source.method.judges
    if judges:
        parts.append(f"{'judge' if len(judges) == 1 else 'judges'} {_listed(judges)}")
    for name, value in settings.items():
        if isinstance(value, str) and name.endswith(("prompt", "prompts", "labels", "preset")):
            shown = safe_line(value)
            fits = len(shown) <= _MAX_TEMPLATE
            parts.append(f"{name.replace('_', ' ')} {shown}" if fits else f"own {name}")
        elif name == "labels" and isinstance(value, list):
            parts.append(f"labels {_listed([one['name'] for one in value])}")
        elif name == "reasoning" and not settings.get("chain_of_thought", True):
            continue
        elif isinstance(value, dict) and "max_tokens" in value:
            parts.append(f"{name} {_settings(value)}")
    name = safe_line(source.name)
    kind = safe_line(plugins.label(source.kind))
    of_kind = "" if name == kind else f" ({kind})"
    return f"Method {name}{of_kind}{_mark(type(source.method).cites)}: {'; '.join(parts)}."


def _settings(settings: Mapping[str, Any]) -> str:
    said = {
        "max_tokens": "at most {} tokens", "temperature": "temperature {:g}",
        "top_p": "top-p {:g}", "top_k": "top-k {}",
    }  # fmt: skip
    found = [
        words.format(settings[name])
        for name, words in said.items()
        if settings.get(name) is not None and settings[name] != _DEFAULTS.get(name)
    ]
    if settings.get("temperature_by_category"):
        found.append("temperatures by category")
    return f"with {', '.join(found)}"


def _models(facts: Mapping[str, Any], servers: str) -> Iterator[str]:
    described = []
    for name, fields in facts["models"].items():
        identity = [
            f"{field} {_short(str(value))}" for field, value in fields.items()
            if field not in {"servers", "kind"}
        ]  # fmt: skip
        answered = [safe_line(words) for words in fields["servers"]]
        by = f", answered by {' and '.join(answered)}" if answered else ""
        described.append(f"{safe_line(name)} ({', '.join(identity)}{by})")
    if described:
        yield f"Models{servers}: {'; '.join(described)}."


def _short(value: str) -> str:
    """Return a part of an identity as a paper says it: no folders, digests by their beginning."""
    shown = safe_line(Path(value).name if value.startswith("/") else value)
    return f"{shown[:_DIGITS]}…" if _DIGEST.fullmatch(shown) else shown


def _basis(of_run: Material, marks: str) -> Iterator[str]:
    level = numbers.level(of_run.context.confidence_level)
    n_resamples = numbers.count(of_run.context.n_resamples)
    yield (
        f"Intervals are at the {level} level and rest on items, or on clusters of items where the "
        f"dataset names them; bootstraps draw {n_resamples} resamples."
    )
    if of_run.rankings:
        uncertainty = "; ".join(dict.fromkeys(one.uncertainty for one in of_run.rankings))
        yield (
            f"Ratings are Bradley-Terry strengths on the Elo scale ({uncertainty}); differences "
            f"are tested as bounded means, all pairs together{marks}."
        )


def _analyses(of_run: Material, allow_code: bool) -> Iterator[tuple[str, tuple[str, ...]]]:  # noqa: FBT001
    """Yield the kind of each analysis, and the works that it cites."""
    for setting in of_run.settings.get("analyses", ()):
        yield _kind(setting), _cites(plugins.ANALYSES, _kind(setting), allow_code)


def _outcome(result: Result) -> Iterator[str]:
    done = result.completeness
    planned = done.total - done.not_needed
    yield (
        f"Of {numbers.counted(planned, 'planned unit')}, {numbers.count(done.ended)} ended and "
        f"{numbers.count(done.failed)} of these failed; failures are missing values."
    )
    if warning := done.words():
        yield safe_line(warning)
    yield from map(safe_line, result.warnings)


def _listed(names: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(map(safe_line, names))


def _mark(works: Sequence[str]) -> str:
    keys = cited(works)
    return f" [{', '.join(keys)}]" if keys else ""


def _kind(setting: object) -> str:
    return str(setting.get("kind", "")) if isinstance(setting, dict) else str(setting or "")


def _kinds(of_run: Material, sources: Sequence[Source]) -> Iterator[str]:
    """Yield the kinds of servers, and of comparers of texts, each once."""
    found: dict[str, None] = {}
    for entry in of_run.settings.get("models", {}).values():
        for part in ("server", "backend"):
            found[_kind(entry.get(part))] = None
    for source in sources:
        found.update(dict.fromkeys(one.kind for one in source.method.comparers().values()))
    yield from (kind for kind in found if kind)


def _cites(family: str, kind: str, allow_code: bool) -> tuple[str, ...]:  # noqa: FBT001
    if not kind:
        return ()
    try:
        return contracts.load(contracts.BASES[family], kind, allow_code=allow_code).cites
    except PluginError:
        return ()


_OWN_ENTRY: Final = (
    "@misc{selfeval-orchestrator,\n"
    "  title = {{selfeval-orchestrator}: Evaluation of Language Models with Their Own "
    "Probabilities},\n"
    "  note  = {Version %s}\n"
    "}"
)
