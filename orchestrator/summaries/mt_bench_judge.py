"""MT-Bench: mean rating of each model (by turn and category), or wins over two games."""

from orchestrator.methods.mt_bench_judge import Config
from orchestrator.plugin import Context, Summary, Table
from orchestrator.summaries._harness import VERDICT_COLUMNS, rating_tables, winner_tables


class MTBenchJudgeSummary(Summary[Config]):
    """Mean rating of each model (by turn and category), or wins over two games."""

    reads = VERDICT_COLUMNS

    def summarise(self, context: Context) -> list[Table]:
        """Ratings, or wins and pairs."""
        tables = rating_tables if self.config.mode == "single" else winner_tables
        return tables(context, "MT-Bench")
