"""Rankings and tables of a run: summaries of methods, then the analyses that the recipe asks for.

Numbers that take long to compute are kept beside the frames of the run, by what they come from.
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import polars as pl
import scipy
from pydantic import ValidationError

from orchestrator import __version__, contracts, plugins
from orchestrator.clusters import Clusters, clusters_of
from orchestrator.columns import ITEMS
from orchestrator.contracts.context import Context, Source, answer_frames, ranked_in
from orchestrator.contracts.method import Method, Summary, frame_of
from orchestrator.disk import files
from orchestrator.disk.paths import is_foreign
from orchestrator.errors import NotAllowedError, OrchestratorError, PluginError, UsageError
from orchestrator.frames import FrameFiles
from orchestrator.plugins.base import Settings
from orchestrator.plugins.permission import how_to_permit
from orchestrator.ranking.agreement import judges_agreement
from orchestrator.ranking.analysis import RankingAnalysis
from orchestrator.ranking.cells import given
from orchestrator.ranking.scores import ScoresSummary, estimates
from orchestrator.ranking.style import equal_style
from orchestrator.ranking.trust import level_of, of_frames, thresholds_of
from orchestrator.recipe.schema import MethodRef
from orchestrator.runner.results.frames import RANKINGS, analyse
from orchestrator.statistics.results import Thresholds
from orchestrator.statistics.trust import (
    DEFAULTS,
    SETTINGS,
    Trust,
    Trusts,
    followable,
    no_ranking_by_judge,
)
from orchestrator.tables import Table, by_cluster, untrusted

_KEY_BYTES: Final = 16
_T = TypeVar("_T")
# Forty models in twenty categories take less than 1 MB a judge.
_MOST_BYTES: Final = 16 << 20
_FOLDERS: Final = ("contracts", "judgment", "methods", "ranking", "statistics", "summaries")
_MODULES: Final = (
    "clusters.py", "frames.py", "numbers.py", "columns.py", "tables.py", "runner/results/frames.py",
    "runner/results/tables.py", "runner/planning/similar_items.py",
)  # fmt: skip

_log = logging.getLogger(__name__)


class Keeping:
    """A file of results that calls have computed, read and extended.

    It need not be there, and nobody else need be able to read it. Where its checksum differs, or a
    value is not of the type that is asked for, it is computed anew; nothing is kept where it would
    be longer than `most_bytes`.
    """

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        try:
            said, _, content = files.read(path, most_bytes).partition(b"\n")
            found = json.loads(content) if said == checksum(content) else {}
        except (OSError, ValueError, RecursionError):
            found = {}
        self._found: dict[str, Any] = found if isinstance(found, dict) else {}
        self._used: dict[str, Any] = {}

    def once(self, key: Callable[[], bytes], kind: type[_T], compute: Callable[[], _T]) -> _T:
        """The value of a key, computed where it is not known.

        The key is a digest of everything that the value comes from; `kind` a type that msgspec
        reads.
        """
        name = key().hex()
        with suppress(KeyError, msgspec.ValidationError):
            value = msgspec.convert(self._found[name], kind)
            self._used[name] = self._found[name]
            return value
        value = compute()
        # Where the run went on meanwhile, it may come from newer files.
        if key().hex() == name:
            self._used[name] = msgspec.to_builtins(value)
        return value

    def save(self) -> None:
        """Keep what this call used; a folder that can't be written is no fault."""
        if self._used == self._found:
            return
        content = json.dumps(self._used).encode()
        content = checksum(content) + b"\n" + content
        if len(content) > self._most_bytes:
            return
        try:
            files.write(self._path, content, own=True)
        except OSError as error:
            _log.debug("not kept: %s: %s", self._path, error)


