"""Padded answers: how often a judge calls an answer better for saying the same things twice."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import prompt_words
from orchestrator.judgment.distribution import UNRELIABLE_BELOW
from orchestrator.plugin import (
    Cell,
    Context,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import share_of, without_n
from orchestrator.statistics.judgments import decisions

_COLUMNS = table_columns(
    "judge | model | padded: count | left out: count | failed: count | fails: percent",
    "in both orders: percent | prefers the padded: percent | ties: percent",
    "low coverage: percent",
)


class PaddedAnswersSummary(Summary[MethodSettings]):
    """The failure rate of each judge under padding."""

    reads_alone = True
    by_numbers = True
    reads = (
        "item", "model", "judge", "same_text", "p_ab", "p_ba", "coverage_ab", "coverage_ba",
        "prefer_padded", "verdict", "status",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate each judge and model, and each judge's answers of all models."""
        rows = context.rows
        if rows.is_empty():
            return []
        lines: list[list[Cell]] = []
        for (judge,), mine in rows.group_by("judge", maintain_order=True):
            by_model = list(mine.group_by("model", maintain_order=True))
            for (model,), part in by_model:
                lines.append([str(judge), str(model), *_line(part, context.confidence_level)])
            if len(by_model) > 1:
                lines.append([str(judge), "all", *_line(mine, context.confidence_level)])
        notes = [
            "fails: the padded copy of an answer is called better, by the likeliest label of both "
            "orders together; in both orders: by that of each",
            "prefers the padded: mean preference, a tie as one half; a judge that is not taken in "
            "is at 50 % or below; intervals over prompts",
            "left out: answers that the padding does not change, such as those without a list; "
            "failed: not judged; low coverage: less than half of the probability was on the labels",
        ]
        title = "Is each judge taken in by padding?"
        basis = prompt_words(rows)
        return [make_table("padded_answers", title, _COLUMNS, lines, basis=basis, notes=notes)]


def _line(rows: pl.DataFrame, level: float) -> list[Cell]:
    good = rows.filter(pl.col("status") == "ok")
    judged = good.filter(~pl.col("same_text"))
    both = (_decided(judged["p_ab"]) > 0) & (_decided(judged["p_ba"]) > 0)
    judged = judged.with_columns(both=pl.Series(both, dtype=pl.Boolean))
    values = (pl.col("verdict") > 0, pl.col("both"), pl.col("prefer_padded"))
    shares: list[Cell] = [without_n(share_of(judged, value, level)) for value in values]
    coverage = judged.select(pl.min_horizontal("coverage_ab", "coverage_ba")).to_series()
    plain: list[Cell] = [
        int(flags.sum()) / len(judged) if len(judged) else None
        for flags in (judged["verdict"] == 0, coverage < UNRELIABLE_BELOW)
    ]
    return [len(judged), len(good) - len(judged), len(rows) - len(good), *shares, *plain]


def _decided(levels: pl.Series) -> NDArray[np.float64]:
    """Return 1 where the padded copy is called better, -1 where the answer is, 0 for a tie."""
    if levels.is_empty():
        return np.zeros(0)
    p = np.array(levels.to_list(), dtype=np.float64)
    half = p.shape[1] // 2
    return decisions(p[:, :half].sum(axis=1), p[:, half], p[:, half + 1 :].sum(axis=1))
