"""Tables of a run: the summary of each method, then the analyses that the recipe asks for."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl
from pydantic import ValidationError

from orchestrator import contracts, plugins
from orchestrator.analyses._estimates import Estimates
from orchestrator.clusters import Clusters, clusters_of
from orchestrator.contracts import Load
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import frame_of
from orchestrator.contracts.summary import Analysis, Summary
from orchestrator.errors import NotAllowedError, OrchestratorError, PluginError
from orchestrator.plugins.base import Plugin
from orchestrator.plugins.permission import how_to_permit_run
from orchestrator.ranking.trust import Trusts, of_frames, thresholds_of
from orchestrator.recipe.schema import MethodRef
from orchestrator.runner.results.cache import Keeping
from orchestrator.settings import Settings
from orchestrator.statistics.trust import no_ranking
from orchestrator.summaries._agreement import JudgesAgreement
from orchestrator.summaries._scores import ScoresSummary
from orchestrator.tables import Table, by_cluster, untrusted

_PluginT = TypeVar("_PluginT", bound=Plugin[Settings])
_log = logging.getLogger(__name__)


def summarise(
    frames: Mapping[str, pl.DataFrame],
    settings: Mapping[str, Any],
    *,
    allow_code: bool = False,
    keeping: Keeping | None = None,
    run: Path | None = None,
    trust: Trusts | None = None,
) -> list[Table]:
    """The tables, in the recipe's order.

    Args:
        frames: All frames of the run by name.
        settings: The resolved recipe.
        allow_code: Import kinds from outside this project.
        keeping: Numbers of earlier calls; all are computed where it is left out.
        run: Folder of the run, to tell how its code is allowed.
        trust: The verdicts on the judges; computed where left out.
    """
    clusters = clusters_of(frames)
    if trust is None:
        level = settings.get("statistics", {}).get("confidence_level", 0.95)
        trust = of_frames(frames, clusters, thresholds_of(settings), level)
    sources, found = _sources(settings, allow_code=allow_code, run=run)
    for source in sources:
        summary = contracts.summary(source.kind, type(source.method))
        if summary is None and source.kind not in plugins.kinds(plugins.METHODS):
            # The mean scores are the default of methods from outside.
            summary = ScoresSummary
        # A run that was repaired has no frames until its recipe is run once more.
        if summary is not None and source.frame in frames:
            context = _context(source.name, settings, frames, clusters)
            if keeping is not None:
                context = msgspec.structs.replace(context, once=keeping.once)
            rows = context.rows_of(source, summary.reads)
            context = msgspec.structs.replace(context, rows=rows, sources=[source])
            said = _said(summary(source.method.config), context)
            warnings = {one.judge: no_ranking([one]) for one in trust.get(source.name, ())}
            found += [untrusted(table, warnings) for table in said]
        if len(source.method.judges) > 1 and source.frame in frames:
            context = _context(source.name, settings, frames, clusters)
            found += _said(JudgesAgreement(source), context)
    analyses, skipped = _loaded(
        contracts.analysis, settings.get("analyses", ()), allow_code=allow_code, run=run
    )
    found += skipped
    for kind, analysis in analyses:
        context = _context(plugins.label(kind), settings, frames, clusters)
        context = msgspec.structs.replace(context, sources=sources, trust=trust)
        found += _said(analysis, context)
    of_statistics = settings.get("statistics", {}).get("of", ())
    statistics, skipped = _loaded(
        contracts.statistic, of_statistics, allow_code=allow_code, run=run
    )
    found += skipped
    for kind, statistic in statistics:
        context = _context(plugins.label(kind), settings, frames, clusters)
        context = msgspec.structs.replace(context, sources=sources)
        found += _said(Estimates(statistic), context)
    if keeping is not None:
        keeping.save()
    return found


def all_sources(
    frames: Mapping[str, pl.DataFrame],
    settings: Mapping[str, Any],
    *,
    allow_code: bool = False,
    run: Path | None = None,
) -> Context:
    """A context with all methods of the recipe, to read their scores.

    Args:
        frames: All frames of the run by name.
        settings: The resolved recipe.
        allow_code: Import kinds from outside this project.
        run: Folder of the run, to tell how its code is allowed.
    """
    context = _context("report", settings, frames, clusters_of(frames))
    sources, _ = _sources(settings, allow_code=allow_code, run=run)
    return msgspec.structs.replace(context, sources=sources)


def _sources(
    settings: Mapping[str, Any], *, allow_code: bool, run: Path | None = None
) -> tuple[list[Source], list[Table]]:
    """Return the methods of a resolved recipe, and a table for each that can't be loaded."""
    found = []
    methods, skipped = _loaded(
        contracts.method, settings.get("methods", ()), allow_code=allow_code, run=run
    )
    for kind, method in methods:
        with plugins.blaming():
            scores = method.scores
        name, frame = MethodRef(kind, method).name, frame_of(type(method), kind)
        found.append(Source(name, kind, method, frame, scores))
    return found, skipped


def _loaded(
    load: "Load[_PluginT]",
    entries: Sequence[Mapping[str, object]],
    *,
    allow_code: bool,
    run: Path | None,
) -> tuple[list[tuple[str, _PluginT]], list[Table]]:
    """Return the kinds of a resolved recipe with their settings.

    A kind that can't be loaded gives a table without rows instead, whose note says why, so that
    every form of the report says it too.
    """
    found, skipped = [], []
    for entry in entries:
        kind = str(entry.get("kind"))
        given = {key: value for key, value in entry.items() if key != "kind"}
        try:
            plugin = load(kind, allow_code=allow_code)
            with plugins.blaming():
                found.append((kind, plugin(plugin.Config.model_validate(given))))
        except (PluginError, ValidationError) as error:
            # A run of another version, or of code that is not allowed now.
            why = str(error)
            if isinstance(error, NotAllowedError) and run is not None:
                why = f"{why}; {how_to_permit_run(run)}"
            said = (
                f"skipped the summary of {plugins.label(kind)}: {why}. Its rows can still be "
                "read and exported"
            )
            _log.warning("%s", said)
            name = str(entry.get("name") or kind)
            title = f"{name}: no summary"
            skipped.append(Table(f"{kind}.skipped", title, (), (), notes=(said,), source=name))
    return found, skipped


def _context(
    name: str,
    settings: Mapping[str, Any],
    frames: Mapping[str, pl.DataFrame],
    clusters: Clusters,
) -> Context:
    statistics = settings.get("statistics", {})
    return Context(
        name=name,
        frames=frames,
        rows=pl.DataFrame(),
        sources=(),
        confidence_level=statistics.get("confidence_level", 0.95),
        n_resamples=statistics.get("n_resamples", 2000),
        seed=settings.get("seed", 0),
        clusters=clusters,
    )


def _said(
    plugin: Summary[Settings] | Analysis[Settings] | Estimates | JudgesAgreement,
    context: Context,
) -> list[Table]:
    try:
        with plugins.blaming():
            tables = plugin.summarise(context)
    except OrchestratorError as error:
        # One analysis that can't be made must not hide the others.
        tables = [Table(context.name, context.name, (), (), notes=(str(error),))]
    if context.clusters.are_named:
        tables = [by_cluster(table, context.clusters.n) for table in tables]
    return [msgspec.structs.replace(table, source=context.name) for table in tables]
