"""Agreement of judges, item by item: within each run, and between runs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import msgspec
import numpy as np
import polars as pl

from orchestrator.clusters import CLUSTER, codes
from orchestrator.contracts.method import is_judging
from orchestrator.runner.comparing.ratings import competitors
from orchestrator.runner.comparing.sides import Common, Side
from orchestrator.statistics.agreement import (
    METHOD,
    cohen_kappa,
    fleiss_kappa,
    rater_counts,
    raw_agreement,
)
from orchestrator.summaries._preferences import decided, judged_rows, preferences
from orchestrator.tables import Column, Table, make_table, measured

_COLUMNS: Final = (
    Column("judge"), Column("with"), Column("pairs of answers", "count"),
    Column("same verdict", "percent"), Column("Cohen's kappa", "signed"),
)  # fmt: skip
_DECISIONS: Final = (-1.0, 0.0, 1.0)
_PAIR: Final = ("item", "turn", "model_a", "model_b")


def verdicts(sides: Sequence[Side], common: Common, method: str) -> pl.DataFrame:
    """Return the verdicts of all judges of a method: one row a judge, item and pair of models.

    Args:
        sides: The runs.
        common: The items that are used.
        method: Its name in the first run.

    Returns:
        Columns judge (followed by the run where there are several), item, cluster, turn, model_a,
        model_b (in alphabetical order) and verdict: 1 where A is better, -1 where B is, else 0.
        Pairs of equal answers, on which all judges tie, are left out.
    """
    names = competitors(sides, method)
    several = len(sides) > 1
    parts = [
        part
        for side in sides
        for part in _of_run(side, common, method, names[side.label], several=several)
    ]
    schema: dict[str, pl.DataType] = {
        **dict.fromkeys(("judge", CLUSTER, *_PAIR), pl.String()),
        "turn": pl.Int64(),
        "verdict": pl.Float64(),
    }
    return pl.concat(parts) if parts else pl.DataFrame(schema=schema)


def _of_run(
    side: Side, common: Common, method: str, renamed: Mapping[str, str], *, several: bool
) -> Iterator[pl.DataFrame]:
    own = side.own("method", method)
    for source in side.context.sources:
        if source.name != own or not is_judging(source.method):
            continue
        rows = judged_rows(side.context, source)
        if rows.is_empty():
            continue
        found = preferences(rows)
        if found.rows.is_empty() or found.mean not in found.rows.columns:
            continue
        known = dict(renamed)
        verdict = decided(found.values(found.mean))
        swap = pl.col("a") > pl.col("b")
        ending = f" · {side.label}" if several else ""
        yield (
            found.rows.with_columns(verdict=pl.Series(verdict, dtype=pl.Float64))
            .filter(
                pl.col("item").is_in(common.items.implode())
                & ~pl.col("same_text").fill_null(value=False)
            )
            .with_columns(
                a=pl.col("model_a").replace(known),
                b=pl.col("model_b").replace(known),
            )
            .select(
                pl.col("judge").fill_null("") + ending,
                pl.col("item"),
                pl.col("turn").cast(pl.Int64),
                model_a=pl.when(swap).then("b").otherwise("a"),
                model_b=pl.when(swap).then("a").otherwise("b"),
                verdict=pl.when(swap).then(-pl.col("verdict")).otherwise("verdict"),
            )
            .pipe(common.clusters.of)
            .select("judge", CLUSTER, *_PAIR, "verdict")
        )


def agreement_tables(sides: Sequence[Side], common: Common, confidence_level: float) -> list[Table]:
    """Return a table for each judging method with at least two judges, in one run or in several.

    Args:
        sides: The runs.
        common: The items that are used.
        confidence_level: In (0, 1).
    """
    tables = []
    for source in sides[0].context.sources:
        if not is_judging(source.method):
            continue
        rows = verdicts(sides, common, source.name)
        judges = rows["judge"].unique(maintain_order=True).to_list()
        table = _table(source.name, rows, judges, confidence_level, several=len(sides) > 1)
        if table.rows:
            tables.append(table)
    return tables


def _table(
    method: str, rows: pl.DataFrame, judges: Sequence[str], level: float, *, several: bool
) -> Table:
    of_judge = {judge: rows.filter(pl.col("judge") == judge) for judge in judges}
    lines = []
    for one, two in combinations(judges, 2):
        both = of_judge[one].join(
            of_judge[two].select(*_PAIR, other="verdict"), on=list(_PAIR), maintain_order="left"
        )
        given = both["verdict"].to_numpy(), both["other"].to_numpy(), codes(both[CLUSTER])
        same, kappa = raw_agreement(*given, level), cohen_kappa(*given, level)
        if both.is_empty():
            continue
        lines.append((one, two, len(both), measured(same), measured(kappa)))
    notes = ["verdicts are better, worse or tied; pairs of equal answers are excluded"]
    if several:
        notes.append(
            "between runs, only models are used that answer alike in both; if their answers are "
            "sampled, judges also disagree because they judge different texts"
        )
    if len(judges) > 2:
        notes.append(_all_judges(of_judge, judges, level))
    table = make_table(
        "compare.agreement", "Agreement of judges, pair by pair", _COLUMNS, lines,
        basis=f"kappa: {METHOD}", notes=notes,
    )  # fmt: skip
    return msgspec.structs.replace(table, source=method)


def _all_judges(of_judge: dict[str, pl.DataFrame], judges: Sequence[str], level: float) -> str:
    """Agreement of all judges together, on the pairs that each of them judged."""
    joined = of_judge[judges[0]].rename({"verdict": "0"}).drop("judge")
    for place, judge in enumerate(judges[1:], start=1):
        other = of_judge[judge].select(*_PAIR, pl.col("verdict").alias(str(place)))
        joined = joined.join(other, on=list(_PAIR), maintain_order="left")
    ratings = joined.select(map(str, range(len(judges)))).to_numpy().astype(np.float64)
    found = fleiss_kappa(rater_counts(ratings, _DECISIONS), codes(joined[CLUSTER]), level)
    if np.isnan(found.value):
        return f"Fleiss' kappa of all {len(judges)} is undefined: {found.undefined}"
    ends = ""
    if found.interval is not None:
        ends = f" [{found.interval.low:+.3f}, {found.interval.high:+.3f}]"
    return f"Fleiss' kappa of all {len(judges)}: {found.value:+.3f}{ends}"
