"""Tables for the terminal, as something that rich can print, laid out when it is printed."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.probing import record
from orchestrator.probing.abilities import BOUNDED, EXACT, IMPOSSIBLE, NOT_KNOWN, Verdict
from orchestrator.probing.record import Finding
from orchestrator.report.calls import faults, listing, plan_table, run_summary, runs, status
from orchestrator.report.generic import generic_table
from orchestrator.report.page import BAD, DOUBTFUL, FAINT, GOOD, HEADING
from orchestrator.report.rankings import tables_of
from orchestrator.report.text import safe_line
from orchestrator.statistics.ranking import RankingAnalysis

__all__ = [
    "faults", "listing", "plan_table", "probe_tables", "ranking", "run_summary", "runs", "status",
]  # fmt: skip

_STYLES: Final = {
    record.GOOD: GOOD,
    record.WARNING: DOUBTFUL,
    record.BAD: BAD,
    record.UNKNOWN: FAINT,
    EXACT: GOOD,
    BOUNDED: DOUBTFUL,
    NOT_KNOWN: FAINT,
    IMPOSSIBLE: BAD,
}
_SHORT: Final = frozenset({"question", "answer", "numbers"})


def probe_tables(
    title: str, findings: Sequence[Finding], verdicts: Sequence[Verdict]
) -> RenderableType:
    """Both tables of one model.

    Args:
        title: Model and server.
        findings: What the server does.
        verdicts: What methods can do with it.
    """
    found = _table("question", "answer", "observed")
    for one in findings:
        seen = Text(safe_line(one.said))
        if one.remedy:
            seen.append(f"\n→ {safe_line(one.remedy)}", FAINT)
        name = Text(safe_line(one.name.replace("_", " ")))
        found.add_row(name, Text(safe_line(one.value), _STYLES[one.state]), seen)
    can = _table("numbers", "methods", "why")
    for (word, why, remedy), methods in _alike(verdicts).items():
        said = Text(safe_line(why if word != EXACT else ""))
        if remedy:
            said.append(f"\n→ {safe_line(remedy)}", FAINT)
        can.add_row(Text(word, _STYLES[word]), Text(safe_line(", ".join(methods))), said)
    return Group(Text(safe_line(title), HEADING), found, Text(""), can, Text(""))


def _alike(verdicts: Sequence[Verdict]) -> dict[tuple[str, str, str], list[str]]:
    """Methods by verdict, reason and remedy, the best verdict first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    order = (EXACT, BOUNDED, NOT_KNOWN, IMPOSSIBLE)
    for judged in sorted(verdicts, key=lambda one: order.index(one.verdict)):
        why = judged.why if judged.verdict != EXACT else ""
        found.setdefault((judged.verdict, why, judged.remedy), []).append(judged.method)
    return found


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style=FAINT)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in _SHORT)
    return table


def ranking(
    analysis: RankingAnalysis, exact_match: Mapping[str, float | None] | None = None
) -> RenderableType:
    """The whole report of one ranking.

    Args:
        analysis: What `orchestrator.ranking.analysis` found.
        exact_match: Share of answers equal to the reference, by model, where there is one.
    """
    return Group(*map(generic_table, tables_of(analysis, exact_match)))
