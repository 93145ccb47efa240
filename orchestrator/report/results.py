"""A run on a terminal, its first screen or in full; rankings as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.report.brief import Brief
from orchestrator.report.brief_text import brief_text
from orchestrator.report.gate import GateResult, gate_text
from orchestrator.report.generic import generic_markdown, generic_table
from orchestrator.report.rankings import tables_of
from orchestrator.statistics.ranking import RankingAnalysis

# Of a verdict on a terminal, beside those of its requirements.
_LINES_OF_GATE: Final = 5


def first_screen(
    brief: Brief, gate: GateResult | None, more: Sequence[str] | None = None, *, taken: int = 0
) -> Iterator[RenderableType]:
    """The run in brief for a terminal, and the verdict on its gates where there is one.

    Args:
        brief: The run in brief.
        gate: Verdict on the gates of the recipe.
        more: Where the rest is, in words; None shows all of it, however many lines that takes.
        taken: Lines of the terminal that other output takes.
    """
    taken += 0 if gate is None else _LINES_OF_GATE + 2 * len(gate.requirements)
    yield brief_text(brief, more or (), whole=more is None, taken=taken)
    if gate is not None:
        yield from (Text(""), gate_text(gate))


def ranking_markdown(
    analysis: RankingAnalysis, exact_match: Mapping[str, float | None] | None = None
) -> str:
    """The whole report of one ranking.

    Args:
        analysis: What `orchestrator.ranking.analysis` found.
        exact_match: Share of answers equal to the reference, by model, where there is one.
    """
    tables = tables_of(analysis, exact_match)
    return "\n\n".join(generic_markdown(one, 3 if place else 2) for place, one in enumerate(tables))


def ranking_text(
    analysis: RankingAnalysis, exact_match: Mapping[str, float | None] | None = None
) -> RenderableType:
    """The same for a terminal."""
    return Group(*map(generic_table, tables_of(analysis, exact_match)))
