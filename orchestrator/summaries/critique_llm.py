"""CritiqueLLM: mean score of each model, or comparisons over both orders."""

from orchestrator.summaries._base import Context
from orchestrator.summaries._harness import rating_tables, winner_tables
from orchestrator.tables import Table


def summarise(context: Context) -> list[Table]:
    """Ratings, or wins and pairs."""
    tables = rating_tables if context.config.mode == "pointwise" else winner_tables
    return tables(context, "CritiqueLLM")