def checksum(content: bytes) -> bytes:
    """Return the first line of a file with this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


@cache
def code_digest() -> bytes:
    """Digest of the code that computes rankings and tables, and of the versions it runs with."""
    root = Path(str(resources.files("orchestrator")))
    versions = (__version__, np.__version__, pl.__version__, scipy.__version__)
    digest = hashlib.blake2b(repr(versions).encode())
    modules = [file for name in _FOLDERS for file in sorted((root / name).rglob("*.py"))]
    for file in (*modules, *(root / name for name in _MODULES)):
        digest.update(file.read_bytes())
    return digest.digest()


def rankings_of(
    frames: FrameFiles, *, confidence_level: float, thresholds: Thresholds = DEFAULTS
) -> list[RankingAnalysis]:
    """Return what `analyse` returns, computed only where no earlier call has kept it."""
    ranked = ranked_in(frames)
    if not ranked:
        return []
    said = repr((confidence_level, thresholds, ranked))
    compute = partial(analyse, frames, confidence_level=confidence_level, thresholds=thresholds)
    return kept(RANKINGS, frames, said, ranked, list[RankingAnalysis], compute)


def kept(
    file: str,
    frames: FrameFiles,
    said: str,
    names: Iterable[str],
    kind: type[_T],
    compute: Callable[[], _T],
) -> _T:
    """Return what follows from some frames and the settings that are `said`, computed once.

    It is kept in a file of its own beside the frames.
    """
    keeping = Keeping(frames.beside / file)
    key = partial(_key, frames, said, names)
    found = keeping.once(lambda: key(clusters_of(frames)), kind, compute)
    keeping.save()
    return found


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

    Without `keeping` and `trust`, all is computed. `run` is the run's folder, to tell how its code
    is allowed.
    """
    clusters = clusters_of(frames)
    if trust is None:
        trust = of_frames(frames, clusters, thresholds_of(settings), level_of(settings))
        trust = followable_of(trust, settings, allow_code=allow_code)
    sources, found = _sources(settings, allow_code=allow_code, run=run)
    styled = settings.get("statistics", {}).get("style_control", True)
    for source in sources:
        summary = contracts.summary(source.kind, type(source.method))
        if summary is None and source.kind not in plugins.kinds(plugins.METHODS):
            # The mean scores are the default of methods from outside.
            summary = ScoresSummary
        # A run that was repaired has no frames until its recipe is run once more.
        if source.frame not in frames:
            continue
        context = _context(source.name, settings, frames, clusters)
        warnings = no_ranking_by_judge(trust.get(source.name, ()))
        if summary is not None:
            said = _of_method(summary, source, context, keeping)
            found += [untrusted(table, warnings) for table in said]
        if len(source.method.judges) > 1:
            found += _said(partial(judges_agreement, source), context)
        # Ratings are Bradley-Terry's over pairs of answers.
        pairs = source.method.pairs if styled else None
        if pairs is not None and (pairs.ranked or (summary and summary.bradley_terry)):
            beside = _at_equal_style(source, context, keeping)
            found += [untrusted(table, warnings) for table in beside]
    analyses, skipped = _loaded(
        plugins.ANALYSES, settings.get("analyses", ()), allow_code=allow_code, run=run
    )
    found += skipped
    for kind, analysis in analyses:
        context = _context(plugins.label(kind), settings, frames, clusters)
        context = msgspec.structs.replace(context, sources=sources, trust=trust)
        found += _said(analysis.summarise, context)
    of_statistics = settings.get("statistics", {}).get("of", ())
    statistics, skipped = _loaded(plugins.STATISTICS, of_statistics, allow_code=allow_code, run=run)
    found += skipped
    for kind, statistic in statistics:
        context = _context(plugins.label(kind), settings, frames, clusters)
        context = msgspec.structs.replace(context, sources=sources)
        found += _said(partial(estimates, statistic), context)
    if keeping is not None:
        keeping.save()
    return found


def _of_method(
    summary: type[Summary[Settings]], source: Source, context: Context, keeping: Keeping | None
) -> list[Table]:
    """Return the tables of a method's summary, from an earlier call where that is possible."""

    def compute() -> list[Table]:
        rows = given(context, source, summary.reads)
        if rows.width and rows.is_empty():
            return []
        own = msgspec.structs.replace(context, rows=rows, sources=[source])
        return _said(summary(source.method.config).summarise, own)

    # The digest of the code is that of this project.
    if summary.reads_alone and source.kind in plugins.kinds(plugins.METHODS):
        return _kept(context, source, keeping, compute)
    return compute()


def _at_equal_style(source: Source, context: Context, keeping: Keeping | None) -> list[Table]:
    """Return the ratings of a method at equal style; [] where no feature can be controlled."""

    def compute() -> list[Table]:
        try:
            tables = equal_style(context, source)
        except UsageError:
            # The run has no answers, or no judgments.
            return []
        # The second one has the effects of what is controlled.
        if len(tables) < 2:
            return []
        return [msgspec.structs.replace(table, source=source.name) for table in tables]

    return _kept(context, source, keeping, compute, tuple(answer_frames(context.frames)))


def _kept(
    context: Context,
    source: Source,
    keeping: Keeping | None,
    compute: Callable[[], list[Table]],
    others: Sequence[str] = (),
) -> list[Table]:
    """Return tables of the rows of a method, and of other frames; compute them where none has."""
    frames = context.frames
    if keeping is None or not isinstance(frames, FrameFiles):
        return compute()
    statistics = (context.confidence_level, context.n_resamples, context.seed)
    said = repr((source.name, source.kind, source.method.config, statistics))
    key = partial(_key, frames, said, (source.frame, *others), context.clusters)
    return keeping.once(key, list[Table], compute)


def _key(frames: FrameFiles, said: str, names: Iterable[str], clusters: Clusters) -> bytes:
    """Digest of everything that numbers of some frames come from; `said` are the settings."""
    digest = hashlib.blake2b(code_digest(), digest_size=_KEY_BYTES)
    digest.update(said.encode())
    for name in names:
        digest.update(frames.digest(name))
    if clusters.are_known:
        digest.update(frames.digest(ITEMS))
    return digest.digest()


