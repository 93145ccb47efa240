"""Means and win rates by few human labels and all of a judge's scores (PPI++).

The labels must be of a random choice of answers or pairs. The judge's bias is estimated from them
and taken out, so that the corrected numbers are those that people would give, with intervals over
prompts (`orchestrator.statistics.prediction_powered`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from orchestrator import numbers
from orchestrator.clusters import prompt_words
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Measured,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.human_labels import read_human_labels, skipped_rows
from orchestrator.ranking.labelled import Config, LabelledRows, labelled_rows
from orchestrator.statistics.means import clustered_mean, share_over
from orchestrator.statistics.prediction_powered import (
    Corrected,
    Labelled,
    corrected_mean,
    expected_reach,
    label_correlation,
    least_correlation,
    worth,
)
from orchestrator.statistics.results import APPROXIMATE_BELOW, Estimate
from orchestrator.tables import Curves, Form, measured, with_interval

_NUMBERS: Final = (25, 50, 100, 200, 400, 800)
_MAX_NAMED: Final = 5
_METHOD: Final = (
    "corrected: PPI++ (Angelopoulos, Duchi and Zrnic 2023); intervals over prompts, each for itself"
)
_RANDOM: Final = "valid only if the labelled rows are a random choice of all"


class HumanLabelsAnalysis(Analysis[Config]):
    """A judge's scores corrected by human labels: means and win rates with intervals."""

    cites = ("angelopoulos2023ppi",)

    def check(self, items: Callable[[], Collection[str]], models: Collection[str]) -> None:
        """Refuse labels of items or models that the recipe lacks, and labels off the scale."""
        scale = self.config.scale
        read_human_labels(Path(self.config.labels), scale=scale, items=items(), models=models)

    def summarise(self, context: Context) -> list[Table]:
        """Corrected estimates, differences of models, and widths."""
        labels = read_human_labels(Path(self.config.labels), scale=self.config.scale)
        if not labels:
            raise UsageError(
                f"{context.name}: {Path(self.config.labels).name} has no label yet; fill in its "
                "column 'label'"
            )
        rows = labelled_rows(context, self.config, labels)
        if skipped := skipped_rows(Path(self.config.labels), labels):
            rows = replace(rows, notes=(*rows.notes, _skipped(skipped)))
        found = [_estimates(rows, context)]
        if not rows.is_pairs and len(rows.names) > 1:
            found.append(_differences(rows, context))
        return [*found, _power(rows, context)]


def _skipped(codes: Sequence[str]) -> str:
    """A note about rows of the sheet that people passed over."""
    shown = ", ".join(codes[:_MAX_NAMED]) + (", …" if len(codes) > _MAX_NAMED else "")
    return (
        f"{numbers.counted(len(codes), 'row')} of the sheet ({shown}) have no label although later "
        "ones have: label them too, since rows that were hard to decide are missing otherwise"
    )


def _estimates(rows: LabelledRows, context: Context) -> Table:
    """Labels alone, the judge alone and both, by model or pair."""
    level, notes = context.confidence_level, list(rows.notes)
    form: Form = "percent" if rows.is_pairs else "number"
    few, useless = [], []
    lines: list[list[Cell]] = []
    for name in rows.names:
        data = rows.data(name)
        both, alone = corrected_mean(data), corrected_mean(data, tuning=0.0)
        known = worth(both, alone)
        lines.append(
            [
                name,
                _cell(both, rows, level),
                _cell(alone, rows, level),
                without_n(measured(_judge(data, rows, level))),
                without_n(measured(_bias(data, level))),
                both.n_labels,
                None if np.isnan(known) else round(known),
                None if np.isnan(both.tuning) else both.tuning,
            ]
        )
        if alone.labelled.n < APPROXIMATE_BELOW:
            few.append(name)
        elif label_correlation(data) < least_correlation(both.n_labels):
            useless.append(name)
    columns = [
        Column("pair" if rows.is_pairs else "model"),
        *(Column(title, form) for title in ("corrected", "labels alone", "judge alone")),
        *table_columns(
            "judge minus people: signed 3 | labels: count | worth labels: count", "lambda: number 2"
        ),
    ]
    notes += [
        _METHOD,
        _RANDOM,
        "worth labels: labels that alone would be as precise; lambda: weight of the judge, 0 to 1",
    ]
    if few:
        notes.append(
            f"fewer than {APPROXIMATE_BELOW} labelled prompts, intervals are approximate: label "
            f"more of {', '.join(few)}"
        )
    if useless:
        notes.append(
            "labels and scores hardly correlate, so that the judge does not help: "
            f"{', '.join(useless)}; label more, or change the judge"
        )
    what = "Win rates of the first model" if rows.is_pairs else "Mean scores"
    title = f"{what} by human labels and {rows.source}"
    basis = f"{len(rows.frame):,} judged rows · {prompt_words(rows.frame)}"
    return make_table("human_labels", title, columns, lines, basis=basis, notes=notes)


