"""Consistency: how alike the answers are that a model gives when it is asked again."""

import polars as pl

from orchestrator.plugin import (
    Cell,
    Context,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import (
    METHODS,
    basis_of,
    groups,
    mean_of,
    n_prompts,
    share_of,
    without_n,
)

_COLUMNS = table_columns(
    "model | compared | exact match: percent | token F1: percent | similarity: percent",
    "prompts: count",
)


class ConsistencySummary(Summary[MethodSettings]):
    """Agreement of the answers that a model gives to one question asked several times."""

    reads_alone = True
    reads = (
        "item", "category", "model", "turn", "again", "exact_match", "token_f1", "similarity",
        "status", "cause",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """One line a model and further answer, as in Table 1."""
        rows = context.rows
        if rows.is_empty():
            return []
        good, level = rows.filter(pl.col("status") == "ok"), context.confidence_level
        lines: list[list[Cell]] = [
            [
                str(model),
                f"x, x{again}",
                without_n(share_of(part, pl.col("exact_match"), level)),
                without_n(share_of(part, pl.col("token_f1"), level)),
                # Not a share: similarities of embeddings may be below 0.
                without_n(mean_of(part, pl.col("similarity"), level)),
                n_prompts(part),
            ]
            for (model, again), part in groups(good, "model", "again")
        ]
        notes = [
            "x: the answer; x1 and x2: answers to the same question, asked a second and a third "
            "time",
            METHODS,
        ]
        if not good["similarity"].count():
            notes.append("similarity: no encoder was named")
        return [
            make_table(
                "consistency", "Consistency", _COLUMNS, lines, basis=basis_of(rows), notes=notes
            )
        ]
