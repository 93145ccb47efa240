"""A run on a terminal, its first screen or in full; rankings and the run in brief as Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.report.brief import Brief
from orchestrator.report.brief_text import brief_text
from orchestrator.report.gate import GateResult, gate_text
from orchestrator.report.generic import generic_markdown, generic_table
from orchestrator.report.questions import Check
from orchestrator.report.rankings import tables_of
from orchestrator.report.text import escaped
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


def brief_markdown(brief: Brief) -> str:
    """A run in brief as Markdown: answers, how far to trust them, what not to conclude, cost."""
    lines = [f"> **{brief.incomplete}**", ""] if brief.incomplete else []
    if brief.silence:
        lines += [brief.silence, ""]
    for place, question in enumerate(brief.questions):
        level = "#" if not place else "##"
        lines += [f"{level} {question.answer.text(escaped)}", ""]
        if question.detail:
            lines += [f"**{escaped(question.detail)}**", ""]
        basis = f" · {escaped(question.basis)}" if question.basis else ""
        lines += [f"{question.subject.text(escaped)}{basis}", ""]
        if question.apart:
            lines += [question.apart.text(escaped), ""]
        if question.checks:
            lines += [*_checks(question.checks), ""]
    if brief.checks:
        lines += ["## The run", "", *_checks(brief.checks), ""]
    for heading, said in (
        ("What to do next", brief.next_steps),
        ("What not to conclude", brief.cautions),
    ):
        if said:
            lines += [f"## {heading}", "", *(f"- {one.text(escaped)}" for one in said), ""]
    if brief.cost is not None and (words := brief.cost.words()):
        lines += [f"Cost: {' · '.join(words)}", ""]
    return "\n".join(lines).rstrip("\n")


def _checks(checks: Iterable[Check]) -> Iterator[str]:
    for check in checks:
        said = f"{check.about}: {check.says.text(escaped)}"
        yield f"- **{said}**" if check.is_doubtful else f"- {said}"
