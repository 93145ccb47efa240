"""All results of a run in one of three forms."""

import json
from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl
from rich.console import RenderableType

from orchestrator.report import tables
from orchestrator.report.answered import (
    answers_json,
    answers_markdown,
    answers_table,
    summarise,
)
from orchestrator.report.markdown import ranking_markdown
from orchestrator.report.structured import ranking_json
from orchestrator.statistics.ranking import RankingAnalysis

ExactMatch = Mapping[str, float | None]


def as_text(
    form: Literal["markdown", "json"],
    rankings: Sequence[RankingAnalysis],
    exact_match: ExactMatch,
    answers: pl.DataFrame | None,
) -> str:
    """The results as Markdown, or as a JSON list of documents.

    Args:
        form: Which of the two.
        rankings: By judge.
        exact_match: Share of answers equal to the reference, by model.
        answers: The frame of answers; shown by itself where nothing was judged.
    """
    alone = [] if answers is None or rankings else summarise(answers)
    if form == "json":
        documents = [ranking_json(ranking, exact_match) for ranking in rankings]
        documents += [answers_json(alone)] if alone else []
        return json.dumps(documents, indent=2, allow_nan=False) + "\n"
    texts = [ranking_markdown(ranking, exact_match) for ranking in rankings]
    texts += [answers_markdown(alone)] if alone else []
    return "\n\n".join(texts) + "\n"


def as_tables(
    rankings: Sequence[RankingAnalysis], exact_match: ExactMatch, answers: pl.DataFrame | None
) -> list[RenderableType]:
    """The results for a terminal; arguments as for `as_text`."""
    if answers is None or rankings:
        return [tables.ranking(ranking, exact_match) for ranking in rankings]
    alone = summarise(answers)
    return [answers_table(alone)] if alone else []
