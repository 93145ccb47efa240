"""Auto-J: mean rating of each model, or decisions over both orders."""

from orchestrator.methods.auto_j import Config
from orchestrator.plugin import Context, Summary, Table
from orchestrator.summaries._harness import VERDICT_COLUMNS, rating_tables, winner_tables


class AutoJSummary(Summary[Config]):
    """Mean rating of each model, or decisions over both orders."""

    reads = VERDICT_COLUMNS

    def summarise(self, context: Context) -> list[Table]:
        """Ratings, or wins and pairs."""
        tables = rating_tables if self.config.mode == "single" else winner_tables
        return tables(context, "Auto-J")
