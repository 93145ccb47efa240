"""All results of a run in one of three forms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

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


# Tables that are shown after a run without being asked for.
_FEW: Final = 4


def shortened(found: Findings) -> tuple[Findings, int]:
    """The findings with the first table of each method and analysis, and how many are left out."""
    if len(found.tables) + len(found.rankings) <= _FEW:
        return found, 0
    first = {table.source: table for table in reversed(found.tables)}
    kept = [table for table in found.tables if first[table.source] is table]
    return replace(found, tables=kept), len(found.tables) - len(kept)


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
