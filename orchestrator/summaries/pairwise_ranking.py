"""Pairwise ranking: its estimators side by side; the ranking itself has a drawing of its own."""

import polars as pl

from orchestrator.summaries._base import Context
from orchestrator.summaries._judged import estimator_table
from orchestrator.summaries._preferences import preferences
from orchestrator.tables import Table


def summarise(context: Context) -> list[Table]:
    """How often each estimator ties and how it orders the models, for each judge."""
    if "mode_pre" not in context.rows.columns or "median_pre" not in context.rows.columns:
        return []
    if not context.rows.filter(pl.col("status") == "ok").height:
        return []
    return [
        estimator_table(found, "pairwise_ranking", judge)
        for judge, found in preferences(context.rows).by_judge()
    ]
