"""Selective judging: verdicts that can be kept at an error rate, by few labels of people."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.plugin import Analysis, Cell, Context, Measured, Table, make_table, table_columns
from orchestrator.ranking.human_labels import read_human_labels
from orchestrator.ranking.labelled import LabelledRows, Selective, kept_verdicts
from orchestrator.statistics.selective import Kept, labels_needed, most_kept
from orchestrator.tables import Curves

_NEXT: Final = 10
_KEPT: Final = table_columns(
    "wrong at most: percent | kept: percent | by | from: number 6 | wrong labels: percent",
    "labels: count | prompts: count",
)
_CURVE: Final = table_columns(
    "kept, %: number 1 | from: number 6 | wrong labels, %: number 1",
    "upper bound, %: number 1 | labels: count | labels needed: count",
)
_NEXT_ROWS: Final = table_columns("item | turn: count | first | second | margin: number 3")
_DOUBTS: Final = {"margin": "margin", "orders": "agreement of the orders", "coverage": "coverage"}
_ABOUT: Final = {
    "prompts": "for verdicts on such prompts, new ones too: each prompt with a label counts once, "
    "its verdicts may depend on each other",
    "run": "for the verdicts of this run alone, whatever depends on what",
}


class SelectiveAnalysis(Analysis[Selective]):
    """The share of verdicts to keep, so that few of the kept ones are wrong; the rest to people."""

    cites = ("angelopoulos2021learn", "jung2024trust", "badshah2026scope")

    def check(self, items: Callable[[], Collection[str]], models: Collection[str]) -> None:
        """Refuse labels of items or models that the recipe lacks."""
        read_human_labels(Path(self.config.labels), items=items(), models=models)

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate what can be kept, error rates by share, and the verdicts to label next."""
        rows, found = kept_verdicts(context, self.config)
        doubts = list(dict.fromkeys(self.config.doubts))
        curves = [self._curve(rows, *one, context) for one in zip(doubts, found, strict=True)]
        return [self._kept(rows, doubts, found, context), *curves, self._next(rows, context)]

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

    def _next(self, rows: LabelledRows, context: Context) -> Table:
        """Verdicts without a label in random order, as the guarantee needs them."""
        left = rows.frame.filter(pl.col("label").is_null())
        drawn = left[context.rng().permutation(len(left))[:_NEXT].tolist()]
        lines = drawn.select("item", "turn", "first", "second", "margin").rows()
        notes = [
            "drawn at random: labels of unsure verdicts alone would say nothing of the kept ones; "
            "go on with a sheet in its order where there is one"
        ]
        title = "Verdicts to label next"
        return make_table("selective.next", title, _NEXT_ROWS, lines, notes=notes)
