"""All results of a run in one of three forms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import RenderableType

from orchestrator.report import tables
from orchestrator.report.generic import generic_json, generic_markdown, generic_table
from orchestrator.report.markdown import ranking_markdown
from orchestrator.report.structured import ranking_json
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.tables import Table


@dataclass(frozen=True, slots=True)
class Findings:
    """What there is to be shown of a run.

    Attributes:
        rankings: By judge.
        exact_match: Share of answers equal to the reference, by model.
        tables: What summaries and analyses say.
    """

    rankings: Sequence[RankingAnalysis]
    exact_match: Mapping[str, float | None]
    tables: Sequence[Table] = ()


def as_text(form: Literal["markdown", "json"], found: Findings) -> str:
    """The results as Markdown, or as a JSON list of documents."""
    if form == "json":
        documents = [ranking_json(ranking, found.exact_match) for ranking in found.rankings]
        documents += [generic_json(table) for table in found.tables]
        return json.dumps(documents, indent=2, allow_nan=False) + "\n"
    texts = [ranking_markdown(ranking, found.exact_match) for ranking in found.rankings]
    texts += [generic_markdown(table) for table in found.tables]
    return "\n\n".join(texts) + "\n"


def as_tables(found: Findings) -> list[RenderableType]:
    """The results for a terminal."""
    ranked: list[RenderableType] = [
        tables.ranking(ranking, found.exact_match) for ranking in found.rankings
    ]
    return ranked + [generic_table(table) for table in found.tables]
