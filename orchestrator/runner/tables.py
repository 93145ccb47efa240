"""Tables of a run: the summary of each method, then the analyses that the recipe asks for."""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal

import msgspec
import polars as pl
from pydantic import ValidationError

from orchestrator import contracts, plugins
from orchestrator.clusters import Clusters, clusters_of
from orchestrator.errors import OrchestratorError, PluginError
from orchestrator.recipe.schema import PluginRef
from orchestrator.runner.keeping import Keeping
from orchestrator.summaries._base import Context, Source
from orchestrator.summaries._distrust import distrusted
from orchestrator.tables import Table, by_cluster, untrusted

_log = logging.getLogger(__name__)


def summarise(
    frames: Mapping[str, pl.DataFrame],
    settings: Mapping[str, Any],
    *,
    allow_code: bool = False,
    keeping: Keeping | None = None,
) -> list[Table]:
    """The tables, in the recipe's order.

    Args:
        frames: All frames of the run by name.
        settings: The resolved recipe.
        allow_code: Import kinds from outside this project.
        keeping: Numbers of earlier calls; all are computed where it is left out.
    """
    clusters = clusters_of(frames)
    methods, found = _loaded(plugins.METHODS, settings.get("methods", ()), allow_code=allow_code)
    sources = [_source(ref, module) for ref, module in methods]
    for source, (_, module) in zip(sources, methods, strict=True):
        summary = _summary_of(source.kind, module)
        # A run that was repaired has no frames until its recipe is run once more.
        if summary is not None and source.frame in frames:
            context = _context(source.name, source.config, settings, frames, clusters)
            if keeping is not None:
                context = msgspec.structs.replace(context, once=keeping.once)
            rows = context.rows_of(source, getattr(summary, "COLUMNS", None))
            said = _said(summary, msgspec.structs.replace(context, rows=rows, sources=[source]))
            warnings = distrusted(rows)
            found += [untrusted(table, warnings) for table in said]
    analyses, skipped = _loaded(
        plugins.ANALYSES, settings.get("analyses", ()), allow_code=allow_code
    )
    found += skipped
    for reference, module in analyses:
        context = _context(reference.name, reference.config, settings, frames, clusters)
        found += _said(module, msgspec.structs.replace(context, sources=sources))
    if keeping is not None:
        keeping.save()
    return found


def all_sources(
    frames: Mapping[str, pl.DataFrame], settings: Mapping[str, Any], *, allow_code: bool = False
) -> Context:
    """A context with all methods of the recipe, to read their scores.

    Args:
        frames: All frames of the run by name.
        settings: The resolved recipe.
        allow_code: Import kinds from outside this project.
    """
    methods, _ = _loaded(plugins.METHODS, settings.get("methods", ()), allow_code=allow_code)
    context = _context("report", None, settings, frames, clusters_of(frames))
    sources = [_source(ref, module) for ref, module in methods]
    return msgspec.structs.replace(context, sources=sources)


def _source(ref: PluginRef, module: ModuleType) -> Source:
    scores = getattr(module, "scores", None)
    return Source(
        ref.name,
        ref.kind,
        ref.config,
        module.FRAME,
        getattr(module, "SCORES", {}) if scores is None else _scores(scores, ref.config),
        getattr(module, "derive", None),
    )


def _scores(scores: Callable[[Any], Mapping[str, int]], config: Any) -> Mapping[str, int]:  # noqa: ANN401
    with plugins.blaming():
        return scores(config)


def _loaded(
    family: Literal["orchestrator.methods", "orchestrator.analyses"],
    entries: Sequence[Mapping[str, Any]],
    *,
    allow_code: bool,
) -> tuple[list[tuple[PluginRef, ModuleType]], list[Table]]:
    """Return the kinds of a resolved recipe with their settings.

    A kind that can't be loaded gives a table without rows instead, whose note says why, so that
    every form of the report says it too.
    """
    found, skipped = [], []
    for entry in entries:
        kind = str(entry.get("kind"))
        given = {key: value for key, value in entry.items() if key != "kind"}
        try:
            module = contracts.load(family, kind, allow_code=allow_code)
            found.append((PluginRef(kind, module.Config.model_validate(given)), module))
        except (PluginError, ValidationError) as error:
            # A run of another version, or of code that is not allowed now.
            said = (
                f"skipped the summary of {plugins.label(kind)}: {error}. Its rows can be read and "
                f"exported all the same"
            )
            _log.warning("%s", said)
            name = str(entry.get("name") or kind)
            title = f"{name}: no summary"
            skipped.append(Table(f"{kind}.skipped", title, (), (), notes=(said,), source=name))
    return found, skipped


def _summary_of(kind: str, module: ModuleType) -> ModuleType | None:
    if hasattr(module, "summarise"):
        return module
    known = kind in plugins.kinds(plugins.SUMMARIES)
    return plugins.load(plugins.SUMMARIES, kind) if known else None


def _context(
    name: str,
    config: Any,  # noqa: ANN401 (a `Config` of any kind)
    settings: Mapping[str, Any],
    frames: Mapping[str, pl.DataFrame],
    clusters: Clusters,
) -> Context:
    statistics = settings.get("statistics", {})
    return Context(
        name=name,
        config=config,
        frames=frames,
        rows=pl.DataFrame(),
        sources=(),
        confidence_level=statistics.get("confidence_level", 0.95),
        n_resamples=statistics.get("n_resamples", 2000),
        seed=settings.get("seed", 0),
        clusters=clusters,
    )


def _said(module: ModuleType, context: Context) -> list[Table]:
    try:
        with plugins.blaming():
            tables: list[Table] = module.summarise(context)
    except OrchestratorError as error:
        # One analysis that can't be made must not hide the others.
        tables = [Table(context.name, context.name, (), (), notes=(str(error),))]
    if context.clusters.are_named:
        tables = [by_cluster(table, context.clusters.n) for table in tables]
    return [msgspec.structs.replace(table, source=context.name) for table in tables]
