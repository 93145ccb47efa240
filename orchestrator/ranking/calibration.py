"""Calibration of judges: whether they are right as often as they are sure.

A judge's confidence in a pair is the probability of the side it prefers, over its whole
distribution and both orders. Pairs whose better answer is not known, or is a tie, are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.clusters import prompt_words
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.settings import Winner
from orchestrator.ranking.preferences import SOFT, UNIT
from orchestrator.ranking.winners import judged
from orchestrator.statistics.calibration import Calibration, calibration
from orchestrator.tables import (
    Cell,
    Table,
    make_table,
    measured,
    table_columns,
)

_OVERALL: Final = table_columns(
    "judge | accuracy: percent | too sure by: signed 3 | Brier score: number 3",
    "ECE: number 3 | pairs: count",
)
_BY_BIN: Final = table_columns(
    "judge | confidence from | mean confidence: number 3 | accuracy: percent", "pairs: count"
)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One method with one judge.

    Attributes:
        name: What tables call it.
        found: Its calibration.
        prompts: Prompts of the pairs whose better answer is known, and their clusters, in words.
    """

    name: str
    found: Calibration
    prompts: str


def calibrated(context: Context, sources: Sequence[Source], winner: Winner) -> Iterator[Calibrated]:
    """The calibration of each judge of each source.

    Raises:
        UsageError: If it is known of no pair of a source who is better.
    """
    for one in judged(context, sources, winner, (*UNIT, SOFT)):
        pairs, level = one.known.pairs, context.confidence_level
        truth = 0.5 + 0.5 * one.known.truth
        found = calibration(pairs.values(SOFT), truth, pairs.prompts(), level)
        name = f"{one.judge} ({one.source.name})" if one.judge else one.source.name
        yield Calibrated(name, found, prompt_words(pairs.rows))


def tables(found: Sequence[Calibrated]) -> list[Table]:
    """Return the findings as tables: a line a judge, then a line a judge and bin."""
    if not found:
        return []
    overall: list[list[Cell]] = [
        [
            one.name,
            measured(one.found.accuracy),
            measured(one.found.overconfidence),
            measured(one.found.brier),
            one.found.expected_error if one.found.n else None,
            one.found.n,
        ]
        for one in found
    ]
    notes = [
        "too sure by: mean confidence minus accuracy, tied verdicts counting half",
        "Brier score: 0.25 for a coin toss; ECE (expected calibration error) over bins of 0.1 "
        "is never negative, so part of it is noise",
    ]
    most = max(found, key=lambda one: one.found.n)
    basis = f"{most.prompts} · pairs whose better answer is known"
    title = "Calibration of the judge"
    by_bin: list[list[Cell]] = [
        [
            one.name,
            " to ".join(f"{end:.1f}" for end in part.bounds),
            part.confidence,
            measured(part.accuracy),
            part.n,
        ]
        for one in found
        for part in one.found.bins
        if part.n
    ]
    over = ["intervals: over prompts, by Gaffke's test of a bounded mean; for these judges"]
    bins = "judge_calibration.bins"
    return [
        make_table("judge_calibration", title, _OVERALL, overall, basis=basis, notes=notes),
        make_table(bins, "Confidence against accuracy", _BY_BIN, by_bin, notes=over),
    ]
