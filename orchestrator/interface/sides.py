"""The runs of a comparison: their items, the scores on common items, and how names are matched."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
import polars as pl

from orchestrator.clusters import OVER, Clusters, clusters_of
from orchestrator.columns import ITEMS
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError, nearest
from orchestrator.frames import names_of
from orchestrator.interface.result import Result
from orchestrator.numbers import counted
from orchestrator.ranking.scores import Score, score
from orchestrator.runner.results.tables import all_sources

Matched = Literal["model", "judge", "method"]
MATCHED: Final[tuple[Matched, ...]] = get_args(Matched)
"""Names that may differ between runs and still be of the same part."""

_COLUMNS: Final[dict[str, Matched]] = {"model": "model", "opponent": "model", "judge": "judge"}
CONTENT: Final = ("prompt", "followups", "messages")
_MOST_RUNS: Final = 26
_MOST_NAMED: Final = 5


@dataclass(frozen=True)
class Side:
    """One run of a comparison.

    Attributes:
        label: Its folder, with as much of the path before it as tells the runs apart.
        result: The run.
        items: Columns item and content, a hash of what it asks, one row each.
        context: To read the rows of its methods.
        names: Names of models, judges and methods, in order.
        renamed: For each of these, the name that the part has in the first run, by its own name;
            names without a counterpart are not in it.
    """

    label: str
    result: Result
    items: pl.DataFrame
    context: Context
    names: Mapping[Matched, tuple[str, ...]]
    renamed: Mapping[Matched, Mapping[str, str]] = field(default_factory=dict)

    def own(self, kind: Matched, name: str) -> str:
        """Return this run's name of what the first run calls `name`."""
        own = [mine for mine, first in self.renamed[kind].items() if first == name]
        return own[0] if own else name


@dataclass(frozen=True)
class Common:
    """The items of all runs of a comparison.

    Attributes:
        items: Keys, in the order of the first run.
        clusters: Which of them depend on each other.
        n_changed: Items of one key whose text differs between runs.
        alone: Keys that are not in every run, or with another text, by label of a run.
    """

    items: pl.Series
    clusters: Clusters
    n_changed: int
    alone: Mapping[str, tuple[str, ...]]

    @cached_property
    def keys(self) -> pl.Enum:
        """The items in the order of their names, as categories of four bytes each."""
        return pl.Enum(self.items.unique().sort())

    @cached_property
    def over(self) -> list[pl.Series]:
        """The columns of `OVER` for each of `keys`, as numbers in the order of their names."""
        found = self.clusters.of(self.keys.categories.to_frame("item"))
        return [found[name].rank("dense") for name in OVER]

    @property
    def n(self) -> int:
        """Items that ask something different."""
        return self.clusters.counted(self.items)[0]


def opened(runs: Sequence[Result], match: Sequence[str], *, allow_code: bool) -> list[Side]:
    """Return the sides of a comparison, with their names matched.

    Names are those of the first run; matches are such as "model=large:large_v2".

    Raises:
        UsageError: If a run has no items, or a name to be matched is unknown.
    """
    if len(runs) > _MOST_RUNS:
        raise UsageError(f"at most {_MOST_RUNS} runs can be compared, got {len(runs)}")
    labels = _labels([run.path.resolve() for run in runs])
    sides = [_side(*one, allow_code=allow_code) for one in zip(labels, runs, strict=True)]
    given = _given(sides, match)
    return [
        replace(side, renamed={kind: _matched(sides[0], side, kind, given) for kind in MATCHED})
        for side in sides
    ]


def _labels(paths: Sequence[Path]) -> list[str]:
    for n in range(1, max(len(path.parts) for path in paths)):
        found = ["/".join(path.parts[-n:]) for path in paths]
        if len({*found}) == len(found):
            return found
    # One run, several times.
    return [f"{path.name} ({place})" for place, path in enumerate(paths, 1)]


