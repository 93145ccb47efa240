"""Paired differences between runs, adjusted together; items and settings that differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final, Literal, NamedTuple, get_args

import msgspec
import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER, OVER, codes, n_distinct
from orchestrator.clusters import counted as counted_in
from orchestrator.columns import ITEMS
from orchestrator.contracts.context import ROWS_AT_ONCE
from orchestrator.frames import names_of, slices_of
from orchestrator.interface.sides import Common, Side, points_of, scores_of
from orchestrator.numbers import UNDEFINED, finite
from orchestrator.ranking.cells import packed
from orchestrator.ranking.scores import Score
from orchestrator.report.text import safe_line
from orchestrator.statistics.bounded_mean import difference_ends
from orchestrator.statistics.judgments import TIE
from orchestrator.statistics.means import PairedDifference, decided_together, paired_difference
from orchestrator.tables import Column, Table, make_table

By = Literal["run", "model", "judge", "method"]
BY: Final[tuple[By, ...]] = get_args(By)


class About(msgspec.Struct, frozen=True):
    """Two runs, models, judges or methods that are compared by a score.

    Attributes:
        score: "method.column"; only the column where methods are compared.
        run: Label of the run where runs are not what is compared, else empty.
        model: Name in the first run; empty where models are compared.
        first: Label of a run, or name of a model, judge or method.
        second: The same of the other.
    """

    score: str
    run: str
    model: str
    first: str
    second: str


class Difference(About, frozen=True):
    """A paired difference between them.

    Attributes:
        a: Mean of the first on the common points; None without any.
        b: Mean of the second.
        difference: b - a.
        low: Lower bound, at `level`; None without an interval.
        high: Upper bound likewise.
        p_value: Two-sided, of no difference, not adjusted; None where there is none.
        adjusted_p: The same after Holm's adjustment over all differences of the comparison.
        resolved: Whether the adjusted p-value is at most one minus the confidence level.
        n: Items with both values.
        n_clusters: Clusters of these items; None where each stands alone.
        orientation: 1 where more is better, -1 where less is.
        why: Why there is no value or no interval, or why the interval may not hold; else empty.
        level: Of the interval: that at which it excludes 0 exactly where the difference is resolved
            among all; None without a test.
        method: Of the interval.
        doubt: Why nothing can be concluded from it, as of judges that can't be trusted; empty for
            no reason.
    """

    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    adjusted_p: float | None
    resolved: bool
    n: int
    n_clusters: int | None
    orientation: int
    why: str = ""
    level: float | None = None
    method: str = ""
    doubt: str = ""


class Contrast(NamedTuple):
    """Two columns of values on the same items, compared.

    Attributes:
        about: What is compared.
        orientation: As in `Difference`.
        found: The difference on the points that have both values, one an item and turn.
        sizes: Items, and clusters of these or None where each stands alone.
        largest: Columns item, turn, a and b of the items that differ most, the largest difference
            first; None but for contrasts of the first score.
    """

    about: About
    orientation: int
    found: PairedDifference
    sizes: tuple[int, int | None]
    largest: pl.DataFrame | None


_Pair = tuple[About, Score, pl.DataFrame]
"""What is compared, the score, and columns item, cluster, turn, a and b."""


def contrasts(
    sides: Sequence[Side], common: Common, by: By, scores: Sequence[str], baseline: str
) -> list[Contrast]:
    """Return what is compared, in the order of scores, runs, models and pairs.

    Scores are "method.column", "method" or "column", all where empty; a `baseline` leaves only
    pairs with it, as the first. One score is read at a time, and of its points only sums are kept.
    """
    found: list[Contrast] = []
    for about, score, points in _all(sides, common, by, scores, baseline):
        difference = paired_difference(
            points["a"].to_numpy(),
            points["b"].to_numpy(),
            codes(points[CLUSTER]),
            difference_ends(score.ends, score.ends),
        )
        if found and np.array_equal(found[-1].found.sizes, difference.sizes):
            # Mostly each item counts once: one array does for all.
            difference = replace(difference, sizes=found[-1].found.sizes)
        largest = None
        if not found or about.score == found[0].about.score:
            apart = (pl.col("b") - pl.col("a")).abs()
            largest = (
                points.select("item", "turn", "a", "b")
                .filter(apart.is_finite() & (apart > TIE))
                .sort(apart, "item", descending=[True, False])
                .unique("item", keep="first", maintain_order=True)
                .head(MOST_CHANGES)
            )
        found.append(Contrast(about, score.orientation, difference, counted_in(points), largest))
        # The points of the next one are made before the name stands for them.
        del points
    return found


def _named(name: str, wanted: Sequence[str]) -> bool:
    """Return True if a score is among the wanted ones: by its method, its column, or both."""
    return not wanted or not {*wanted}.isdisjoint({name, *name.rpartition(".")[::2]})


def _all(
    sides: Sequence[Side], common: Common, by: By, wanted: Sequence[str], baseline: str
) -> Iterator[_Pair]:
    if by == "run":
        every = {name: None for side in sides for name in scores_of(side)}
        for name in every:
            if _named(name, wanted):
                there = [(one.label, one, name) for one in sides if name in scores_of(one)]
                yield from _of_models(_joined(by, there, common, name), by, "", baseline)
        return
    for side in sides:
        shown = side.label if len(sides) > 1 else ""
        if by == "method":
            # Methods that have a column of the same name, of the same kind of points
            alike: dict[tuple[str, bool], list[tuple[str, Side, str]]] = {}
            for name, (source, _) in scores_of(side).items():
                method, _, column = name.partition(".")
                is_pairwise = "model_a" in names_of(side.result.frames, source.frame)
                alike.setdefault((column, is_pairwise), []).append((method, side, name))
            for (column, _), there in alike.items():
                if _named(column, wanted):
                    score = _joined(by, there, common, column)
                    yield from _of_models(score, by, shown, baseline)
            continue
        for name in scores_of(side):
            if not _named(name, wanted):
                continue
            if by == "judge":
                yield from _of_models(points_of(side, common, name), by, shown, baseline)
            else:
                yield from _pairs(points_of(side, common, name), by, ("", shown), baseline)


def _joined(by: str, there: Sequence[tuple[str, Side, str]], common: Common, name: str) -> Score:
    """The points of several runs or methods as one score, with whose they are in a column `by`."""
    labels = pl.Enum([label for label, *_ in there])
    parts, found = [], []
    for label, side, own in there:
        found.append(points_of(side, common, own))
        parts.append(found[-1].points.with_columns(pl.lit(label, labels).alias(by)))
    score = found[-1 if by == "run" else 0]
    return msgspec.structs.replace(score, name=name, points=pl.concat(parts))


def _of_models(score: Score, by: str, run: str, baseline: str) -> Iterator[_Pair]:
    for model in score.points["model"].unique(maintain_order=True):
        rows = score.points.filter(pl.col("model").eq_missing(pl.lit(model, pl.String)))
        of_model = msgspec.structs.replace(score, points=rows)
        yield from _pairs(of_model, by, (str(model or ""), run), baseline)


def _pairs(score: Score, by: str, about: tuple[str, str], baseline: str) -> Iterator[_Pair]:
    """The contrasts of one table: each pair of values of the column `by`."""
    known = score.points.drop_nulls("value")
    # Points are let go of as soon as there is something shorter.
    score = msgspec.structs.replace(score, points=pl.DataFrame())
    names = [str(name) for name in known[by].drop_nulls().unique(maintain_order=True)]
    # Points are the same if all of this is; of models that met different opponents, and of judges
    # and methods with different judges, only the items are.
    same = ["item", "turn", "model", "opponent", "judge"]
    dropped = {"model": ("model", "opponent"), "judge": ("judge",)}.get(by, ())
    keys = [name for name in same if name not in dropped]
    if by == "method" and known["judge"].n_unique() > 1:
        of_method = known.group_by("method").agg(pl.col("judge").unique().sort())
        keys = keys if of_method["judge"].n_unique() == 1 else [k for k in keys if k != "judge"]
    if baseline in names:
        chosen = [(baseline, name) for name in names if name != baseline]
    else:
        chosen = [] if baseline else list(combinations(names, 2))
    known = known.select(
        "item", *OVER, "turn", "value", by, packed(known, keys).alias("point"),
        packed(known, ("item", "turn")).alias("place"),
    )  # fmt: skip
    kept = ("item", *OVER, "turn", "place")
    values = {
        name: _means(known.filter(pl.col(by) == name), "point", kept, ("value",)) for name in names
    }
    del known
    model, run = about
    for first, second in chosen:
        both = values[first].rename({"value": "a"})
        other = values[second].select("point", b="value")
        both = both.join(other, on="point", maintain_order="left").drop("point")
        # Each item counts once, over its opponents and judges.
        means = _means(both, "place", kept[:-1], ("a", "b"))
        yield About(score.name, run, model, first, second), score, means


def _means(
    rows: pl.DataFrame, key: str, kept: Sequence[str], values: Sequence[str]
) -> pl.DataFrame:
    """Return the means of values over the rows of each key, in the order of first appearance.

    What is kept is the same in all rows of a key.
    """
    if n_distinct(rows[key]) == len(rows):
        return rows.select(key, *kept, *values)
    return rows.group_by(key, maintain_order=True).agg(
        *(pl.col(name).first() for name in kept), *(pl.col(name).mean() for name in values)
    )


def differences(found: Sequence[Contrast], confidence_level: float) -> list[Difference]:
    """Return the differences, with Holm's adjustment over all of them."""
    together = decided_together([one.found for one in found], confidence_level)
    return [
        Difference(
            **msgspec.structs.asdict(one.about),
            a=finite(one.found.first),
            b=finite(one.found.second),
            difference=finite(one.found.value),
            low=None if (interval := decided.estimate.interval) is None else interval.low,
            high=None if interval is None else interval.high,
            p_value=finite(decided.p_value),
            adjusted_p=finite(decided.adjusted_p),
            resolved=decided.is_resolved,
            n=one.sizes[0],
            n_clusters=one.sizes[1],
            orientation=one.orientation,
            why=decided.estimate.undefined or (interval.doubt if interval else ""),
            level=finite(decided.level),
            method=one.found.method,
        )
        for one, decided in zip(found, together, strict=True)
    ]


