"""Methods that measure each model by itself, as questions: the order by their first measure."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from orchestrator.report.phrases import Name, Part, Phrase, Quote, names, phrase
from orchestrator.report.questions import Question, Standing, State
from orchestrator.tables import Cell, Column, Measured, Table, cell_text

_MODEL = "model"
_JUDGE = "judge"


class _Row(NamedTuple):
    model: str
    cell: Measured


def of_tables(tables: Sequence[Table]) -> list[Question]:
    """One question for each method, and judge, whose table has a measure with intervals by model.

    Args:
        tables: Of summaries and analyses, the most important one of each source first.
    """
    found: list[Question] = []
    done: set[str] = set()
    for table in tables:
        if table.source in done:
            continue
        questions = list(_questions(table))
        if questions:
            done.add(table.source)
        found += questions
    return sorted(found, key=lambda one: one.state == "withheld")


def _questions(table: Table) -> Iterator[Question]:
    if not table.rows or table.columns[0].name != _MODEL:
        return
    place = next((i for i in range(1, len(table.columns)) if _has_intervals(table, i)), None)
    if place is None:
        return
    judged = table.columns[1].name == _JUDGE
    by_judge: dict[str, list[tuple[Cell, ...]]] = {}
    for row in table.rows:
        by_judge.setdefault(str(row[1]) if judged else table.judge, []).append(row)
    for judge, rows in by_judge.items():
        known = [
            _Row(str(row[0]), cell) for row in rows if isinstance(cell := row[place], Measured)
        ]
        # Several rows a model are about several measures.
        if len(known) == len(rows) == len({row.model for row in known}) > 1:
            yield _question(table, table.columns[place], judge, known)


def _has_intervals(table: Table, place: int) -> bool:
    cells = [row[place] for row in table.rows]
    return any(isinstance(cell, Measured) and cell.low is not None for cell in cells)


def _question(table: Table, column: Column, judge: str, rows: Sequence[_Row]) -> Question:
    order = sorted(rows, key=lambda row: (row.cell.value is None, -(row.cell.value or 0.0)))
    pairs = list(combinations([row for row in order if row.cell.value is not None], 2))
    apart = [(a, b) for a, b in pairs if _is_apart(a.cell, b.cell)]
    state, answer = _answer(column, order, {(a.model, b.model) for a, b in apart})
    said = _apart(len(apart), len(pairs))
    if table.warning:
        state, said = "withheld", Phrase()
        answer = phrase("No order of the models: the judge cannot be trusted.")
    by: list[Part] = [", judged by ", Name(judge)] if judge else []
    return Question(
        source=table.source,
        subject=phrase(Name(table.source), by),
        state=state,
        answer=answer,
        detail=table.warning,
        measure=column.name,
        standings=tuple(_standing(column, row) for row in order),
        apart=said,
        basis=table.basis,
        judge=judge or None,
        is_percent=column.form == "percent",
        n_pairs=len(pairs),
        n_apart=0 if table.warning else len(apart),
    )


def _answer(
    column: Column, order: Sequence[_Row], apart: set[tuple[str, str]]
) -> tuple[State, Phrase]:
    measure = Quote(column.name)
    known = [row for row in order if row.cell.value is not None]
    if not known:
        return "empty", phrase("No ", measure, ": it is undefined for every model.")
    first = known[0]
    shown = cell_text(column, _without_n(first.cell))
    start: list[Part] = ["Highest ", measure, ": ", Name(first.model), " ", Quote(shown)]
    first_ones = [row.model for row in known if row.cell.value == first.cell.value]
    if len(first_ones) == len(known) > 1:
        return "open", phrase("No winner: every model has ", measure, " ", Quote(shown), ".")
    if len(first_ones) > 1:
        start = ["Highest ", measure, ": ", *names(first_ones), ", each ", Quote(shown)]
    close = [
        row.model
        for row in known
        if row.model not in first_ones and (first.model, row.model) not in apart
    ]
    if len(known) == 1:
        return "open", phrase(start, ".")
    if not close:
        second = known[len(first_ones)]
        then = cell_text(column, _without_n(second.cell))
        state: State = "answered" if len(first_ones) == 1 else "tied"
        return state, phrase(start, ", then ", Name(second.model), " ", Quote(then), ".")
    return "open" if len(close) == len(known) - 1 and not apart else "tied", phrase(
        start, "; not clearly above ", names(close), "."
    )


def _apart(n_apart: int, n_pairs: int) -> Phrase:
    """Say how many intervals do not overlap: such pairs differ, others may or may not."""
    if not n_pairs:
        return Phrase()
    which = (
        "the two intervals" if n_pairs == 1 else f"the intervals of {n_apart} of {n_pairs} pairs"
    )
    do = "do not overlap" if n_apart or n_pairs > 1 else "overlap"
    tested = (
        ""
        if n_apart == n_pairs
        else " `orchestrator compare` tests differences on the same prompts."
    )
    return phrase(
        f"{which[:1].upper()}{which[1:]} {do} (not adjusted for multiple comparisons).{tested}"
    )


def _is_apart(high: Measured, low: Measured) -> bool:
    """Whether the interval of the higher value ends above that of the lower one.

    Then the difference is significant at the intervals' level however the two depend on each
    other, since its standard error is at most the sum of theirs.
    """
    return high.low is not None and low.high is not None and high.low > low.high


def _standing(column: Column, row: _Row) -> Standing:
    cell = row.cell
    value = cell.value if cell.value is not None and math.isfinite(cell.value) else None
    text = cell_text(column, Measured(cell.value, why=""))
    whole = cell_text(column, _without_n(cell))
    return Standing(
        model=row.model,
        value=value,
        low=_finite(cell.low),
        high=_finite(cell.high),
        low_open=cell.low is not None and math.isinf(cell.low),
        high_open=cell.high is not None and math.isinf(cell.high),
        shown=text,
        bounds=whole.removeprefix(text).strip() if cell.low is not None else cell.why,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _without_n(cell: Measured) -> Measured:
    return Measured(cell.value, cell.low, cell.high, why=cell.why)
