"""Answers: how many, how many failed, how many are right."""

import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.plugin import (
    Cell,
    Context,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import comparisons, groups, plain_mean, share_of

_COLUMNS = table_columns(
    "model | answers: count | failed: count | exact match: percent",
    "mean log-prob: number | tokens: number 1 | cut off: percent",
)


class AnswersSummary(Summary[MethodSettings]):
    """Numbers of answers, of failures and of correct answers."""

    reads_alone = True
    reads = (
        "item", "model", "turn", "exact_match", "mean_logprob", "n_tokens", "finish_reason",
        "status",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """One line a model: answers, failures, exact match with its interval, log-probability."""
        rows: list[list[Cell]] = []
        for (model,), frame in groups(context.rows, "model"):
            good = frame.filter(pl.col("status") == "ok")
            right = None
            if good["exact_match"].count():
                right = share_of(good, pl.col("exact_match"), context.confidence_level)
            rows.append(
                [
                    str(model),
                    len(good),
                    len(frame) - len(good),
                    right,
                    plain_mean(good["mean_logprob"]),
                    plain_mean(good["n_tokens"]),
                    plain_mean(good["finish_reason"] == "length"),
                ]
            )
        if not rows:
            return []
        notes = [
            "intervals: Gaffke's test of a bounded mean, clustered by prompt; log-probabilities "
            "are means over answers"
        ]
        return [
            make_table(
                "answers",
                "Answers",
                _COLUMNS,
                rows,
                basis=prompt_words(context.rows),
                notes=notes,
                comparisons=comparisons(
                    context.rows.filter(pl.col("status") == "ok"),
                    pl.col("exact_match"),
                    context.confidence_level,
                    ends=(0.0, 1.0),
                ),
            )
        ]
