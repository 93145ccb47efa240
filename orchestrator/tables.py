"""Tables of plain values from methods and analyses, drawn by `orchestrator.report`.

A cell says what it rests on (`Measured`), and one without a value says why there is none.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

from orchestrator import numbers
from orchestrator.columns import score_words
from orchestrator.statistics.results import APPROXIMATE_BELOW, Estimate, Interval

_LEAST_P: Final = 0.001

GROUP: Final = " · "
"""Between the name of a group of columns and that of a column, in its heading."""

Form = Literal[
    "text", "score", "count", "number", "signed", "percent", "probability", "rating", "p"
]  # fmt: skip


class Measured(msgspec.Struct, frozen=True):
    """A number with its interval.

    Attributes:
        value: None where it is undefined; infinite where the data do not bound it.
        low: Lower end of the interval; None without one, -inf where it is open.
        high: Upper end, likewise.
        n: What it rests on, mostly prompts; None where that is the same for a whole table.
        why: Why there is no value or no interval, or why the interval may not hold; else empty.
        n_clusters: Clusters of prompts that depend on each other; None where each stands alone, or
            where that is the same for a whole table.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    why: str = ""
    n_clusters: int | None = None


DOUBT: Final = "!"
"""Mark of an interval that may not hold, behind it."""

Cell = str | int | float | Measured | None


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    Attributes:
        name: Its heading, in the field's terms.
        form: How cells are written: as they are ("text"), names of scores in words ("score"), or
            numbers; shares are held as numbers in [0, 1].
        digits: Decimals of "number" and "signed".
    """

    name: str
    form: Form = "text"
    digits: int = 3

    @property
    def is_text(self) -> bool:
        """True if no cell is a number."""
        return self.form in ("text", "score")


def table_columns(*rows: str) -> tuple[Column, ...]:
    """Columns as a header has them: `"model | answers: count | Pearson: signed 2"`, row by row.

    Behind the last colon of a heading stand its form and decimals; without a form it is text.
    """
    found = []
    for spelt in (one for row in rows for one in row.split(" | ")):
        heading, _, form = spelt.rpartition(": ")
        kind, _, digits = form.partition(" ")
        if heading and kind in get_args(Form):
            of_form = {"digits": int(digits)} if digits else {}
            found.append(Column(heading, kind, **of_form))  # type: ignore[arg-type]
        else:
            found.append(Column(spelt))
    return tuple(found)


class ModelPair(msgspec.Struct, frozen=True):
    """Two models and the paired difference of their means.

    Attributes:
        higher: Name of the model with the higher mean on the points of both.
        lower: Name of the other.
        difference: Higher minus lower, with an interval at the level at which it excludes 0 exactly
            where the two can be told apart among all pairs.
        p_value: Two-sided, of no difference; None where there is none.
        adjusted_p: The same after Holm's adjustment over all pairs of the comparison.
        resolvable: Whether the adjusted p-value is at most one minus the confidence level.
        level: Of the interval; None without a test.
    """

    higher: str
    lower: str
    difference: Measured
    p_value: float | None
    adjusted_p: float | None
    resolvable: bool
    level: float | None = None


class Comparison(msgspec.Struct, frozen=True):
    """All pairs of models, compared by the first measure of a table.

    Attributes:
        judge: Name; empty where the table has no column of judges.
        confidence_level: Of all resolvable pairs together.
        pairs: Every two models.
    """

    judge: str
    confidence_level: float
    pairs: tuple[ModelPair, ...]


class Curves(msgspec.Struct, frozen=True):
    """Columns of a table that pages draw as curves.

    Attributes:
        x: Heading of the column of the horizontal axis, of numbers.
        y: Headings of the columns over it: a curve each, in the same unit.
        title: Of the vertical axis.
        each: Heading of the column whose every value has curves of its own; empty for none.
    """

    x: str
    y: tuple[str, ...]
    title: str
    each: str = ""


class Table(msgspec.Struct, frozen=True):
    """One table of a report.

    Attributes:
        key: Stable name for programs, e.g. "probdiff.confidence"; tables of one key have the same
            columns.
        title: In words.
        columns: Its columns.
        rows: One tuple a row, as long as `columns`.
        basis: What all of it rests on: "150 prompts · 2 missing".
        notes: What a reader must know, a sentence each.
        source: Name of the part of the recipe that it is about, where there could be several.
        judge: Whose judgments alone it is about, where that is one of several; else empty.
        warning: Why its numbers are not to be trusted; empty where they are.
        comparisons: Models by its first measure with intervals, a comparison for each judge.
        curves: Those of its columns that pages draw; None where none are.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    basis: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""
    judge: str = ""
    warning: str = ""
    comparisons: tuple[Comparison, ...] = ()
    curves: Curves | None = None


