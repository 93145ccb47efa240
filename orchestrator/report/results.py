"""All results of a run in one of three forms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rich.console import RenderableType
from rich.text import Text

from orchestrator.report import tables
from orchestrator.report.completeness import Completeness
from orchestrator.report.generic import generic_json, generic_markdown, generic_table
from orchestrator.report.markdown import ranking_markdown
from orchestrator.report.page import DOUBTFUL, HEADING, Paged
from orchestrator.report.structured import FORMAT, ranking_json
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.tables import Table


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of a run, ready to show.

    Attributes:
        rankings: By judge.
        exact_match: Share of answers equal to the reference, by model.
        tables: What summaries and analyses say.
        completeness: How far the run is; None where that is not known.
    """

    rankings: Sequence[RankingAnalysis]
    exact_match: Mapping[str, float | None]
    tables: Sequence[Table] = ()
    completeness: Completeness | None = None

    @property
    def warning(self) -> str:
        """Warning to show before all results of a run that is not complete."""
        return "" if self.completeness is None else self.completeness.words()


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
    """The results as Markdown, or as a JSON list of documents.

    Each document of a run says whether it is complete. Where it is not, a document of its own or a
    line says so first, also where there are no results yet.
    """
    if form == "json":
        documents = [ranking_json(ranking, found.exact_match) for ranking in found.rankings]
        documents += [generic_json(table) for table in found.tables]
        if found.completeness is not None:
            run = found.completeness.as_json()
            documents = [{"complete": run["complete"], **document} for document in documents]
            if found.warning:
                documents.insert(0, {"format": FORMAT, "warning": found.warning, **run})
        return json.dumps(documents, indent=2, allow_nan=False) + "\n"
    texts = [f"> **{found.warning}**"] if found.warning else []
    texts += [ranking_markdown(ranking, found.exact_match) for ranking in found.rankings]
    texts += [generic_markdown(table) for table in found.tables]
    return "\n\n".join(texts) + "\n"


def as_tables(found: Findings) -> list[RenderableType]:
    """The results for a terminal."""
    shown: list[RenderableType] = []
    if warning := found.warning:
        style = f"{HEADING} {DOUBTFUL}"
        shown.append(Paged(lambda page: iter([page.words(warning, style), Text("")])))
    shown += [tables.ranking(ranking, found.exact_match) for ranking in found.rankings]
    return shown + [generic_table(table) for table in found.tables]
