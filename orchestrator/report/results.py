"""All results of a run in one of three forms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rich.console import RenderableType
from rich.text import Text

from orchestrator.gates import Decision
from orchestrator.report import tables
from orchestrator.report.brief import Brief
from orchestrator.report.brief_text import brief_text
from orchestrator.report.gate import gate_markdown, gate_text, gate_value
from orchestrator.report.generic import generic_json, generic_markdown, generic_table
from orchestrator.report.markdown import brief_markdown, ranking_markdown
from orchestrator.report.progress import Completeness
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
    gate: Decision | None = None

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
            document["gate"] = gate_value(found.gate)
        return json.dumps(document, indent=2, allow_nan=False) + "\n"
    texts = [brief_markdown(found.brief)]
    if found.gate is not None:
        texts.append(gate_markdown(found.gate).rstrip())
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
    first = {table.source: table for table in reversed(found.tables) if table.columns}
    answered = {question.source for question in found.brief.questions}
    kept = [table for source, table in reversed(first.items()) if source not in answered]
    if found.gate is None:
        return [brief_text(found.brief, more, kept, taken=taken)]
    taken += _LINES_OF_GATE + 2 * len(found.gate.requirements)
    return [brief_text(found.brief, more, kept, taken=taken), Text(""), gate_text(found.gate)]


def as_tables(found: Findings) -> list[RenderableType]:
    """All results for a terminal: the run in brief, then every ranking and table."""
    shown: list[RenderableType] = [brief_text(found.brief, whole=True), Text("")]
    if found.gate is not None:
        shown += [gate_text(found.gate), Text("")]
    shown += [tables.ranking(ranking, found.exact_match) for ranking in found.rankings]
    # Of a table without columns the run in brief has told why.
    return shown + [generic_table(table) for table in found.tables if table.columns]
