"""Few labels of people: numbers of a judge corrected by them (PPI++), and verdicts worth keeping.

The labels of `human_labels` must be of a random choice of answers or pairs. The judge's bias is
estimated from them and taken out, so that the corrected numbers are those that people would give,
with intervals over prompts (`orchestrator.statistics.prediction_powered`).
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
from orchestrator.ranking.human_labels import read_human_labels, skipped_rows
from orchestrator.ranking.labelled import (
    Config,
    LabelledRows,
    Selective,
    kept_verdicts,
    labelled_rows,
)
from orchestrator.statistics.means import clustered_mean, share_over
from orchestrator.statistics.prediction_powered import corrected_mean, hardly_correlates, worth
from orchestrator.statistics.results import APPROXIMATE_BELOW
from orchestrator.statistics.selective import Kept, labels_needed, most_kept
from orchestrator.tables import Curves, Form, measured

_MAX_NAMED: Final = 5
_METHOD: Final = (
    "corrected: PPI++ (Angelopoulos, Duchi and Zrnic 2023); intervals over prompts, each for itself"
)
_RANDOM: Final = "valid only if the labelled rows are a random choice of all"
_KEPT: Final = table_columns(
    "wrong at most: percent | kept: percent | by | from: number 6 | wrong labels: percent",
    "labels: count | prompts: count",
)
_CURVE: Final = table_columns(
    "kept, %: number 1 | from: number 6 | wrong labels, %: number 1",
    "upper bound, %: number 1 | labels: count | labels needed: count",
)
_DOUBTS: Final = {"margin": "margin", "orders": "agreement of the orders", "coverage": "coverage"}
_ABOUT: Final = {
    "prompts": "for verdicts on such prompts, new ones too: each prompt with a label counts once, "
    "its verdicts may depend on each other",
    "run": "for the verdicts of this run alone, whatever depends on what",
}


class HumanLabelsAnalysis(Analysis[Config]):
    """Means and win rates by few human labels and all of a judge's scores (PPI++)."""

    cites = ("angelopoulos2023ppi",)

    def check(self, items: Callable[[], Collection[str]], models: Collection[str]) -> None:
        """Refuse labels of items or models that the recipe lacks, and labels off the scale."""
        scale = self.config.scale
        read_human_labels(Path(self.config.labels), scale=scale, items=items(), models=models)

    def summarise(self, context: Context) -> list[Table]:
        """Corrected estimates, and differences of models."""
        labels = read_human_labels(Path(self.config.labels), scale=self.config.scale)
        if not labels:
            raise UsageError(
                f"{context.name}: {Path(self.config.labels).name} has no label yet; fill in its "
                "column 'label'"
            )
        rows = labelled_rows(context, self.config, labels)
        if skipped := skipped_rows(Path(self.config.labels), labels):
            shown = ", ".join(skipped[:_MAX_NAMED]) + (", …" if len(skipped) > _MAX_NAMED else "")
            said = (
                f"{numbers.counted(len(skipped), 'row')} of the sheet ({shown}) have no label "
                "although later ones have: label them too, since rows that were hard to decide are "
                "missing otherwise"
            )
            rows = replace(rows, notes=(*rows.notes, said))
        found = [_means(rows, context)]
        if not rows.is_pairs and len(rows.names) > 1:
            found.append(_differences(rows, context))
        return found


def _means(rows: LabelledRows, context: Context) -> Table:
    """Labels alone, the judge alone and both, by model or pair."""
    level, notes = context.confidence_level, list(rows.notes)
    form: Form = "percent" if rows.is_pairs else "number"
    mean_of = share_over if rows.is_pairs else clustered_mean
    few, useless = [], []
    lines: list[list[Cell]] = []
    for name in rows.names:
        data = rows.data(name)
        both, alone = corrected_mean(data), corrected_mean(data, tuning=0.0)
        known = worth(both, alone)
        lines.append(
            [
                name,
                measured(both.estimate(level, is_share=rows.is_pairs)),
                measured(alone.estimate(level, is_share=rows.is_pairs)),
                measured(mean_of(data.scores, data.prompts, level)),
                measured(clustered_mean(data.scores - data.labels, data.prompts, level)),
                both.n_labels,
                None if np.isnan(known) else round(known),
                None if np.isnan(both.tuning) else both.tuning,
            ]
        )
        if alone.labelled.n < APPROXIMATE_BELOW:
            few.append(name)
        elif hardly_correlates(data):
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
            measured(both[first].minus(both[second]).estimate(level)),
            measured(alone[first].minus(alone[second]).estimate(level)),
        ]
        for first, second in combinations(rows.names, 2)
    ]
    columns = table_columns("model | minus | corrected: signed 3 | labels alone: signed 3")
    notes = ["intervals over prompts, each for itself: with many pairs some leave out 0 by chance"]
    title = "Differences of models by human labels and judge"
    return make_table("human_labels.differences", title, columns, lines, notes=notes)


