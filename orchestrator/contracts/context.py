"""The frames and settings that summaries and analyses work on, and the roles of columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec
import numpy as np
import polars as pl

from orchestrator import contracts, plugins
from orchestrator.clusters import CLUSTER, Clusters
from orchestrator.columns import PairColumns, RowRoles
from orchestrator.contracts.method import Method, MethodSettings, frame_of, roles_of
from orchestrator.disk import columnar
from orchestrator.frames import CATEGORIES, FrameFiles, columns_of, lazy_of, names_of, slices_of
from orchestrator.statistics.resampling import Resampling
from orchestrator.statistics.results import checked_level
from orchestrator.statistics.trust import Trust

Frames = Mapping[str, pl.DataFrame]
Named = Mapping[str, str]
"""Columns of a frame by the name that reports know them by."""
ROWS_AT_ONCE: Final = 10_000
"""Rows of a slice; more bring nothing and take memory, fewer are slower."""


@cache
def bundled() -> Mapping[str, RowRoles]:
    """Return the roles of the bundled methods' frames, by frame."""
    classes = {kind: contracts.load(Method, kind) for kind in plugins.kinds(plugins.METHODS)}
    return {frame_of(of, kind): roles_of(of) for kind, of in classes.items()}


def roles_in(frames: Frames) -> dict[str, RowRoles]:
    """Return the roles of the frames of a run that have any, in the order of their names."""
    kept = frames.roles if isinstance(frames, FrameFiles) else None
    known = bundled() if kept is None else kept
    return {name: known[name] for name in sorted(known) if name in frames}


def ranked_in(frames: Frames) -> dict[str, PairColumns]:
    """Return the columns of pairs that rankings are made of, by frame, as of `roles_in`."""
    pairs = {name: role.pairs for name, role in roles_in(frames).items()}
    return {name: one for name, one in pairs.items() if one is not None and one.ranked}


def there(frames: Frames, frame: str, columns: Named) -> dict[str, str]:
    """Return those of the columns of a role that a frame has: older versions wrote fewer."""
    names = set(names_of(frames, frame))
    return {name: column for name, column in columns.items() if column in names}


def renamed(rows: pl.DataFrame, columns: Named) -> pl.DataFrame:
    """Return rows with the columns of a role under the names that reports know them by."""
    if all(name == column for name, column in columns.items()):
        return rows
    taken = {*columns, *columns.values()}
    others = [name for name in rows.columns if name not in taken]
    named = [pl.col(column).alias(name) for name, column in columns.items() if column in rows]
    return rows.select(*others, *named)


