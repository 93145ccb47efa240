"""Agreement of judges, item by item: within each run, and between runs."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import polars as pl

from orchestrator.clusters import OVER
from orchestrator.contracts.method import is_judging
from orchestrator.ranking.agreement import PAIR, agreement_table, ordered, verdict_rows
from orchestrator.runner.comparing.ratings import competitors
from orchestrator.runner.comparing.sides import Common, Side
from orchestrator.tables import Table


def verdicts(sides: Sequence[Side], common: Common, method: str) -> pl.DataFrame:
    """Return the verdicts of all judges of a method: one row a judge, item and pair of models.

    Args:
        sides: The runs.
        common: The items that are used.
        method: Its name in the first run.

    Returns:
        As `verdict_rows`; the judge is followed by the run where there are several.
    """
    names = competitors(sides, method)
    several = len(sides) > 1
    parts = [
        part
        for side in sides
        for part in _of_run(side, common, method, names[side.label], several=several)
    ]
    return pl.concat(parts)


def _of_run(
    side: Side, common: Common, method: str, renamed: Mapping[str, str], *, several: bool
) -> Iterator[pl.DataFrame]:
    own = side.own("method", method)
    known = dict(renamed)
    ending = f" · {side.label}" if several else ""
    for source in side.context.sources:
        if source.name == own:
            rows = verdict_rows(side.context, source).filter(
                pl.col("item").is_in(common.items.implode())
            )
            named = rows.drop(OVER).with_columns(
                pl.col("judge") + ending, pl.col("model_a", "model_b").replace(known)
            )
            # Renamed models may be in another order.
            found = common.clusters.of(ordered(named))
            yield found.select("judge", *OVER, *PAIR, "verdict")


def agreement_tables(sides: Sequence[Side], common: Common, confidence_level: float) -> list[Table]:
    """Return a table for each judging method with at least two judges, in one run or in several.

    Args:
        sides: The runs.
        common: The items that are used.
        confidence_level: In (0, 1).
    """
    notes = []
    if len(sides) > 1:
        notes.append(
            "between runs, only models are used that answer alike in both; if their answers are "
            "sampled, judges also disagree because they judge different texts"
        )
    tables = []
    for source in sides[0].context.sources:
        if not is_judging(source.method):
            continue
        rows = verdicts(sides, common, source.name)
        table = agreement_table("compare.agreement", rows, confidence_level, notes)
        if table.rows:
            tables.append(msgspec.structs.replace(table, source=source.name))
    return tables
