"""All results of a run in one of three forms."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.report.brief import Brief
from orchestrator.report.brief_text import brief_text
from orchestrator.report.gate import GateResult, gate_text
from orchestrator.report.generic import generic_json, generic_markdown, generic_table
from orchestrator.report.progress import Completeness
from orchestrator.report.questions import Check
from orchestrator.report.rankings import tables_of
from orchestrator.report.text import escaped
from orchestrator.report.words import plain, ranking_json
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.tables import Table

# Of a verdict on a terminal, beside those of its requirements.
_LINES_OF_GATE: Final = 5
REPORT_FORMAT: Final = 3
"""Raised when a field of the JSON changes its meaning or goes; new fields may come at any time."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of a run, ready to show.

    Attributes:
        rankings: By judge.
        exact_match: Share of answers equal to the reference, by model.
        tables: What summaries and analyses say.
        completeness: How far the run is; None where that is not known.
        brief: The run in brief, shown first.
        run: Metadata of the run, for programs; empty where it is not known.
        gate: Verdict on the gates of the recipe; None where they were not held against the run.
    """

    rankings: Sequence[RankingAnalysis]
    exact_match: Mapping[str, float | None]
    tables: Sequence[Table] = ()
    completeness: Completeness | None = None
    brief: Brief = field(default_factory=Brief)
    run: Mapping[str, Any] = field(default_factory=dict)
    gate: GateResult | None = None

    @property
    def warning(self) -> str:
        """Warning to show before all results of a run that is not complete."""
        return "" if self.completeness is None else self.completeness.words()


def as_text(form: Literal["markdown", "json"], found: Findings) -> str:
    """The results as Markdown, or as a JSON object that carries the metadata of the run.

    Where the run is not complete, its warning comes before any result.
    """
    if form == "json":
        is_complete = {} if found.completeness is None else found.completeness.as_json()
        document = {
            "format": REPORT_FORMAT,
            "warning": found.warning,
            **is_complete,
            "run": plain(dict(found.run)),
            "brief": found.brief.as_json()["brief"],
            "rankings": [ranking_json(ranking, found.exact_match) for ranking in found.rankings],
            "tables": [generic_json(table) for table in found.tables],
        }
        if found.gate is not None:
            document["gate"] = found.gate.as_json()
        return json.dumps(document, indent=2, allow_nan=False) + "\n"
    texts = [brief_markdown(found.brief)]
    if found.gate is not None:
        texts.append(found.gate.to_markdown().rstrip())
    texts += [ranking_markdown(ranking, found.exact_match) for ranking in found.rankings]
    texts += [generic_markdown(table) for table in found.tables if table.columns]
    return "\n\n".join(texts) + "\n"


def first_screen(
    found: Findings, more: Sequence[str] = (), *, taken: int = 0
) -> list[RenderableType]:
    """The run in brief for a terminal: one screen.

    Args:
        found: The findings, with their brief.
        more: Where the rest is, in words.
        taken: Lines of the terminal that other output takes.
    """
    if found.gate is None:
        return [brief_text(found.brief, more, taken=taken)]
    taken += _LINES_OF_GATE + 2 * len(found.gate.requirements)
    return [brief_text(found.brief, more, taken=taken), Text(""), gate_text(found.gate)]


def as_tables(found: Findings) -> list[RenderableType]:
    """All results for a terminal: the run in brief, then every ranking and table."""
    shown: list[RenderableType] = [brief_text(found.brief, whole=True), Text("")]
    if found.gate is not None:
        shown += [gate_text(found.gate), Text("")]
    shown += [ranking_text(ranking, found.exact_match) for ranking in found.rankings]
    # Of a table without columns the run in brief has told why.
    return shown + [generic_table(table) for table in found.tables if table.columns]


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
