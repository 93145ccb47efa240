"""Measures of models, and of scores by gold, as questions: the order by the first measure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from orchestrator import numbers
from orchestrator.columns import score_words
from orchestrator.report.questions import Check, Question, Standing, State, no_order_yet, of_judge
from orchestrator.report.words import Name, Part, Phrase, Quote, names, pairs_apart, phrase
from orchestrator.statistics.ranking import Pair
from orchestrator.statistics.results import APPROXIMATE_BELOW, MISSED
from orchestrator.statistics.trust import Trust, Trusts, not_known_yet
from orchestrator.tables import Cell, Column, Comparison, Measured, Table, cell_text, doubts

BETTER = "better"
"""Heading of the column that says which values of a score mean better answers."""
LOWER = ("lower", "-")
_EXPECTED = "expected"
_MODEL = "model"
_JUDGE = "judge"

_Cells = Mapping[str, Measured]
"""The measure of each model, or score."""


def questions(
    tables: Sequence[Table], trust: Trusts, confidence_level: float | None = None
) -> list[Question]:
    """One question for each method, and judge, whose table has a measure with intervals.

    That is a row for each model, or for each score with the sign that is expected of it.

    Args:
        tables: Of summaries and analyses, the most important one of each source first.
        trust: Verdicts on the judges of each method, by its name.
        confidence_level: Of the intervals; None where that is not known.
    """
    found: list[Question] = []
    done: set[str] = set()
    level = "" if confidence_level is None else f"{numbers.level(confidence_level)} interval"
    for table in tables:
        if table.source not in done:
            of_table = [*_questions(table, trust.get(table.source, ()), level)]
            done |= {one.source for one in of_table}
            found += of_table
    return sorted(found, key=lambda one: one.state == "withheld")


def _questions(table: Table, trust: Sequence[Trust], level: str) -> Iterator[Question]:
    if not table.rows:
        return
    is_of_scores = [one.name for one in table.columns[1:2]] == [_EXPECTED]
    if table.columns[0].name != _MODEL and not is_of_scores:
        return
    bounded = {
        place
        for row in table.rows
        for place, cell in enumerate(row)
        if place and isinstance(cell, Measured) and cell.low is not None
    }
    if not bounded:
        return
    place = min(bounded)
    if is_of_scores:
        table = _oriented(table, place)
    judged = table.columns[1].name == _JUDGE
    by_judge: dict[str, list[tuple[Cell, ...]]] = {}
    for row in table.rows:
        by_judge.setdefault(str(row[1]) if judged else table.judge, []).append(row)
    for judge, rows in by_judge.items():
        known = {str(row[0]): cell for row in rows if isinstance(cell := row[place], Measured)}
        # Several rows a model are about several measures.
        if len(known) == len(rows):
            # Where rows name no judge, the method has one.
            mine = trust if len(trust) == 1 else [one for one in trust if one.judge == judge]
            yield _question(table, table.columns[place], judge, known, mine, level)


def _oriented(table: Table, place: int) -> Table:
    """Scores in words, their measure negated where it should be negative, without its method."""
    of_methods = [str(row[0]).rpartition(".")[0] for row in table.rows]
    shared = f"{of_methods[0]}." if len(set(of_methods)) == 1 else ""
    rows = []
    for row in map(list, table.rows):
        row[0] = score_words(str(row[0]).removeprefix(shared))
        cell = row[place]
        if row[1] in LOWER and isinstance(cell, Measured) and cell.value is not None:
            ends = {"low": cell.high, "high": cell.low}
            ends = {end: None if x is None else -x for end, x in ends.items()}
            row[place] = msgspec.structs.replace(cell, value=-cell.value, **ends)
        rows.append(tuple(row))
    turned = ["positive as expected"] if any(row[1] in LOWER for row in rows) else []
    basis = "; ".join(filter(None, [table.title, *turned, table.basis]))
    return msgspec.structs.replace(table, rows=tuple(rows), basis=basis)


def _checks(cells: Sequence[Measured]) -> Iterator[Check]:
    """Yield that intervals rest on few prompts, or clusters of them, or on too skewed values."""
    sizes = [cell.n if cell.n_clusters is None else cell.n_clusters for cell in cells]
    least = min((n for n in sizes if n is not None), default=APPROXIMATE_BELOW)
    if least < APPROXIMATE_BELOW:
        text = f"intervals are approximate: fewer than {APPROXIMATE_BELOW} prompts; {MISSED}."
        yield Check("sample", phrase(text), is_doubtful=True)
    for why in doubts(cells):
        yield Check("values", phrase(why, "."), is_doubtful=True)


_Pairs = tuple[int, frozenset[tuple[str, str]], Phrase]
"""How many pairs of models there are, those that can be told apart as (higher, lower), and that in
a sentence."""


def _pairs(cells: _Cells, compared: Comparison | None, sign: int) -> _Pairs:
    """Return the pairs by their paired differences; by their intervals where there are none."""
    if compared is None:
        return _by_intervals(cells, sign)
    tested = [
        Pair(better, worse, None, None, None, one.p_value, one.adjusted_p, one.resolvable)
        for one in compared.pairs
        for better, worse in [(one.higher, one.lower)[::sign]]
    ]
    says = pairs_apart(tested, compared.confidence_level)
    if len(tested) > 1:
        says = phrase(says, " Pairs are compared on the same prompts, Holm-adjusted.")
    elif tested:
        says = phrase(says, " They are compared on the same prompts.")
    apart = frozenset((one.better, one.worse) for one in tested if one.resolvable)
    return len(tested), apart, says


def _by_intervals(cells: _Cells, sign: int) -> _Pairs:
    """Take models for different where the interval of the higher value ends above the other's.

    Then the difference is significant at the intervals' level however the two depend on each
    other, since its standard error is at most the sum of theirs. Others may differ or not.
    """
    order = [model for model in _ordered(cells, sign) if cells[model].value is not None]
    pairs = list(combinations(order, 2))
    apart = frozenset(
        (a, b)
        for a, b in pairs
        for high, low in [(cells[a], cells[b])[::sign]]
        if high.low is not None and low.high is not None and high.low > low.high
    )
    n, n_apart = len(pairs), len(apart)
    if not n:
        return n, apart, Phrase()
    which = "The two intervals" if n == 1 else f"The intervals of {n_apart} of {n} pairs"
    do = "overlap" if n == 1 and not n_apart else "do not overlap"
    more = " `orchestrator compare` tests differences on the same prompts." if n_apart < n else ""
    return n, apart, phrase(f"{which} {do} (not adjusted for multiple comparisons).{more}")


def _ordered(cells: _Cells, sign: int) -> list[str]:
    """Sort models by their values, the better first and undefined ones last."""
    return sorted(
        cells, key=lambda one: (cells[one].value is None, -sign * (cells[one].value or 0))
    )


def _question(
    table: Table, column: Column, judge: str, cells: _Cells, trusts: Sequence[Trust], level: str
) -> Question:
    """The question; without an answer as long as trust in a judge is open, or where it is gone."""
    better = [
        row[i] for row in table.rows for i, one in enumerate(table.columns) if one.name == BETTER
    ]
    sign = -1 if better and all(one in LOWER for one in better) else 1
    over, second = (one.name for one in table.columns[:2])
    order = _ordered(cells, sign)
    compared = {one.judge: one for one in table.comparisons}
    tested = compared.get(judge if second == _JUDGE else "")
    n_pairs, apart, says = _pairs(cells, tested, sign)
    if second == _EXPECTED:
        # Scores of the same answers are told apart by a table of their own.
        n_pairs, says = 0, Phrase()
    state, answer = _answer(over, column, order, cells, apart, sign)
    detail = table.warning.removeprefix("No ranking: ")
    if table.warning:
        state, answer = "withheld", phrase("No order of the models: the judge cannot be trusted.")
    elif detail := not_known_yet(trusts):
        state, answer = "open", no_order_yet(trusts)
    by: list[Part] = [", judged by ", Name(judge)] if judge else []
    differences = () if tested is None else (pair.difference for pair in tested.pairs)
    return Question(
        source=table.source,
        over=over,
        subject=phrase(Name(table.source), by),
        state=state,
        answer=answer,
        detail=detail,
        measure=column.name,
        interval=level or "interval",
        standings=tuple(_standing(column, model, cells[model]) for model in order),
        apart=Phrase() if detail else says,
        basis="; ".join(filter(None, [table.basis, level and f"{level}s"])),
        checks=(
            *(check for one in trusts for check in of_judge(one)),
            *_checks([*cells.values(), *differences]),
        ),
        judge=judge or None,
        is_percent=column.form == "percent",
        n_pairs=n_pairs,
        n_apart=0 if detail else len(apart),
    )


def _answer(
    over: str,
    column: Column,
    order: Sequence[str],
    cells: _Cells,
    apart: frozenset[tuple[str, str]],
    sign: int,
) -> tuple[State, Phrase]:
    most, beyond = ("Highest ", "above") if sign > 0 else ("Lowest ", "below")
    measure = Quote(column.name)
    known = [model for model in order if cells[model].value is not None]
    if not known:
        return "empty", phrase("No ", measure, f": it is undefined for every {over}.")
    first = known[0]
    # What is doubted of a value stands beside the sentence.
    said = {of: cell_text(column, Measured(x.value, x.low, x.high)) for of, x in cells.items()}
    shown = said[first]
    start: list[Part] = [most, measure, ": ", Name(first), " ", Quote(shown)]
    first_ones = [model for model in known if cells[model].value == cells[first].value]
    if len(first_ones) == len(known) > 1:
        return "open", phrase(f"No winner: every {over} has ", measure, " ", Quote(shown), ".")
    if len(first_ones) > 1:
        start = [most, measure, ": ", *names(first_ones), ", each ", Quote(shown)]
    close = [one for one in known if one not in first_ones and (first, one) not in apart]
    if len(order) == 1:
        return "open", phrase(Name(first), ": ", measure, " ", Quote(shown), ".")
    if len(known) == 1:
        return "open", phrase(start, ".")
    if not close:
        second = known[len(first_ones)]
        state: State = "answered" if len(first_ones) == 1 else "tied"
        return state, phrase(start, ", then ", Name(second), " ", Quote(said[second]), ".")
    return "open" if len(close) == len(known) - 1 and not apart else "tied", phrase(
        start, f"; not clearly {beyond} ", names(close), "."
    )


def _standing(column: Column, model: str, cell: Measured) -> Standing:
    text = cell_text(column, Measured(cell.value, why=""))
    whole = cell_text(column, msgspec.structs.replace(cell, n=None, n_clusters=None))
    return Standing(
        model=model,
        value=numbers.finite(cell.value),
        low=numbers.finite(cell.low),
        high=numbers.finite(cell.high),
        low_open=cell.low is not None and math.isinf(cell.low),
        high_open=cell.high is not None and math.isinf(cell.high),
        shown=text,
        bounds=whole.removeprefix(text).strip() if cell.low is not None else cell.why,
    )
