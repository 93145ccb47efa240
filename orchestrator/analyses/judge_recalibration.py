"""Calibration applied to judges: Brier score, log loss and ECE before and after, and ratings.

A map from a judge's probabilities to how often it is right is learned on pairs whose better answer
is known, and each pair is mapped by a fit to other prompts. Other analyses take the calibrated
preferences by their setting `calibrate`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from pydantic import Field

from orchestrator.clusters import CLUSTER, codes, prompt_words
from orchestrator.plugin import Analysis, Cell, Context, Table, make_table, table_columns
from orchestrator.ranking.calibration import (
    CITES,
    KEY,
    CalibratedJudge,
    calibrated_judges,
    rating_tables,
    refusals,
)
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.preferences import SOFT
from orchestrator.ranking.winners import JudgedWinner, judging_sources
from orchestrator.statistics.calibration import Kind, changes
from orchestrator.tables import measured

_KINDS: Final[tuple[Kind, ...]] = ("temperature", "platt", "isotonic")


class Config(JudgedWinner):
    """Settings of `judge_recalibration`."""

    by: tuple[Kind, ...] = Field(
        _KINDS, min_length=1, description="Maps that are tried. Default: all three."
    )


class JudgeRecalibrationAnalysis(Analysis[Config]):
    """The effect of calibration on each judge's probabilities, and on ratings by them."""

    cites = CITES

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate measures before and after with paired intervals, ratings and win rates."""
        sources = judging_sources(context, self.config.methods)
        judges = calibrated_judges(context, sources, self.config.by, self.config.winner)
        return [_measures(context, judges), *rating_tables(context, judges)]


def _measures(context: Context, judges: Sequence[CalibratedJudge]) -> Table:
    lines: list[list[Cell]] = []
    for judge in judges:
        known = np.abs(judge.truth) == 1.0
        prompts = codes(judge.own.rows[CLUSTER])[known]
        for kind, after in judge.by_map.items():
            if isinstance(after, str):
                continue
            before = np.clip(judge.own.values(SOFT)[known], 0.0, 1.0)
            found = changes(
                before,
                after.values(SOFT)[known],
                0.5 + 0.5 * judge.truth[known],
                prompts,
                context.confidence_level,
            )
            for name, change in found.items():
                cells = (change.before, change.after, without_n(measured(change.difference)))
                lines.append([judge.name, kind, name, *cells, int(known.sum())])
    columns = table_columns(
        "judge | calibration | measure | before: number 3 | after: number 3",
        "change: signed 3 | pairs: count",
    )
    notes = [
        "smaller is better; change: after minus before on the same pairs, Student's interval over "
        "prompts, which takes the maps as they are",
        "each pair is calibrated by a fit to other prompts, in ten folds",
        "log loss: probabilities kept 1e-6 from 0 and 1; ECE (expected calibration error) is never "
        "negative, so part of it is noise, and no interval of its change would hold",
        *refusals(judges),
    ]
    title = "Calibration of the judges, applied"
    basis = f"{prompt_words(judges[0].own.rows)} · pairs whose better answer is known"
    return make_table(KEY, title, columns, lines, basis=basis, notes=notes)