def role_slices(
    frames: Frames, frame: str, columns: Named, others: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """Yield the columns of a role under the names that reports know, with others as they are."""
    wanted = list(dict.fromkeys((*others, *columns.values())))
    for rows in slices_of(frames, frame, wanted, ROWS_AT_ONCE):
        yield renamed(rows, columns)


def answer_frames(frames: Frames) -> dict[str, dict[str, str]]:
    """Return the columns of each frame of answers, by the name that reports know them by."""
    found = {name: role.answers for name, role in roles_in(frames).items()}
    return {
        name: there(frames, name, role.columns())
        for name, role in found.items()
        if role is not None
    }


def answers_of(
    frames: Frames, wanted: Sequence[str], *, as_categories: bool = False
) -> pl.DataFrame:
    """Return those of the wanted columns that the run's answers have; texts as categories if so."""
    parts = []
    for frame, named in answer_frames(frames).items():
        columns = {name: named.get(name, name) for name in wanted}
        if has := [one for one in columns.values() if one in names_of(frames, frame)]:
            query = lazy_of(frames, frame).select(has)
            query = query.with_columns(CATEGORIES) if as_categories else query
            parts.append(renamed(query.collect(engine="streaming"), columns))
    return pl.concat(parts, how="diagonal") if parts else pl.DataFrame()


def answer_slices(frames: Frames, wanted: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield those columns of the run's answers, some rows at a time: for columns of texts.

    A frame that lacks a column gives nothing.
    """
    for frame, named in answer_frames(frames).items():
        columns = {name: named.get(name, name) for name in wanted}
        for rows in role_slices(frames, frame, columns):
            if set(wanted) <= set(rows.columns):
                yield rows.select(wanted)


def answers_behind(answers: pl.DataFrame, source: str) -> pl.DataFrame:
    """Return the answers that a method compared: its own, or those of all methods."""
    own = f"answers ({source})"
    if own in answers["method"].unique().to_list():
        return answers.filter(pl.col("method") == own)
    return answers.filter(~pl.col("method").cast(pl.String).str.contains(r" \(.*\)$"))


class Source(msgspec.Struct, frozen=True):
    """A method of the recipe, as analyses see it.

    Attributes:
        name: The value of the column `method` in its rows.
        kind: Of the method.
        method: With its settings.
        frame: Name of the frame that its rows are in.
        scores: Columns that say how good an answer is, each with 1 where more is better and -1
            where less is. In a frame of pairs they are the probability that A is better.
    """

    name: str
    kind: str
    method: Method[MethodSettings]
    frame: str
    scores: Mapping[str, int] = {}


class Context(msgspec.Struct, frozen=True):
    """The input of a summary.

    Attributes:
        name: Of the part of the recipe; in the column `method` of its rows.
        frames: All frames of the run by name, e.g. "answers", "items".
        rows: The rows of this method, with the column `cluster` beside `item`; for an analysis an
            empty frame.
        sources: The methods of the recipe, companions not among them.
        confidence_level: Of every interval, in (0, 1).
        n_resamples: Of every bootstrap.
        seed: The recipe's; `rng` is made of it.
        clusters: Which items depend on each other.
        trust: The verdict on each judge of a method, by the method's name.
    """

    name: str
    frames: Mapping[str, pl.DataFrame]
    rows: pl.DataFrame
    sources: Sequence[Source]
    confidence_level: float
    n_resamples: int
    seed: int
    clusters: Clusters = Clusters()
    trust: Mapping[str, Sequence[Trust]] = {}

    def __post_init__(self) -> None:
        checked_level(self.confidence_level)
        if CLUSTER not in self.rows.columns:
            msgspec.structs.force_setattr(self, "rows", self.clusters.of(self.rows))

    def rng(self) -> np.random.Generator:
        """A fresh generator, the same at every call: tables do not depend on their order."""
        return np.random.default_rng(self.seed)

    def resampling(self, n: int | None = None) -> Resampling:
        """Resamples of prompts, `n` of them where given, at the confidence level."""
        return Resampling(n or self.n_resamples, self.rng(), self.confidence_level)

    @property
    def own(self) -> Source:
        """The method that the context is named after."""
        (found,) = (one for one in self.sources if one.name == self.name)
        return found

    def rows_of(
        self,
        source: Source,
        columns: Sequence[str] | None = None,
        *,
        as_categories: bool = False,
        **made: pl.Expr,
    ) -> pl.DataFrame:
        """The rows of another method of the recipe, with the column `cluster` beside `item`.

        Args:
            source: The method.
            columns: Those that are read, besides what the method derives columns of; all where none
                are named, and where the method may derive columns of any.
            as_categories: Give texts as categories, in a fraction of the memory, and no clusters.
            **made: Further columns of categories, made of any that are there while rows are read.
        """
        names = names_of(self.frames, source.frame)
        if not names:
            return pl.DataFrame()
        # What needs all rows takes long where several columns are asked for, one after the other.
        is_there = columns is not None and {*columns} <= {*names}
        derives = type(source.method).derive is not Method.derive and not is_there
        needed = source.method.derives_from if derives else ()
        columnar.give_back()
        wanted: Iterable[str] = names
        if columns is not None and needed is not None:
            wanted = dict.fromkeys(("method", *columns, *needed))
        if as_categories:
            # Before anything is made of them: rows of other methods have other labels and lists.
            query = lazy_of(self.frames, source.frame).filter(method=source.name)
            asked = {one: pl.col(one) for one in wanted if one in names} | made
            # A column at a time and in one piece: what each takes while it is read is given back
            # before the next one, and of many pieces each filter would make one of all columns.
            reads = (query.select(one.alias(name)) for name, one in asked.items())
            parts = (one.with_columns(*CATEGORIES).collect(engine="streaming") for one in reads)
            rows = pl.DataFrame([part.to_series().rechunk() for part in parts])
        else:
            rows = columns_of(self.frames, source.frame, tuple(wanted))
            mine = (rows["method"] == source.name).fill_null(value=False)
            # A filter that keeps all would copy all.
            rows = rows if mine.all() else rows.filter(mine)
        rows = source.method.derive(rows) if derives else rows
        if not as_categories:
            return self.clusters.of(rows)
        return rows.with_columns(*CATEGORIES) if derives else rows

    def slices_of(self, source: Source, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows of another method, some thousand at a time; of files only these are held.

        It is for columns of texts, of which something short is kept. There is no slice where the
        method has no rows, and no column that the method derives.

        Args:
            source: The method.
            columns: Those that are read.
        """
        columnar.give_back()
        for part in slices_of(self.frames, source.frame, ("method", *columns), ROWS_AT_ONCE):
            yield self.clusters.of(part.filter(pl.col("method") == source.name))
