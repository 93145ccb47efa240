"""A ranking in Markdown, for reports and issues; what comes from outside is escaped."""

from collections.abc import Iterable, Iterator, Mapping

from orchestrator import numbers
from orchestrator.report.brief import Brief
from orchestrator.report.generic import generic_markdown, rows_markdown
from orchestrator.report.questions import Check
from orchestrator.report.rankings import tables_of
from orchestrator.report.text import escaped
from orchestrator.report.words import few_words, title, verdict
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.tables import counted_words

ExactMatch = Mapping[str, float | None]


def ranking_markdown(analysis: RankingAnalysis, exact_match: ExactMatch | None = None) -> str:
    """The whole report of one ranking.

    Args:
        analysis: What `orchestrator.ranking.analysis` found.
        exact_match: Share of answers equal to the reference, by model, where there is one.
    """
    missing = analysis.n_units - analysis.n_judged
    basis = [
        counted_words(analysis.n_items_used, analysis.n_clusters),
        numbers.counted(analysis.n_judged, "judgment"),
        *([f"{numbers.count(missing)} missing"] if missing else []),
        analysis.uncertainty,
        *([few_words(analysis)] if analysis.approximate else []),
    ]
    # The title, then at once whether it can be trusted, and on what it rests
    lines = [f"## {escaped(title(analysis))}", ""]
    if analysis.warning:
        lines += [f"**{escaped(analysis.warning)}**", ""]
    if analysis.caution:
        lines += [f"*{escaped(analysis.caution)}*", ""]
    lines.append(" · ".join(basis))
    if said := verdict(analysis, escaped):
        lines += ["", said if analysis.order_resolvable else f"**{said}**"]
    for place, table in enumerate(tables_of(analysis, exact_match)):
        # The ratings have the title of the whole.
        lines += ["", "\n".join(rows_markdown(table)) if not place else generic_markdown(table, 3)]
    if analysis.notes:
        lines += ["", *(f"- {escaped(note)}" for note in analysis.notes)]
    lines += ["", f"Intervals: {analysis.method}; {analysis.uncertainty}."]
    return "\n".join(lines)


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
    if brief.cautions:
        lines += ["## What not to conclude", ""]
        lines += [*(f"- {caution.text(escaped)}" for caution in brief.cautions), ""]
    if brief.cost is not None and (words := brief.cost.words()):
        lines += [f"Cost: {' · '.join(words)}", ""]
    return "\n".join(lines).rstrip("\n")


def _checks(checks: Iterable[Check]) -> Iterator[str]:
    for check in checks:
        said = f"{check.about}: {check.says.text(escaped)}"
        yield f"- **{said}**" if check.is_doubtful else f"- {said}"
