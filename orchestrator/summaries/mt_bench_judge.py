"""MT-Bench: mean rating of each model (by turn and category), or wins over two games."""

from orchestrator.summaries._base import Context
from orchestrator.summaries._harness import rating_tables, winner_tables
from orchestrator.tables import Table


def summarise(context: Context) -> list[Table]:
    """Ratings, or wins and pairs."""
    tables = rating_tables if context.config.mode == "single" else winner_tables
    return tables(context, "MT-Bench")