def make_table(  # noqa: PLR0913 (the fields of a table, by keyword)
    key: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    basis: str = "",
    notes: Sequence[str] = (),
    judge: str = "",
    comparisons: Sequence[Comparison] = (),
    curves: Curves | None = None,
) -> Table:
    """A table, checked.

    Raises:
        ValueError: If a row is not as long as there are columns.
    """
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"{key}: a row of {len(row)} cells under {len(columns)} columns")
    cells = [cell for row in rows for cell in row if isinstance(cell, Measured)]
    # Where the value stands, its cell has no room for why there is no interval.
    bare = dict.fromkeys(x.why for x in cells if x.value is not None and x.low is None and x.why)
    return Table(
        key,
        title,
        tuple(columns),
        tuple(map(tuple, rows)),
        basis,
        (*notes, *(f"{DOUBT} {why}" for why in doubts(cells)), *bare),
        judge=judge,
        comparisons=tuple(comparisons),
        curves=curves,
    )


def doubts(cells: Iterable[Cell]) -> list[str]:
    """Return why intervals of cells may not hold, each reason once."""
    found = (cell for cell in cells if isinstance(cell, Measured) and cell.low is not None)
    return list(dict.fromkeys(cell.why for cell in found if cell.why))


def measured(estimate: Estimate, *, with_n: bool = False) -> Measured:
    """A statistic as a cell; `with_n` where what it rests on is not the same for a whole table."""
    value = None if math.isnan(estimate.value) else float(estimate.value)
    n = int(estimate.n) if with_n else None
    return with_interval(value, estimate.interval, n, estimate.undefined)


def number_of(cell: Cell) -> float | None:
    """The number of a cell; None where there is none."""
    value = cell.value if isinstance(cell, Measured) else cell
    if value is None or isinstance(value, str) or math.isnan(value):
        return None
    return float(value)


def untrusted(table: Table, warnings: Mapping[str, str]) -> Table:
    """A table with the warnings about the judges that it rests on.

    Args:
        table: Of one judge, or of all.
        warnings: By judge, and "" for all together; empty where they can be trusted.
    """
    warning = warnings.get(table.judge)
    return msgspec.structs.replace(table, warning=warning) if warning else table


def by_cluster(table: Table, n_clusters: int) -> Table:
    """A table whose numbers are over clusters of prompts, saying so where it has any interval.

    Args:
        table: As it would be of prompts that stand alone.
        n_clusters: Clusters of the run's items.
    """
    cells = [cell for row in table.rows for cell in row if isinstance(cell, Measured)]
    if not any(cell.low is not None for cell in cells):
        return table
    # What a statistic took for independent is called by its name.
    rows = tuple(
        tuple(
            msgspec.structs.replace(cell, n=None, n_clusters=cell.n)
            if isinstance(cell, Measured) and cell.n is not None and cell.n_clusters is None
            else cell
            for cell in row
        )
        for row in table.rows
    )
    words = (
        "prompts that belong together (the dataset's field `cluster`) count as one: intervals and "
        f"tests over prompts are over clusters of prompts, {n_clusters:,} in all"
    )
    if n_clusters < APPROXIMATE_BELOW:
        words += f"; they are approximate with fewer than {APPROXIMATE_BELOW}"
    return msgspec.structs.replace(table, rows=rows, notes=(*table.notes, words))


