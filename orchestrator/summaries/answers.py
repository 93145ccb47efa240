"""Answers: how many, how many failed, how many are right."""

import polars as pl

from orchestrator.statistics.clustered import clustered_share
from orchestrator.summaries._base import Context
from orchestrator.tables import Cell, Column, Table, make_table, measured

COLUMNS = (
    "item",
    "model",
    "exact_match",
    "mean_logprob",
    "n_tokens",
    "finish_reason",
    "status",
)
_COLUMNS = (
    Column("model"),
    Column("answers", "count"),
    Column("failed", "count"),
    Column("exact match", "percent"),
    Column("mean log-prob", "number"),
    Column("tokens", "number", 1),
    Column("cut off", "percent"),
)


def summarise(context: Context) -> list[Table]:
    """One line a model: answers, failures, exact match with its interval, log-probability."""
    rows = [
        _line(str(model), frame, context.confidence_level)
        for (model,), frame in context.rows.group_by("model", maintain_order=True)
    ]
    if not rows:
        return []
    n_items = context.rows["item"].n_unique()
    notes = ["intervals: Wilson, clustered by prompt; log-probabilities are means over answers"]
    return [
        make_table("answers", "Answers", _COLUMNS, rows, basis=f"{n_items:,} prompts", notes=notes)
    ]


def _line(model: str, frame: pl.DataFrame, confidence_level: float) -> list[Cell]:
    good = frame.filter(pl.col("status") == "ok")
    checked = good.filter(pl.col("exact_match").is_not_null())
    by_item = checked.group_by("item").agg(
        right=pl.col("exact_match").cast(pl.Float64).sum(), n=pl.len().cast(pl.Float64)
    )
    right = None
    if len(by_item):
        sums, counts = by_item["right"].to_numpy(), by_item["n"].to_numpy()
        right = measured(clustered_share(sums, counts, confidence_level))
    return [
        model,
        len(good),
        len(frame) - len(good),
        right,
        good["mean_logprob"].mean(),  # type: ignore[list-item] # of a column of floats
        good["n_tokens"].mean(),  # type: ignore[list-item]
        (good["finish_reason"] == "length").cast(pl.Float64).mean(),  # type: ignore[list-item]
    ]
