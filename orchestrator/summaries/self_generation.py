"""Self-Generation: how each model rates its own answers. The ratings of models do not compare."""

import msgspec

from orchestrator.plugin import Context, MethodSettings, Summary, Table
from orchestrator.summaries._harness import VERDICT_COLUMNS, rating_tables


class SelfGenerationSummary(Summary[MethodSettings]):
    """Each model's ratings of its own answers; ratings of different models do not compare."""

    reads = VERDICT_COLUMNS

    def summarise(self, context: Context) -> list[Table]:
        """Ratings, with the warning that each model is its own judge."""
        said = "each model rates itself: a higher rating does not mean a better model"
        return [
            msgspec.structs.replace(table, notes=(said, *table.notes))
            for table in rating_tables(context, "Self-Generation")
        ]