def _side(label: str, result: Result, *, allow_code: bool) -> Side:
    if ITEMS not in result.frames:
        raise UsageError(f"{result.path} has no frame of items; run its recipe again")
    names = names_of(result.frames, ITEMS)
    texts = [pl.col(one) if one in names else pl.lit(None, pl.String) for one in CONTENT]
    # Texts themselves would be held as long as the comparison takes.
    content = pl.struct(*(one.alias(name) for one, name in zip(texts, CONTENT, strict=True))).hash()
    query = result.frames.scan(ITEMS).select("item", content=content)
    items = query.collect(engine="streaming").unique(maintain_order=True)
    context = all_sources(result.frames, result.settings, allow_code=allow_code, run=result.path)
    there = [source for source in context.sources if source.frame in result.frames]
    judges = dict.fromkeys(name for source in there for name in source.method.judges)
    named = {name for source in there for name in source.method.candidates or ()}
    every = result.settings.get("models", {})
    models = [name for name in every if name not in judges or name in named]
    called: dict[Matched, tuple[str, ...]] = {
        "model": tuple(models),
        "judge": tuple(judges),
        "method": tuple(source.name for source in there),
    }
    return Side(label, result, items, msgspec.structs.replace(context, sources=there), called)


def common_items(sides: Sequence[Side]) -> Common:
    """Return the items that all runs have with the same text.

    Raises:
        UsageError: If there is none.
    """
    first = sides[0].items
    keys = [*first.columns]
    shared = reduce(
        lambda left, side: left.join(side.items, on=keys, how="semi", nulls_equal=True),
        sides[1:],
        first,
    )["item"]
    if shared.is_empty():
        where = " and ".join(str(side.result.path) for side in sides)
        raise UsageError(f"{where} have no item in common")
    by_key = reduce(
        lambda left, side: left.join(side.items, on="item", how="semi"), sides[1:], first
    )
    kept = shared.implode()
    alone = {
        side.label: tuple(side.items.filter(~pl.col("item").is_in(kept))["item"]) for side in sides
    }
    clusters = [clusters_of(side.result.frames) for side in sides]
    named = next((one for one in clusters if one.are_known), clusters[0])
    return Common(shared, named, len(by_key) - len(shared), alone)


def scores_of(side: Side) -> dict[str, tuple[Source, str]]:
    """Return the method and column of each score of a run, by its name in the first run."""
    renamed = side.renamed["method"]
    return {
        f"{renamed[source.name]}.{column}": (source, column)
        for source in side.context.sources
        if source.name in renamed
        for column in source.scores
    }


def points_of(side: Side, common: Common, name: str) -> Score:
    """Return a score of a run on the common items, under the names of the first run.

    Points about models, opponents and judges without a counterpart there are left out. Texts are
    categories; items are `common.keys`, clusters and prompts numbers in the order of their names.
    """
    wanted = ("item", "turn", "model", "opponent", "judge", "value")
    found = score(side.context, *scores_of(side)[name], as_categories=True, only=wanted)
    points = found.points.with_columns(pl.col("item").cast(common.keys, strict=False))
    points = renamed_points(side, points.drop_nulls("item"))
    places = points["item"].to_physical()
    points = points.with_columns(one.gather(places) for one in common.over)
    return msgspec.structs.replace(found, name=name, points=points)


def renamed_points(side: Side, points: pl.DataFrame) -> pl.DataFrame:
    """Return points of a run under the names of the first run.

    Those about models, opponents and judges without a counterpart there are left out. Names are
    texts or categories.
    """
    for column, kind in _COLUMNS.items():
        if column not in points.columns:
            continue
        names, renamed = side.names[kind], side.renamed[kind]
        lost = [name for name in names if name not in renamed]
        if lost:
            is_lost = pl.col(column).cast(pl.String).is_in(lost)
            points = points.filter(is_lost.not_().fill_null(value=True))
        changed = {own: first for own, first in renamed.items() if own != first}
        if changed:
            named = pl.col(column).cast(pl.String).replace(changed)
            points = points.with_columns(named.cast(points.schema[column]))
    return points