MOST_CHANGES: Final = 50
"""Items that differ most, of which a comparison says the values."""
_ABSENT: Final = object()
_MOST_PREVIEW: Final = 60
_SHOWN_CHANGES: Final = 10
_MOST_SETTINGS: Final = 200
_MOST_SETTING: Final = 300


class Change(About, frozen=True):
    """One item under a difference.

    Attributes:
        item: Key of the item.
        turn: Of the conversation, from 1 on.
        prompt: Beginning of the item's prompt, in a line.
        a: Value of the first.
        b: Value of the second.
    """

    item: str
    turn: int | None
    prompt: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        """B - a."""
        return self.b - self.a


def most_changed(found: Sequence[Contrast], side: Side) -> list[Change]:
    """Return the items that differ most by the first score that is compared, the largest first.

    `side` says the beginning of each prompt.
    """
    parts = [
        one.largest.with_columns(contrast=pl.lit(place))
        for place, one in enumerate(found)
        if one.largest is not None
    ]
    if not parts:
        return []
    apart = (pl.col("b") - pl.col("a")).abs()
    rows = (
        pl.concat(parts)
        .sort(apart, "item", "contrast", descending=[True, False, False])
        # Of two models in one comparison, what one wins the other loses.
        .unique("item", keep="first", maintain_order=True)
        .head(MOST_CHANGES)
    )
    items, prompts = rows["item"].cast(pl.String), {}
    for part in slices_of(side.result.frames, ITEMS, ("item", "prompt"), ROWS_AT_ONCE):
        own = part.filter(pl.col("item").is_in(items.implode()))
        for key, *prompt in own.iter_rows():
            prompts[key] = safe_line(str(prompt[0] or "") if prompt else "")[:_MOST_PREVIEW]
    abouts = [msgspec.structs.asdict(one.about) for one in found]
    return [
        Change(**abouts[at], item=item, turn=turn, prompt=prompts.get(item, ""), a=a, b=b)
        for item, turn, a, b, at in rows.iter_rows()
    ]


