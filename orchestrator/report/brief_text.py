"""A run in brief for a terminal: one screen, also with many models and methods."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from orchestrator import numbers
from orchestrator.report.brief import Brief
from orchestrator.report.gate import GateResult, gate_text
from orchestrator.report.generic import generic_table
from orchestrator.report.page import (
    ACCENT,
    BAD,
    DOUBTFUL,
    FAINT,
    GOOD,
    HEADING,
    Column,
    Page,
    paged,
)
from orchestrator.report.picture import make_axis
from orchestrator.report.questions import Check, Question, Standing
from orchestrator.report.words import Name, Phrase, phrase
from orchestrator.tables import Table

# Lines of a screen where the output is no terminal, and the fewest that are counted on.
_SCREEN: Final = 38
_LEAST_SCREEN: Final = 12
# Of a verdict on a terminal, beside those of its requirements.
_LINES_OF_GATE: Final = 5
_MAX_NAME: Final = 32
_MAX_ROWS: Final = 12
_MIN_NAME: Final = 12
_MIN_PICTURE: Final = 14
_MAX_PICTURE: Final = 44
_GAP: Final = 2
_STYLES: Final = {"answered": f"{HEADING} {GOOD}", "withheld": f"{HEADING} {BAD}"}


class _Limits(NamedTuple):
    """The most that one layout of the screen shows of each part, and how it is shown.

    Attributes:
        models: Rows of the first question.
        questions: Further questions.
        checks: Reasons for trust and doubt.
        cautions: What not to conclude.
        pairs: Name the pairs of models that can be told apart.
        tables: Of methods that are no question.
        spelt: Give each check a line, and not only those that speak against the result.
        terse: Leave out what the checks say too, and all but the first line on where the rest is.
    """

    models: int
    questions: int
    checks: int
    cautions: int
    pairs: bool = False
    tables: int = 0
    spelt: bool = True
    terse: bool = False


_FULL: Final = _Limits(models=12, questions=8, checks=12, cautions=4, pairs=True)
_MIDDLE: Final = _Limits(models=10, questions=6, checks=8, cautions=3, pairs=True)
_SHORT: Final = _Limits(models=10, questions=4, checks=6, cautions=2)
_TERSE: Final = _SHORT._replace(spelt=False, terse=True)
_ALL: Final = _Limits(10**9, 10**9, 10**9, 10**9, pairs=True)

# From the longest to the shortest; the first that fits is shown. Given up are first tables of
# methods, then names of pairs, lines of checks that passed, what is said twice; at last of all.
_LAYOUTS: Final = (
    *(_FULL._replace(tables=n) for n in (4, 2, 1)),
    _MIDDLE._replace(tables=1),
    *(_FULL, _MIDDLE, _SHORT),
    *(one._replace(spelt=False) for one in (_FULL, _SHORT)),
    _TERSE._replace(cautions=1),
    *(
        _TERSE._replace(models=models, questions=questions, checks=checks, cautions=0)
        for models, questions, checks in ((8, 3, 4), (6, 2, 3), (5, 1, 2), (4, 1, 1), (3, 0, 1))
    ),
    _TERSE._replace(models=3, questions=0, checks=0, cautions=0),
)


@paged
def brief_text(
    page: Page,
    brief: Brief,
    more: Sequence[str] | None = (),
    gate: GateResult | None = None,
    *,
    taken: int = 0,
) -> Iterator[RenderableType]:
    """The first screen of a run, and the verdict on its gates where there is one.

    Args:
        page: Where it is laid out.
        brief: The run in brief.
        more: Where the rest is, in words; None shows every model, question and check, however many
            lines that takes, and no tables.
        gate: Verdict on the gates of the recipe.
        taken: Lines of the terminal that are written above and below.
    """
    if more is None:
        yield from _parts(page, brief, (), _ALL, ())
    else:
        taken += 0 if gate is None else _LINES_OF_GATE + 2 * len(gate.requirements)
        yield from _fitting(page, brief, more, taken)
    if gate is not None:
        yield from (Text(""), gate_text(gate))


def _fitting(page: Page, brief: Brief, more: Sequence[str], taken: int) -> Iterable[RenderableType]:
    """The longest layout that the screen has room for."""
    # The next prompt takes a line.
    screen = _SCREEN if page.height is None else max(_LEAST_SCREEN, page.height - 1 - taken)
    console = Console(width=page.width, color_system=None, legacy_windows=False)
    laid_out = (list(_parts(page, brief, more, limits, brief.tables, taken)) for limits in _LAYOUTS)
    fitting = (parts for parts in laid_out if len(console.render_lines(Group(*parts))) <= screen)
    return next(fitting, _parts(page, brief, more, _LAYOUTS[-1], brief.tables, taken))


def _parts(
    page: Page,
    brief: Brief,
    more: Sequence[str],
    limits: _Limits,
    tables: Sequence[Table],
    taken: int = 0,
) -> Iterator[RenderableType]:
    shown = _Shown(
        page, page.names(brief.names, min(_MAX_NAME, max(_MIN_NAME, page.width // 3)), 2)
    )
    if brief.incomplete:
        yield page.words(brief.incomplete, f"{HEADING} {DOUBTFUL}")
    if brief.questions:
        yield from shown.first(brief.questions[0], limits)
    elif brief.silence and not tables:
        yield page.words(brief.silence)
    yield from shown.others(brief.questions[1:], limits.questions)
    few = tables[: limits.tables if brief.questions else max(1, limits.tables)]
    for place, table in enumerate(few):
        if place or brief.questions or brief.incomplete:
            yield Text("")
        left = len(table.rows) - _MAX_ROWS
        notes = ((f"{numbers.counted(left, 'more row')}",) if left > 0 else ()) + table.notes[:1]
        first = msgspec.structs.replace(table, rows=table.rows[:_MAX_ROWS], notes=notes)
        yield generic_table(first)
    yield from shown.trust(brief, limits, is_apart=bool(few))
    # At its shortest, only an answer that is withheld says what to try.
    is_withheld = any(one.state == "withheld" for one in brief.questions[:1])
    steps = brief.next_steps[: limits.cautions or int(is_withheld or not limits.terse)]
    cautions = brief.cautions[: limits.cautions]
    start = "" if limits.terse else "What to do next"
    for heading, said in ((start, steps), ("What not to conclude", cautions)):
        if said and heading:
            yield Text("")
            yield page.heading(heading)
        yield from (page.bullet(shown.phrase(one)) for one in said)
    yield Text("")
    # The summary of a call has just said it.
    is_said = limits.terse and taken > 0
    if brief.cost is not None and not is_said and (words := brief.cost.words()):
        yield from page.flow([page.words("Cost", HEADING), *words])
    if len(few) < len(tables):
        titles = ", ".join(table.title for table in tables[len(few) :])
        yield page.prose(f"Also in this run: {titles}", FAINT)
    for line in more[:1] if limits.terse else more:
        yield from page.flow([page.data(part, None, FAINT) for part in line.split(" · ")])


class _Shown:
    """Parts of the screen, with the names as they fit there."""

    def __init__(self, page: Page, names: Mapping[str, str]) -> None:
        self._page = page
        self._names = names

    def phrase(self, said: Phrase, style: str = "") -> Text:
        """A sentence, its names cut."""
        found = Text(style=style, overflow="fold")
        for part in said.parts:
            if isinstance(part, str):
                found.append_text(self._page.words(part))
            elif isinstance(part, Name):
                known = self._names.get(part.text)
                found.append(
                    known.replace("\n", " ")
                    if known
                    else self._page.name(part.text, _MAX_NAME).plain
                )
            else:
                found.append(self._page.data(part.text).plain)
        return found

    def first(self, question: Question, limits: _Limits) -> Iterator[RenderableType]:
        """The first question with its models."""
        page = self._page
        yield self.phrase(question.answer, _STYLES.get(question.state, f"{HEADING} {DOUBTFUL}"))
        is_said = limits.terse and any(check.is_doubtful for check in question.checks)
        if question.detail and not is_said:
            yield page.prose(question.detail, BAD if question.state == "withheld" else DOUBTFUL)
        basis = page.words(" · ") if question.basis else Text("")
        basis.append(page.data(question.basis).plain)
        about = Text.assemble(self.phrase(question.subject), basis, style=FAINT)
        yield self._cut(about, page.width) if limits.terse else about
        if question.standings and question.state not in ("withheld", "empty"):
            yield Text("")
            yield self._standings(question, limits.models)
        if question.apart and question.state != "withheld":
            n, n_pairs = question.n_apart, question.n_pairs
            counts = f"{numbers.count(n)} of {numbers.count(n_pairs)}"
            said = phrase(f"{counts} pairs of models can be told apart.")
            # Without their names where there is little room, if that says less
            is_short = not limits.pairs and 0 < n < n_pairs
            yield self.phrase(said if is_short else question.apart)

    def others(self, questions: Sequence[Question], most: int) -> Iterator[RenderableType]:
        """The further questions, of many the first ones."""
        if not questions:
            return
        yield Text("")
        yield self._page.heading("Other questions")
        for one in questions[:most]:
            mark = ": " if one.subject else ""
            answer = self.phrase(one.answer, BAD if one.state == "withheld" else "")
            yield self._page.bullet(Text.assemble(self.phrase(one.subject, FAINT), mark, answer))
        if len(questions) > most:
            left = numbers.counted(len(questions) - most, "more question")
            yield self._page.words(f"and {left}", FAINT)

    def trust(self, brief: Brief, limits: _Limits, *, is_apart: bool) -> Iterator[RenderableType]:
        """Reasons to trust the first answer and the run, and what speaks against the others.

        Args:
            brief: The run in brief.
            limits: Most checks, and how they are shown.
            is_apart: Whether an empty line stands above already.
        """
        checks = [*(brief.questions[0].checks if brief.questions else ()), *brief.checks]
        for other in brief.questions[1:]:
            # Beside the first question's own, they say which question they are about.
            about = phrase(other.subject, ": ") if other.subject else Phrase()
            checks += [
                msgspec.structs.replace(check, says=phrase(about, check.says))
                for check in other.checks
                if check.is_doubtful
            ]
        if not checks:
            return
        if not is_apart:
            yield Text("")
        yield self._page.heading("How far to trust it")
        yield from self.checks(checks, limits)

    def checks(self, checks: Sequence[Check], limits: _Limits) -> Iterator[RenderableType]:
        """The checks beside their subjects; where not all fit, doubtful ones first."""
        page = self._page
        shorts = () if limits.spelt else checks
        passed = [check for check in shorts if check.about and not check.is_doubtful]
        checks = [check for check in checks if check not in passed]
        first = sorted(range(len(checks)), key=lambda at: (not checks[at].is_doubtful, at))
        kept = [checks[at] for at in sorted(first[: limits.checks])]
        table = RichTable.grid(padding=(0, _GAP, 0, 0))
        for about, group in groupby(kept, key=lambda check: check.about):
            for place, check in enumerate(group):
                style = DOUBTFUL if check.is_doubtful else ""
                mark = page.cell("! " if check.is_doubtful else "  ", f"{HEADING} {DOUBTFUL}")
                label = Text.assemble(mark, page.cell("" if place else about, FAINT), no_wrap=True)
                said = self.phrase(check.says, style)
                beside = page.width - label.cell_len - _GAP
                table.add_row(
                    label, said if limits.spelt else self._cut(said, 2 * beside - beside // 5)
                )
        left = [check for check in checks if check not in kept]
        if left and not limits.spelt:
            label = page.cell("! doubtful", DOUBTFUL)
            table.add_row(label, page.words(_listed(left), DOUBTFUL))
        if passed:
            table.add_row(page.cell("  passed", FAINT), page.words(_listed(passed)))
        yield table
        if left and limits.spelt:
            yield page.words(f"  and {len(left)} more", FAINT)

    def _cut(self, text: Text, width: int) -> Text:
        """A text cut at its end, where it takes more columns."""
        text.truncate(width, overflow="crop" if self._page.ascii_only else "ellipsis")
        return text

    def _standings(self, question: Question, most: int) -> RenderableType:
        """The models with their numbers; of many the first and the last ones."""
        page, standings = self._page, question.standings
        names = {one.model: self._names[one.model] for one in standings}
        wide = max(
            (cell_len(line) for one in names.values() for line in one.split("\n")), default=0
        )
        ranks = max(len(one.rank) for one in standings)
        ranks = max(ranks, len("rank")) if ranks else 0
        measure = page.data(question.measure.partition(" (")[0]).plain
        values = max(cell_len(measure), *(len(one.shown) for one in standings))
        bounds = max(len(one.bounds) for one in standings)
        bounds = max(bounds, len(question.interval)) if bounds else 0
        used = sum(width + _GAP for width in (ranks, wide, values, bounds) if width)
        ends = [end for one in standings for end in (one.value, one.low, one.high)]
        room = min(page.width - used, _MAX_PICTURE)
        is_drawn = question.is_drawn and room >= _MIN_PICTURE
        axis = make_axis(ends, room, question.least_span) if is_drawn else None
        columns = [Column("rank")] if ranks else []
        columns += [Column(question.over, "left"), Column(measure)]
        columns += [Column(question.interval, "left")] if bounds else []
        if axis is not None:
            columns.append(Column(axis.labels(percent=question.is_percent), "left"))

        def row(one: Standing) -> list[RenderableType]:
            cells: list[RenderableType] = [page.cell(one.rank)] if ranks else []
            cells += [page.cell(names[one.model], HEADING), page.cell(one.shown)]
            cells += [page.data(one.bounds)] if bounds else []
            if axis is None:
                return cells
            styles = (ACCENT, f"{HEADING} {ACCENT}", ACCENT)
            drawn = map(page.cell, axis.draw(one), styles)
            return [*cells, Text.assemble(*drawn, no_wrap=True, overflow="crop")]

        if len(standings) <= most:
            return page.table(columns, map(row, standings))
        last = max(1, most // 4)
        first = most - last - 1
        left = len(standings) - first - last
        rows = [row(one) for one in standings[:first]]
        blank: list[RenderableType] = [page.cell("") for _ in columns]
        dots = page.cell(f"… {left} between", FAINT)
        rows.append([*blank[: 1 if ranks else 0], dots, *blank[2 if ranks else 1 :]])
        return page.table(columns, rows + [row(one) for one in standings[-last:]])


def _listed(checks: Sequence[Check]) -> str:
    return ", ".join(dict.fromkeys(check.about for check in checks))
