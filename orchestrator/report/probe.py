"""What a probe found, for the terminal: one table of findings, one of methods, for each model."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.probing.record import BAD, GOOD, UNKNOWN, WARNING, Finding
from orchestrator.probing.verdicts import BOUNDED, EXACT, IMPOSSIBLE, NOT_KNOWN, Verdict
from orchestrator.report import page
from orchestrator.report.text import safe_line

_STYLES: Final = {
    GOOD: page.GOOD,
    WARNING: page.DOUBTFUL,
    BAD: page.BAD,
    UNKNOWN: page.FAINT,
    EXACT: page.GOOD,
    BOUNDED: page.DOUBTFUL,
    NOT_KNOWN: page.FAINT,
    IMPOSSIBLE: page.BAD,
}


def probe_tables(
    title: str, findings: Sequence[Finding], verdicts: Sequence[Verdict]
) -> RenderableType:
    """Both tables of one model.

    Args:
        title: Model and server.
        findings: What the server does.
        verdicts: What methods can do with it.
    """
    return Group(*_parts(title, findings, verdicts))


def _parts(
    title: str, findings: Sequence[Finding], verdicts: Sequence[Verdict]
) -> Iterator[RenderableType]:
    yield Text(safe_line(title), page.HEADING)
    found = _table("question", "answer", "what was seen")
    for one in findings:
        found.add_row(*_row(one.name.replace("_", " "), one.value, one.state, one.said, one.remedy))
    yield found
    yield Text("")
    can = _table("method", "numbers", "why")
    for judged in verdicts:
        why = judged.why if judged.verdict != EXACT else ""
        can.add_row(*_row(judged.method, judged.verdict, judged.verdict, why, judged.remedy))
    yield can
    yield Text("")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style=page.FAINT)
    for name in columns[:-1]:
        table.add_column(name, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    return table


def _row(name: str, value: str, state: str, said: str, remedy: str) -> tuple[Text, Text, Text]:
    text = Text(safe_line(said))
    if remedy:
        text.append(f"\n→ {safe_line(remedy)}", page.FAINT)
    return Text(safe_line(name)), Text(safe_line(value), _STYLES[state]), text