def all_sources(
    frames: Mapping[str, pl.DataFrame],
    settings: Mapping[str, Any],
    *,
    allow_code: bool = False,
    run: Path | None = None,
) -> Context:
    """A context with all methods of the recipe, to read their scores.

    `run` is the run's folder, to tell how its code is allowed.
    """
    context = _context("report", settings, frames, clusters_of(frames))
    sources, skipped = _sources(settings, allow_code=allow_code, run=run)
    # No table of theirs says it to whoever reads rows.
    for table in skipped:
        _log.warning("%s", *table.notes)
    return msgspec.structs.replace(context, sources=sources)


def followable_of(
    trust: Mapping[str, Sequence[Trust]], settings: Mapping[str, Any], *, allow_code: bool = False
) -> dict[str, tuple[Trust, ...]]:
    """Return verdicts without the advice that their method has no setting for, or follows already.

    Of methods that may not be imported the advice stays as it is.
    """
    unused = {}
    for entry in settings.get("methods", ()):
        given = {key: value for key, value in entry.items() if key != "kind"}
        # A kind that can't be loaded is named where its tables would be.
        with contextlib.suppress(PluginError, ValidationError):
            kind = str(entry.get("kind"))
            config = contracts.load(Method, kind, allow_code=allow_code).Config.model_validate(
                given
            )
            names = [name for name in SETTINGS.values() if name in type(config).model_fields]
            # Labels can be fewer than they are, but not than two; the others are there or not.
            used = {name: getattr(config, name) for name in names}
            is_more = used.get("labels") != "two" and len(used.get("labels") or "more") > 2
            left = [name for name in names if (is_more if name == "labels" else not used[name])]
            unused[str(entry.get("name") or plugins.label(kind))] = left
    return {
        method: tuple(
            followable(one, unused[method]) if method in unused else one for one in trusts
        )
        for method, trusts in trust.items()
    }


def _sources(
    settings: Mapping[str, Any], *, allow_code: bool, run: Path | None = None
) -> tuple[list[Source], list[Table]]:
    """Return the methods of a resolved recipe, and a table for each that can't be loaded."""
    found = []
    methods, skipped = _loaded(
        plugins.METHODS, settings.get("methods", ()), allow_code=allow_code, run=run
    )
    for kind, method in methods:
        with plugins.blaming():
            scores = method.scores
        name, frame = MethodRef(kind, method).name, frame_of(type(method), kind)
        found.append(Source(name, kind, method, frame, scores))
    return found, skipped


def _loaded(
    family: str, entries: Sequence[Mapping[str, object]], *, allow_code: bool, run: Path | None
) -> tuple[list[tuple[str, Any]], list[Table]]:
    """Return the kinds of a resolved recipe with their settings.

    A kind that can't be loaded gives a table without rows instead, whose note says why, so that
    every form of the report says it too.
    """
    found, skipped = [], []
    for entry in entries:
        kind = str(entry.get("kind"))
        given = {key: value for key, value in entry.items() if key != "kind"}
        try:
            plugin = contracts.load(contracts.BASES[family], kind, allow_code=allow_code)
            # What this version has no more, and an older one left unset, changes nothing.
            known = plugin.Config.model_fields
            told = {key: value for key, value in given.items() if value is not None or key in known}
            with plugins.blaming():
                found.append((kind, plugin(plugin.Config.model_validate(told))))
        except (PluginError, ValidationError) as error:
            # A run of another version, or of code that is not allowed now.
            why = str(error)
            if isinstance(error, NotAllowedError) and run is not None:
                how = (
                    "no code is imported for a run of another user; to see its tables, copy the "
                    "run, and allow its code there, if you trust it"
                )
                why = f"{why}; {how if is_foreign(run) else how_to_permit(run)}"
            said = (
                f"skipped the summary of {plugins.label(kind)}: {why}. Its rows can still be "
                "read and exported"
            )
            name = str(entry.get("name") or kind)
            title = f"{name}: no summary"
            skipped.append(Table(f"{kind}.skipped", title, (), (), notes=(said,), source=name))
    return found, skipped


def _context(
    name: str, settings: Mapping[str, Any], frames: Mapping[str, pl.DataFrame], clusters: Clusters
) -> Context:
    statistics = settings.get("statistics", {})
    return Context(
        name=name,
        frames=frames,
        rows=pl.DataFrame(),
        sources=(),
        confidence_level=level_of(settings),
        n_resamples=statistics.get("n_resamples", 2000),
        seed=settings.get("seed", 0),
        clusters=clusters,
    )


def _said(summarise: Callable[[Context], list[Table]], context: Context) -> list[Table]:
    try:
        with plugins.blaming():
            tables = summarise(context)
    except OrchestratorError as error:
        # One analysis that can't be made must not hide the others.
        why = f"no tables of {context.name}: {error}"
        tables = [Table(context.name, context.name, (), (), notes=(why,))]
    if context.clusters.n < context.clusters.n_prompts:
        tables = [by_cluster(table, context.clusters.n) for table in tables]
    return [msgspec.structs.replace(table, source=context.name) for table in tables]