def _cell(found: Corrected, rows: LabelledRows, level: float) -> Measured:
    interval = found.share_interval(level) if rows.is_pairs else found.interval(level)
    value = None if np.isnan(found.value) else found.value
    if value is not None and rows.is_pairs:
        value = min(max(value, 0.0), 1.0)
    return with_interval(value, interval)


def _judge(data: Labelled, rows: LabelledRows, level: float) -> Estimate:
    """The mean of the judge's scores over all rows."""
    if not rows.is_pairs:
        return clustered_mean(data.scores, data.prompts, level)
    return share_over(data.scores, data.prompts, level)


def _bias(data: Labelled, level: float) -> Estimate:
    """The mean difference of score and label over labelled rows."""
    return clustered_mean(data.scores - data.labels, data.prompts, level)


def _differences(rows: LabelledRows, context: Context) -> Table:
    """Every two models: the difference of their corrected means."""
    level, n = context.confidence_level, rows.n_prompts
    data = {name: rows.data(name) for name in rows.names}
    both = {name: corrected_mean(one, n_prompts=n) for name, one in data.items()}
    alone = {name: corrected_mean(one, tuning=0.0, n_prompts=n) for name, one in data.items()}
    lines: list[list[Cell]] = [
        [
            first,
            second,
            _cell(both[first].minus(both[second]), rows, level),
            _cell(alone[first].minus(alone[second]), rows, level),
        ]
        for first, second in combinations(rows.names, 2)
    ]
    columns = table_columns("model | minus | corrected: signed 3 | labels alone: signed 3")
    notes = ["intervals over prompts, each for itself: with many pairs some leave out 0 by chance"]
    title = "Differences of models by human labels and judge"
    return make_table("human_labels.differences", title, columns, lines, notes=notes)


def _power(rows: LabelledRows, context: Context) -> Table:
    """Half widths to expect with other numbers of labels."""
    lines: list[list[Cell]] = []
    scale = 100.0 if rows.is_pairs else 1.0
    for name in rows.names:
        data = rows.data(name)
        total = int((~np.isnan(data.scores)).sum())
        sizes = [number for number in _NUMBERS if number < total]
        reaches = expected_reach(data, sizes, context.confidence_level)
        for number, both in zip(sizes, reaches, strict=True):
            cells = [None if np.isnan(value) else scale * value for value in both]
            lines.append([name, number, *cells])
    unit = ", points" if rows.is_pairs else ""
    columns = (
        Column("pair" if rows.is_pairs else "model"),
        Column("labels", "count"),
        Column(f"± corrected{unit}", "number", 1 if rows.is_pairs else 3),
        Column(f"± labels alone{unit}", "number", 1 if rows.is_pairs else 3),
    )
    notes = ["half of an interval's expected width, from the spread of the labels there are"]
    title = "Expected precision by number of labels"
    drawn = Curves(
        "labels", (columns[2].name, columns[3].name), f"half width{unit}", columns[0].name
    )
    return make_table("human_labels.power", title, columns, lines, notes=notes, curves=drawn)
