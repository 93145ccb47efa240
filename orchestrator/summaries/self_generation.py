"""Self-Generation: how each model rates its own answers. The ratings of models do not compare."""

import msgspec

from orchestrator.summaries._base import Context
from orchestrator.summaries._harness import rating_tables
from orchestrator.tables import Table


def summarise(context: Context) -> list[Table]:
    """Ratings, with the warning that each model is its own judge."""
    said = "each model rates itself: higher is not better, only more satisfied"
    return [
        msgspec.structs.replace(table, notes=(said, *table.notes))
        for table in rating_tables(context, "Self-Generation")
    ]
