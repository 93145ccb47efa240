"""A ranking in Markdown, for reports and issues; what comes from outside is escaped."""

from collections.abc import Iterable, Iterator, Mapping

from orchestrator.report.brief import Brief
from orchestrator.report.generic import generic_markdown
from orchestrator.report.questions import Check
from orchestrator.report.rankings import tables_of
from orchestrator.report.text import escaped
from orchestrator.statistics.ranking import RankingAnalysis

ExactMatch = Mapping[str, float | None]


def ranking_markdown(analysis: RankingAnalysis, exact_match: ExactMatch | None = None) -> str:
    """The whole report of one ranking.

    Args:
        analysis: What `orchestrator.ranking.analysis` found.
        exact_match: Share of answers equal to the reference, by model, where there is one.
    """
    tables = tables_of(analysis, exact_match)
    return "\n\n".join(generic_markdown(one, 3 if place else 2) for place, one in enumerate(tables))


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
