"""Agreement of judges on the same pairs of answers, verdict by verdict."""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER, OVER, codes
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import is_judging
from orchestrator.ranking.preferences import judged_rows, preferences
from orchestrator.statistics.agreement import METHOD, cohen_kappa, krippendorff_alpha, raw_agreement
from orchestrator.statistics.judgments import decided
from orchestrator.tables import Cell, Table, make_table, measured, table_columns

PAIR: Final = ("item", "turn", "model_a", "model_b")

_COLUMNS: Final = table_columns(
    "judge | with | pairs of answers: count | same verdict: percent",
    "Cohen's kappa: signed | alpha: signed",
)
_NOTE: Final = (
    "verdicts are better, tied or worse; alpha is Krippendorff's, of these in this order; pairs of "
    "equal answers are excluded"
)
_SCHEMA: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("judge", *OVER, *PAIR), pl.String()),
    "turn": pl.Int64(),
    "verdict": pl.Float64(),
}


def verdict_rows(context: Context, source: Source) -> pl.DataFrame:
    """Return the verdicts of the judges of a method: one row a judge, item and pair of models.

    Columns are judge, item, cluster, turn, model_a, model_b (in alphabetical order) and verdict: 1
    where A is better, -1 where B is, else 0. Pairs of equal answers, on which all judges tie, are
    left out. Names are texts: rows of other runs, with other categories, are put below.
    """
    rows = judged_rows(context, source) if is_judging(source.method) else pl.DataFrame()
    if rows.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    found = preferences(rows)
    if found.rows.is_empty() or found.mean not in found.rows.columns:
        return pl.DataFrame(schema=_SCHEMA)
    verdict = pl.Series(decided(found.values(found.mean)), dtype=pl.Float64)
    told = found.rows.with_columns(verdict=verdict, judge=pl.col("judge").fill_null(""))
    told = told.filter(~pl.col("same_text").fill_null(value=False))
    return ordered(told).select(*_SCHEMA).cast(pl.Schema(_SCHEMA))


def ordered(rows: pl.DataFrame) -> pl.DataFrame:
    """Return verdicts with the models of each pair in alphabetical order."""
    swap = pl.col("model_a") > pl.col("model_b")
    return rows.with_columns(
        pl.col("turn").cast(pl.Int64),
        model_a=pl.when(swap).then("model_b").otherwise("model_a"),
        model_b=pl.when(swap).then("model_a").otherwise("model_b"),
        verdict=pl.when(swap).then(-pl.col("verdict")).otherwise("verdict"),
    )


def agreement_table(
    key: str, rows: pl.DataFrame, confidence_level: float, notes: Sequence[str] = ()
) -> Table:
    """Return a line for each two judges and, of more than two, one for all; none for one judge."""
    judges = rows["judge"].unique(maintain_order=True).to_list()
    # A judge's second verdict on a pair says nothing new.
    wide = rows.pivot("judge", index=[*PAIR, *OVER], values="verdict", aggregate_function="first")
    given = {judge: wide[judge].cast(pl.Float64).fill_null(np.nan).to_numpy() for judge in judges}
    prompts = codes(wide[CLUSTER])
    lines: list[list[Cell]] = []
    for one, two in combinations(judges, 2):
        both = np.stack([given[one], given[two]], axis=1)
        n = int((~np.isnan(both)).all(axis=1).sum())
        if not n:
            continue
        same = raw_agreement(given[one], given[two], prompts, confidence_level)
        kappa = cohen_kappa(given[one], given[two], prompts, confidence_level)
        alpha = krippendorff_alpha(both, prompts, confidence_level)
        cells = [measured(found) for found in (kappa, alpha)]
        lines.append([one, two, n, measured(same, with_n=True), *cells])
    if len(judges) > 2 and lines:
        ratings = np.stack([given[judge] for judge in judges], axis=1)
        n = int(((~np.isnan(ratings)).sum(axis=1) >= 2).sum())
        alpha = krippendorff_alpha(ratings, prompts, confidence_level)
        lines.append([f"all {len(judges)}", "", n, None, None, measured(alpha)])
    return make_table(
        key,
        "Agreement of judges, pair by pair",
        _COLUMNS,
        lines,
        basis=f"kappa and alpha: {METHOD}",
        notes=[_NOTE, *notes],
    )


def judges_agreement(source: Source, context: Context) -> list[Table]:
    """Return the table of a method; [] where no two judges gave a verdict on one pair."""
    rows = verdict_rows(context, source)
    table = agreement_table("judges.agreement", rows, context.confidence_level)
    return [table] if table.rows else []
