"""CritiqueLLM: mean score of each model, or comparisons over both orders."""

from orchestrator.methods.critique_llm import Config
from orchestrator.plugin import Context, Summary, Table
from orchestrator.summaries._harness import VERDICT_COLUMNS, rating_tables, winner_tables


class CritiqueLLMSummary(Summary[Config]):
    """Mean score of each model, or comparisons over both orders."""

    reads = VERDICT_COLUMNS

    def summarise(self, context: Context) -> list[Table]:
        """Ratings, or wins and pairs."""
        tables = rating_tables if self.config.mode == "pointwise" else winner_tables
        return tables(context, "CritiqueLLM")