def with_interval(
    value: float | None,
    interval: Interval | str | None,
    n: int | None = None,
    why: str | None = None,
) -> Measured:
    """A value and its interval as a cell; why one of them is missing by `why`, or in its place."""
    if interval is None or isinstance(interval, str):
        return Measured(value, n=n, why=why or interval or "")
    return Measured(value, float(interval.low), float(interval.high), n, why or interval.doubt)


def as_chance(log_odds: float, interval: Interval | None) -> Measured:
    """Return log-odds and their interval as a probability, with 0.5 for no effect."""

    def probability(odds: float) -> float:
        return 0.5 + 0.5 * math.tanh(0.5 * odds)

    if interval is None:
        return Measured(probability(log_odds), why="no interval from fewer than two prompts")
    return Measured(probability(log_odds), probability(interval.low), probability(interval.high))


def counted_words(n_items: int, n_clusters: int | None) -> str:
    """Counts in words; clusters are named where they are fewer than the prompts."""
    words = f"{n_items:,} prompt{'' if n_items == 1 else 's'}"
    if n_clusters is None or n_clusters == n_items:
        return words
    return f"{words} in {n_clusters:,} cluster{'' if n_clusters == 1 else 's'}"


class Parts(msgspec.Struct, frozen=True):
    """A cell as text, in parts that may stand in columns of their own.

    Attributes:
        value: In the form of the column; `numbers.UNDEFINED` where there is none.
        interval: With its brackets; empty without one.
        n: Sample size, such as `n=20`; empty where it is the same for a whole table.
        why: Why there is no value; empty where there is one.
    """

    value: str
    interval: str = ""
    n: str = ""
    why: str = ""


def cell_text(column: Column, cell: Cell) -> str:
    """A cell in its column's form, with its interval where it has one."""
    parts = cell_parts(column, cell)
    if parts.why:
        return f"{parts.value} ({parts.why})"
    return " ".join(part for part in (parts.value, parts.interval, parts.n) if part)


def cell_parts(column: Column, cell: Cell) -> Parts:
    """Return a cell in its column's form, its interval and its sample size apart."""
    if isinstance(cell, str):
        return Parts(score_words(cell) if column.form == "score" else cell)
    if isinstance(cell, Measured):
        if cell.value is None:
            return Parts(numbers.UNDEFINED, why=cell.why)
        interval = ""
        if cell.low is not None and cell.high is not None:
            low = "(open" if math.isinf(cell.low) else f"[{_end(column, cell.low)}"
            high = "open)" if math.isinf(cell.high) else f"{_end(column, cell.high)}]"
            interval = f"{low}, {high}{DOUBT if cell.why else ''}"
        # Prompts, clusters of prompts, or both.
        n = "" if cell.n is None else f"n={numbers.count(cell.n)}"
        if cell.n_clusters is not None:
            clusters = numbers.counted(cell.n_clusters, "cluster")
            is_count = cell.n is None and cell.low is None
            n = f"{n} in {clusters}".strip() if n or is_count else f"n={clusters}"
        return Parts(_form(column)(cell.value), interval, n)
    return Parts(numbers.UNDEFINED if cell is None else _form(column)(float(cell)))


def _end(column: Column, value: float) -> str:
    # The unit is said once, at the value.
    return f"{100 * value:.1f}" if column.form == "percent" else _form(column)(value)


def _form(column: Column) -> Callable[[float], str]:
    def number(value: float, sign: str = "") -> str:
        return f"{round(value, column.digits) + 0.0:{sign}.{column.digits}f}"

    written: dict[str, Callable[[float], str]] = {
        "count": lambda value: numbers.count(round(value)),
        "percent": numbers.percent,
        "probability": numbers.probability,
        "rating": numbers.rating,
        "signed": lambda value: number(value, "+"),
        "p": lambda value: f"< {_LEAST_P}" if value < _LEAST_P else f"{value:.3f}",
    }
    chosen = written.get(column.form, number)

    def finite(value: float) -> str:
        if math.isnan(value):
            return numbers.UNDEFINED
        if math.isinf(value):
            return "unbounded"
        return chosen(value)

    return finite
