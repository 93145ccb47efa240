"""The items of a run as one table: what the methods say of each, found, filtered and sorted."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace
from numpy.typing import NDArray

from orchestrator.columns import ITEMS, PairColumns, score_words
from orchestrator.contracts.context import Source, renamed, roles_in, there
from orchestrator.disk import columnar
from orchestrator.errors import UsageError
from orchestrator.frames import FrameFiles, columns_of, names_of
from orchestrator.ranking.judged import order_decisions
from orchestrator.report.html.shell import terms
from orchestrator.report.text import page_line

Found = NDArray[np.bool_]
Rows = NDArray[np.int64]

# Searching the texts of all items at each keystroke.
#
# The texts of an item stand together in small letters. A search reads all of them by a vectorised
# search for a substring, which finds parts of words too and needs no index that is larger than the
# texts themselves. Few texts are held in memory; many stay in a file, which is read each time.


_TERM: Final = re.compile(r'"([^"]*)"?|(\S+)')
_KEPT: Final = 32
_MOST_TERMS: Final = 12
_HELD_BYTES: Final = 256 << 20
# Columns that hold no text to be looked for but names, of which each row has the same.
_NAMES: Final = frozenset({
    "method", "model", "model_a", "model_b", "judge", "scorer", "status", "observed",
    "finish_reason", "undefined", "fields",
})  # fmt: skip


class Texts:
    """The texts, one row an item.

    Each is one column in small letters; the text of an item is in one row.
    """

    def __init__(self, texts: pl.LazyFrame) -> None:
        self._texts = texts
        self._kept = lru_cache(_KEPT)(self._find)

    def find(self, query: str) -> Found | None:
        """One truth value an item: whether all terms occur; None where there is no term."""
        found = [quoted or word for quoted, word in _TERM.findall(query.lower())]
        terms = tuple(dict.fromkeys([term for term in found if term][:_MOST_TERMS]))
        return self._kept(terms) if terms else None

    def _find(self, terms: tuple[str, ...]) -> Found:
        *before, last = terms
        held = self._texts.select(pl.first().str.contains(last, literal=True)).collect()
        # A copy, because that of polars can't be written to.
        found = np.array(held.to_series())
        if before:
            # Most of a query was there at the keystroke before.
            found &= self._kept(tuple(before))
        return found


def write_texts(frames: FrameFiles, keys: pl.Series, path: Path) -> Texts:
    """Gather the texts of the items; in a file where they are many."""
    parts = []
    for name in frames:
        scan = frames.scan(name)
        schema = scan.collect_schema()
        for column, kind in schema.items() if "item" in schema else ():
            if kind == pl.String and column not in _NAMES and column != "item":
                texts_of = scan.select("item", pl.col(column).alias("text"))
                parts.append(texts_of.filter(pl.col("text").is_not_null()).unique())
    nothing = pl.LazyFrame(schema={"item": pl.String, "text": pl.String})
    joined = (
        pl.concat([nothing, *parts])
        .group_by("item")
        .agg(pl.col("text").unique(maintain_order=True).str.join("\n"))
    )
    texts = (
        keys.to_frame("item")
        .lazy()
        .join(joined, on="item", how="left", maintain_order="left")
        .select((pl.col("item") + "\n" + pl.col("text").fill_null("")).str.to_lowercase())
        .collect()
    )
    if texts.estimated_size() <= _HELD_BYTES:
        return Texts(texts.lazy())
    path.parent.mkdir(parents=True, exist_ok=True)
    texts.write_ipc(path, compression="uncompressed")
    return Texts(columnar.scan_arrow(path))


CHANGE: Final = "change"
"""Column of items that are compared with another run."""
_DIGITS: Final = 2
_PREVIEW: Final = 240
_MOST_SCORES: Final = 3
_PAIRS: Final = (
    "prefer_a",
    "prefer_a_ab",
    "prefer_a_ba",
    "p_ab",
    "p_ba",
    "judge",
    "model_a",
    "model_b",
)
_TESTS: Final[Mapping[str, Callable[..., Found]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
}
_TEXT_TESTS: Final[Mapping[str, Callable[[pl.Series, str], pl.Series]]] = {
    "=": lambda shown, text: shown == text.strip(),
    "~": lambda shown, text: shown.str.to_lowercase().str.contains(text.lower(), literal=True),
}
_SIGN: Final = re.compile("(?=(<=|>=|[<>=~]))")
Column = Callable[[str], pl.Series | None]
"""Gives a column by its name, one value an item; None if there is none."""


class Measure(msgspec.Struct, frozen=True):
    """A number that stands beside each item.

    Attributes:
        key: Its column.
        title: Its heading.
        says: What it is, in a sentence.
        digits: Decimals; 0 for a count.
    """

    key: str
    title: str
    says: str
    digits: int = 3


class Wanted(msgspec.Struct, frozen=True):
    """A selection of items, and their order.

    Attributes:
        query: Words that must occur in their texts; those in double quotes as they stand.
        category: Only of this one; all where empty.
        where: Conditions `COLUMN<NUMBER`, with < <= > >= =, or `COLUMN~TEXT` (contains) and
            `COLUMN=TEXT` (equals); after `COLUMN=` nothing is what is empty or undefined.
        sort: "index", or a column; the largest first after a "-". A column is "item", "category",
            "prompt", the key of a measure, or one of `Answers.column`.
        show: Which items, by what was found of their answers: `kind` "lost" with what
            `Answers.lost` takes, "changed" with another run as `than` and the number that changed
            as `of` (where empty an answer, or who is best), or "noted" with a tag or none as
            `than`; all where empty.
    """

    query: str = ""
    category: str = ""
    where: tuple[str, ...] = ()
    sort: str = "index"
    show: Mapping[str, str] = {}


class Items:
    """The table.

    It has one row an item in the order of the dataset: item (`keys`), category, preview, measures.
    """

    def __init__(self, table: pl.DataFrame, measures: Sequence[Measure]) -> None:
        self.table = table
        self.measures = tuple(measures)
        self.keys = table["item"]
        self._kept: dict[str, Found] = {}

    @cached_property
    def counts(self) -> dict[str, int]:
        """Items that each count of a measure is above 0 of, by its key."""
        keys = [one.key for one in self.measures if one.digits == 0]
        return {key: int((self.table[key] > 0).sum()) for key in keys}

    @property
    def categories(self) -> list[str]:
        """Categories, sorted."""
        return sorted(self.table["category"].drop_nulls().unique().to_list())

    def select(self, wanted: Wanted, found: Found | None, column: Column = lambda _: None) -> Rows:
        """Numbers of the items that are wanted, in the order that is wanted.

        `found` has a truth value an item, from the search; None where nothing is searched. `column`
        gives the columns that are not in the table.

        Raises:
            UsageError: If a condition or an order can't be read.
        """
        kept = np.ones(len(self.table), dtype=bool) if found is None else found.copy()
        if wanted.category:
            kept &= self.table["category"].eq_missing(wanted.category).to_numpy()
        for condition in wanted.where:
            kept &= self._test(condition, column)
        sort, descending = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
        values = self.column(sort, column)
        # The largest change may be a fall.
        values = values.abs() if sort == CHANGE else values
        # What is undefined stands last, whichever way it is sorted.
        by = [pl.col("by").fill_nan(None) if values.dtype.is_float() else pl.col("by"), "index"]
        table = pl.DataFrame({"index": self.table["index"], "by": values}).filter(kept)
        table = table.sort(by, descending=[descending, False], nulls_last=True)
        return table["index"].to_numpy()

    def page(self, rows: Rows) -> list[dict[str, object]]:
        """The items with these numbers, as the list shows them."""
        shown = self.table[rows].to_dicts()
        for one in shown:
            one["preview"] = page_line(one["preview"] or "")
            one["name"] = page_line(one["item"])
            one["category"] = one["category"] and page_line(one["category"])
        return shown

    def column(self, name: str, column: Column) -> pl.Series:
        """Return a column of the table, or one that `column` gives.

        Raises:
            UsageError: If there is none.
        """
        is_own = name in ("index", "item", "category", *(one.key for one in self.measures))
        found = self.table[name] if is_own else column(name)
        if found is None:
            raise UsageError(f"items have no column {name!r:.80}")
        return found

    def changed(
        self, run: str, name: str, now: pl.Series, keys: pl.Series, before: pl.Series
    ) -> "Items":
        """Return the items with how much a number is above what it was `before` in another run.

        The other run has its own `keys`. The change is null where either run lacks the number, and
        0 where both are shown alike.

        Raises:
            UsageError: If it is no number.
        """
        if not now.dtype.is_numeric():
            raise UsageError(f"{name!r:.80} is no number, so it can't be said how much it changed")
        measure = next((one for one in self.measures if one.key == name), None)
        title = page_line(name if measure is None else measure.title)
        says = f"{title}: how much it is above that in {page_line(run)}; sorted by its size."
        made = Measure(CHANGE, "change", says, _DIGITS if measure is None else measure.digits)
        both = self.keys.to_frame().with_columns(now=now)
        old = pl.DataFrame({"item": keys, "before": before})
        both = both.join(old, on="item", how="left", maintain_order="left")
        change = both.select((pl.col("now") - pl.col("before")).cast(pl.Float64).fill_nan(None))
        table = self.table.with_columns(change.to_series().round(made.digits).alias(CHANGE))
        return Items(table, (*self.measures, made))

    def _test(self, condition: str, column: Column) -> Found:
        """One truth value an item; those of texts are kept, since they read all of them."""
        if condition in self._kept:
            return self._kept[condition]
        # Names of models may hold signs too.
        for sign in _SIGN.finditer(condition):
            name, rest = condition[: sign.start()], condition[sign.end(1) :]
            try:
                values = self.column(name, column)
                if values.dtype.is_numeric():
                    numbers = values.cast(pl.Float64).to_numpy()
                    if sign[1] == "=" and not rest.strip():
                        unknown: Found = np.isnan(numbers)
                        return unknown
                    return _TESTS[sign[1]](numbers, float(rest))
                shown = values.fill_null("").str.strip_chars()
                found = _TEXT_TESTS[sign[1]](shown, rest).to_numpy()
            except (KeyError, ValueError, UsageError):
                continue
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[condition] = found
            return found
        raise UsageError(
            f"invalid condition {condition!r}; expected COLUMN<NUMBER, or with > = <= >=, "
            "COLUMN~TEXT or COLUMN=TEXT"
        )


def build(frames: FrameFiles, sources: Sequence[Source]) -> Items:
    """The table of a run; texts are not kept, but for the beginning of each prompt."""
    preview = pl.col("prompt").str.slice(0, _PREVIEW).alias("preview")
    table = pl.DataFrame(schema=dict.fromkeys(("item", "category", "preview"), pl.String))
    if ITEMS in frames:
        table = frames.scan(ITEMS).select("item", "category", preview).collect()
    measures: list[Measure] = []
    for rows, values in _measured(frames, sources):
        new = {one: value for one, value in values.items() if one.key not in table.columns}
        if new:
            cast = [value.cast(pl.Float64).alias(one.key) for one, value in new.items()]
            by_item = rows.group_by("item").agg(cast)
            table = table.join(by_item, on="item", how="left", maintain_order="left")
            measures += new
    if len({measure.key.partition(".")[0] for measure in measures}) == 1:
        # With one method its name says nothing.
        measures = [replace(one, title=one.title.partition(" · ")[2]) for one in measures]
    for key, title, needed, test in _COUNTED:
        parts = [pl.DataFrame(schema={"item": pl.String, key: pl.UInt32})]
        for name in frames:
            if {"item", needed} <= {*names_of(frames, name)}:
                counted = frames.scan(name).filter(test).group_by("item")
                parts.append(counted.agg(pl.len().alias(key)).collect())
        counts = pl.concat(parts).group_by("item").agg(pl.col(key).sum())
        if counts.height or key == "failed":
            table = table.join(counts, on="item", how="left", maintain_order="left")
            table = table.with_columns(pl.col(key).fill_null(0))
            measures.append(Measure(key, title, terms()["column"][title], 0))
    return Items(table.with_row_index("index").cast({"index": pl.Int64}), measures)


# Counts of rows of any frame: key, title, the column they need, and which are counted
_COUNTED: Final = (
    ("cut", "cut off", "finish_reason", pl.col("finish_reason") == "length"),
    ("failed", "failed", "status", pl.col("status") != "ok"),
)


# Measures of pairs: the columns they need, name, title, digits, and value of an item
_OF_PAIRS: Final[tuple[tuple[set[str], str, str, int, pl.Expr], ...]] = (
    ({"prefer_a_ab", "prefer_a_ba"}, "gap", "order gap", 2,
     (pl.col("prefer_a_ab") - pl.col("prefer_a_ba")).abs().max()),
    ({"first", "second"}, "flips", "flips", 0, (pl.col("first") * pl.col("second") < 0).sum()),
    ({"prefer_a"}, "margin", "margin", 2, ((pl.col("prefer_a") - 0.5).abs() * 2).mean()),
    ({"pair split"}, "split", "judges split", 0, pl.col("pair split").drop_nulls().n_unique()),
    ({"without value"}, "undefined", "no value", 0, pl.col("without value").sum()),
)  # fmt: skip


_Values = dict[Measure, pl.Expr]
"""Measures with their value of an item, over its rows."""


def _measured(
    frames: FrameFiles, sources: Sequence[Source]
) -> Iterator[tuple[pl.DataFrame, _Values]]:
    """Yield the rows of each method and their measures, by the roles of its columns."""
    pairs = {name: role.pairs for name, role in roles_in(frames).items() if role.pairs}
    for source in sources:
        if source.frame in pairs:
            yield _of_pairs(frames, source.frame, pairs[source.frame], source.name)
        else:
            yield _of_scores(frames, source)
    # Methods whose code is not there, or may not run.
    for frame in pairs.keys() - {source.frame for source in sources}:
        methods = columns_of(frames, frame, ("method",))
        for name in methods["method"].unique(maintain_order=True) if methods.width else ():
            yield _of_pairs(frames, frame, pairs[frame], name)


def _of_pairs(
    frames: FrameFiles, frame: str, role: PairColumns, method: str
) -> tuple[pl.DataFrame, _Values]:
    columns = {
        name: column
        for name, column in there(frames, frame, role.columns()).items()
        if name in _PAIRS
    }
    rows = renamed(_good(frames, frame, method, columns.values()), columns)
    if "judge" in rows.columns and rows["judge"].n_unique() > 1:
        pair = ("item", "model_a", "model_b")
        side = (pl.col("prefer_a").mean().over(*pair, "judge") - 0.5).sign()
        rows = rows.with_columns(side=side)
        sides = pl.col("side").filter(pl.col("side") != 0).n_unique().over(*pair)
        rows = rows.with_columns(pl.when(sides > 1).then(pl.struct(pair[1:])).alias("pair split"))
    if {"p_ab", "p_ba"} <= set(rows.columns):
        first, second = (order_decisions(rows, order) for order in ("p_ab", "p_ba"))
        rows = rows.with_columns(first=first, second=second)
    rows = _without_value(rows, "prefer_a")
    said = terms()["column"]
    found = {
        Measure(f"{method}.{name}", _name(method, title), said[title], digits): value
        for needed, name, title, digits, value in _OF_PAIRS
        if needed <= set(rows.columns)
    }
    return rows, found


def _good(frames: FrameFiles, frame: str, method: str, columns: Iterable[str]) -> pl.DataFrame:
    """Columns of the rows of a method that did not fail, with their items."""
    rows = columns_of(frames, frame, list(dict.fromkeys(("method", "item", "status", *columns))))
    if rows.is_empty() or "item" not in rows.columns:
        return pl.DataFrame()
    return rows.filter((pl.col("method") == method) & (pl.col("status") == "ok"))


def _of_scores(frames: FrameFiles, source: Source) -> tuple[pl.DataFrame, _Values]:
    good = _good(frames, source.frame, source.name, source.scores)
    found = {}
    scores = [name for name in source.scores if good.schema.get(name) == pl.Float64]
    values = [pl.col(name).filter(pl.col(name).is_finite()) for name in scores[:_MOST_SCORES]]
    for name, value in zip(scores, values, strict=False):
        says = f"Mean over the rows of {source.name}."
        one = Measure(f"{source.name}.{name}", _name(source.name, score_words(name)), says)
        found[one] = value.mean()
    if scores:
        says = f"Range of {score_words(scores[0])} in {source.name}."
        one = Measure(f"{source.name}.spread", _name(source.name, "spread"), says)
        found[one] = values[0].max() - values[0].min()
        good = _without_value(good, *scores)
        if "without value" in good.columns:
            _, _, title, digits, value = _OF_PAIRS[-1]
            key, says = f"{source.name}.undefined", terms()["column"][title]
            found[Measure(key, _name(source.name, title), says, digits)] = value
    return good, found


def _without_value(rows: pl.DataFrame, *values: str) -> pl.DataFrame:
    """Mark rows that did not fail but lack a value, where there are any."""
    lack = [pl.col(name).is_null() | pl.col(name).is_nan() for name in values if name in rows]
    marked = rows.with_columns(pl.any_horizontal(lack).alias("without value")) if lack else rows
    return marked if lack and marked["without value"].any() else rows


def _name(source: str, what: str) -> str:
    return page_line(f"{source} · {what}")