def changed_table(changes: Sequence[Change], by: str) -> Table | None:
    """Return the items that changed most as a table; None for none."""
    if not changes:
        return None
    has_model = any(one.model for one in changes)
    pairs = {(one.first, one.second) for one in changes}
    # One pair is told by the headings.
    is_told = len(pairs) == 1
    ((first, second),) = pairs if is_told else [("first", "second")]
    names = ["item", "prompt", *(["model"] if has_model else [])]
    names += [] if is_told else ["compared"]
    columns = [
        *map(Column, names), Column(first, "number"), Column(second, "number"),
        Column("difference", "signed"),
    ]  # fmt: skip
    rows = [
        (one.item, one.prompt, *((one.model,) if has_model else ()),
         *(() if is_told else (f"{one.second} minus {one.first}",)), one.a, one.b, one.difference)
        for one in changes[:_SHOWN_CHANGES]
    ]  # fmt: skip
    table = make_table("compare.items", f"Items that differ most, by {by}", columns, rows)
    return msgspec.structs.replace(table, source=changes[0].score)


def differing(values: Sequence[object], path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Descend where all values are mappings or lists; a part that only some have is one setting."""
    if all(isinstance(value, Mapping) for value in values):
        maps = [value for value in values if isinstance(value, Mapping)]
        for key in dict.fromkeys(key for one in maps for key in one):
            inner = [one.get(key, _ABSENT) for one in maps]
            yield from differing(inner, f"{path}.{key}" if path else str(key))
    elif all(isinstance(value, list) for value in values):
        lists = [value for value in values if isinstance(value, list)]
        for place in range(max(map(len, lists))):
            inner = [one[place] if place < len(one) else _ABSENT for one in lists]
            yield from differing(inner, f"{path}.{place}")
    elif any(value != values[0] for value in values):
        yield path, tuple(map(_in_words, values))


def _in_words(value: object) -> str:
    if value is _ABSENT:
        return UNDEFINED
    if isinstance(value, Mapping):
        kind = value.get("kind") or value.get("weights") or value.get("base_url")
        return f"present ({kind})" if kind else "present"
    if value is None or isinstance(value, bool):
        # As recipes write them
        return json.dumps(value)
    return str(value)


def settings_table(settings: Mapping[str, Mapping[str, object]]) -> Table | None:
    """Return the settings of runs, by their names, that differ as a table; None for none."""
    found = list(differing([*settings.values()], ""))[:_MOST_SETTINGS]
    if not found:
        return None
    columns = [Column("setting"), *map(Column, settings)]
    rows = [(path, *(one[:_MOST_SETTING] for one in values)) for path, values in found]
    return make_table("compare.settings", "Settings that differ", columns, rows)