def notes_of(sides: Sequence[Side], common: Common) -> list[str]:
    """Return what is not common, of items and of names, and names that differ; a sentence each."""
    n = len(common.items)
    if len(sides) < 2:
        return [f"{counted(n, 'item')} in {sides[0].label}."]
    sizes = ", ".join(f"{side.label} has {len(side.items):,}" for side in sides)
    notes = [f"{counted(n, 'item')} in common; {sizes}."]
    for side in sides:
        if own := common.alone[side.label]:
            shown = ", ".join(own[:_MOST_NAMED])
            more = f" and {len(own) - _MOST_NAMED:,} more" if len(own) > _MOST_NAMED else ""
            are = "is" if len(own) == 1 else "are"
            items = counted(len(own), "item")
            notes.append(f"{items} {are} not compared, only in {side.label}: {shown}{more}.")
    if common.n_changed:
        notes.append(
            f"{counted(common.n_changed, 'item')} with the same key but a different text "
            "were excluded."
        )
    first = sides[0]
    for side in sides[1:]:
        for kind in MATCHED:
            renamed = side.renamed[kind]
            notes += [
                f"{kind} {mine!r} of {first.label} is matched with {other!r} of {side.label}."
                for other, mine in renamed.items()
                if other != mine
            ]
            alone = [name for name in first.names[kind] if name not in renamed.values()]
            others = [name for name in side.names[kind] if name not in renamed]
            parts = [
                f"{kind}{'s' * (len(names) != 1)} {', '.join(names)} only in {label}"
                for label, names in ((first.label, alone), (side.label, others))
                if names
            ]
            both = alone and others
            advice = f"; to compare them: --match {kind}={alone[0]}:{others[0]}" if both else ""
            notes += [f"Not compared: {', '.join(parts)}{advice}."] if parts else []
    return notes


def _given(
    sides: Sequence[Side], match: Iterable[str]
) -> dict[tuple[str, Matched], dict[str, str]]:
    """The names that are to be matched: by label and kind, own name -> name in the first run."""
    found: dict[tuple[str, Matched], dict[str, str]] = {}
    for text in match:
        word, _, names = text.partition("=")
        kind = next((one for one in MATCHED if one == word), None)
        if kind is None or not names:
            example = "expected something like --match model=large:large_v2"
            near = "" if word in MATCHED else nearest(word, MATCHED, "what can be matched")
            raise UsageError(f"invalid match {text!r}; {example}{near}")
        if len(sides) < 2:
            raise UsageError(f"--match {text}: names are matched between runs, but there is one")
        for side, own in zip(sides[1:], _split(kind, names, sides), strict=True):
            found.setdefault((side.label, kind), {})[own[1]] = own[0]
    return found


def _split(kind: Matched, text: str, sides: Sequence[Side]) -> list[tuple[str, str]]:
    """The name in the first run and the own one, for each further run; names may hold colons."""
    parts = text.split(":")
    for places in combinations(range(1, len(parts)), len(sides) - 1):
        ends = pairwise((0, *places, len(parts)))
        cut = [":".join(parts[begin:end]) for begin, end in ends]
        if all(name in side.names[kind] for name, side in zip(cut, sides, strict=True)):
            return [(cut[0], own) for own in cut[1:]]
    if len(parts) != len(sides):
        raise UsageError(
            f"--match {kind}={text}: expected one name for each of the {len(sides)} runs, "
            "with ':' between them"
        )
    name, side = next(
        (name, side)
        for name, side in zip(parts, sides, strict=True)
        if name not in side.names[kind]
    )
    raise UsageError(
        f"--match {kind}={text}: {side.label} ({side.result.path}) has no {kind} {name!r}"
        f"{nearest(name, side.names[kind])}"
    )


def _matched(
    first: Side, side: Side, kind: Matched, given: Mapping[tuple[str, Matched], Mapping[str, str]]
) -> dict[str, str]:
    """Names of a run -> names of the first one: as given, else equal ones, else the only ones.

    Models are matched by a different name only where each run has a single one: of several, two
    that are left over need not have anything to do with each other.
    """
    found = dict(given.get((side.label, kind), {}))
    mine = [name for name in first.names[kind] if name not in found.values()]
    own = [name for name in side.names[kind] if name not in found]
    found |= {name: name for name in own if name in mine}
    left = [name for name in mine if name not in found.values()]
    right = [name for name in own if name not in found]
    if len(left) == 1 and len(right) == 1:
        is_only = len(first.names[kind]) == 1 and len(side.names[kind]) == 1
        of_first, of_side = (
            {source.name: source.kind for source in one.context.sources} for one in (first, side)
        )
        is_alike = kind == "method" and of_first[left[0]] == of_side[right[0]]
        if kind == "judge" or is_alike or (kind == "model" and is_only):
            found[right[0]] = left[0]
    return found