class SelectiveAnalysis(Analysis[Selective]):
    """Selective judging: verdicts that can be kept at an error rate, by few labels of people."""

    cites = ("angelopoulos2021learn", "jung2024trust", "badshah2026scope")

    def check(self, items: Callable[[], Collection[str]], models: Collection[str]) -> None:
        """Refuse labels of items or models that the recipe lacks."""
        read_human_labels(Path(self.config.labels), items=items(), models=models)

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate what can be kept, and error rates by share."""
        rows, found = kept_verdicts(context, self.config)
        doubts = list(dict.fromkeys(self.config.doubts))
        curves = [self._curve(rows, *one, context) for one in zip(doubts, found, strict=True)]
        return [self._kept(rows, doubts, found, context), *curves]

    def _kept(
        self, rows: LabelledRows, doubts: Sequence[str], found: Sequence[Kept], context: Context
    ) -> Table:
        level, lines, said = context.confidence_level, list[list[Cell]](), []
        for risk in self.config.risk:
            which, at, is_certified = most_kept(found, risk, 1.0 - level)
            best, by = found[which], _DOUBTS[doubts[which]]
            share, rate = float(best.shares[at]), float(best.rates[at])
            if not is_certified:
                why = f"not shown of the surest {100 * share:.0f} %: label more, or allow more"
                lines.append([risk, Measured(None, why=why), *[None] * 4, best.n_prompts])
                continue
            n_labels, least = int(best.n_labels[at]), float(best.least[at])
            lines.append([risk, share, by, least, rate, n_labels, best.n_prompts])
            said.append(
                f"{100 * share:.0f} % of the verdicts are kept, at most {100 * risk:.4g} % of them "
                f"wrong ({100 * level:.4g} %): those from {least:.6f} on by their {by}"
            )
        if len(found) > 1:
            said.append("by: the doubt that keeps most; each has its part of the error")
        notes = [
            *said,
            f"{_ABOUT[self.config.about]}; each line for itself, for one look at the labels",
            "valid only if the labelled rows are a random choice of all, whatever the judge is "
            "worth; fixed-sequence tests from the surest verdicts on (learn then test)",
            "margin: |2 P(better) - 1| over both orders; agreement: 1 - |P - P| of the two; "
            "coverage: the lower of theirs; wrong: people name the other answer; a tie on one side "
            "is half",
            *rows.notes,
        ]
        title = f"Verdicts of {rows.source} that can be kept"
        basis = f"{len(rows.frame):,} verdicts · {prompt_words(rows.frame)}"
        return make_table("selective", title, _KEPT, lines, basis=basis, notes=notes)

    def _curve(self, rows: LabelledRows, doubt: str, found: Kept, context: Context) -> Table:
        error = 1.0 - context.confidence_level
        (_, bounds), risk = found.bounds(error), self.config.risk[len(self.config.risk) // 2]
        lines: list[list[Cell]] = [
            [
                100.0 * share,
                margin,
                None if np.isnan(rate) else 100.0 * rate,
                100.0 * bound,
                int(n_labels),
                labels_needed(share, rate, risk, error),
            ]
            for share, margin, rate, bound, n_labels in zip(
                *(one.tolist() for one in (found.shares, found.least, found.rates, bounds)),
                found.n_labels,
                strict=True,
            )
        ]
        notes = [
            "upper bound: of each share for itself, one-sided",
            f"labels needed: of all verdicts, for at most {100 * risk:.4g} % wrong, if errors go "
            "on like that and with a label a prompt; decide on the number before you label",
        ]
        drawn = Curves(_CURVE[0].name, (_CURVE[2].name, _CURVE[3].name), "wrong verdicts, %")
        by = "" if doubt == "margin" else f" by {_DOUBTS[doubt]}"
        title = f"Error rate by share of the verdicts of {rows.source} that is kept{by}"
        key = "selective.curve" + ("" if doubt == "margin" else f".{doubt}")
        return make_table(key, title, _CURVE, lines, notes=notes, curves=drawn)
