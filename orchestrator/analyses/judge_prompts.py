"""Settings of a judge compared on a sample: which one answers in the form asked, and steadily.

The recipe has one judging method for each setting (prompt, prefix, labels, chain of thought,
examples) over the same few items. Each gets the probability on its labels, its flips with the
order, its missing judgments, and the verdict of the rule on judges; its accuracy where the better
answer is known; and its agreement with every other setting. Shares have intervals over prompts.

A setting that is best on a sample is best partly by chance: take one that is clearly better, and
read the verdict of the whole run again.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.clusters import CLUSTER, OVER, codes, prompt_words
from orchestrator.contracts.settings import Winner
from orchestrator.plugin import (
    Analysis,
    Cell,
    Context,
    Measured,
    Settings,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.winners import Judged, judged_settings
from orchestrator.statistics.agreement import cohen_kappa
from orchestrator.statistics.means import share_over
from orchestrator.tables import measured

_PAIR: Final = ("item", "turn", "model_a", "model_b")
_COLUMNS: Final = table_columns(
    "setting | verdict | on the labels: percent | flips: percent | decided: count",
    "missing: count | accuracy: percent | judgments: count",
)
_AGREEMENT: Final = table_columns(
    "setting | setting | same decision: percent | kappa: signed 2 | pairs: count"
)


class Config(Settings):
    """Settings of `judge_prompts`."""

    methods: tuple[str, ...] = Field(
        (), description="Names of judging methods of this recipe, one a setting. Default: all."
    )
    winner: Winner | None = Field(
        None, description="Source of the better answer, where it is known. Default: not known."
    )


class JudgePromptsAnalysis(Analysis[Config]):
    """Settings of a judge compared: form, order effects, accuracy, agreement."""

    def summarise(self, context: Context) -> list[Table]:
        """Return a row a setting, and the agreement of every two settings."""
        settings = judged_settings(context, self.config.methods, self.config.winner)
        return [_compared(settings, context), _agreement(settings, context)]


def _compared(settings: Sequence[Judged], context: Context) -> Table:
    lines: list[list[Cell]] = []
    for one in settings:
        trusts = {trust.judge: trust for trust in context.trust.get(one.source.name, ())}
        trust = trusts.get(one.judge)
        rows, prompts, level = one.pairs.rows, one.pairs.prompts(), context.confidence_level
        coverage = rows["coverage"].cast(pl.Float64).fill_null(np.nan).clip(0.0, 1.0).to_numpy()
        flips: Cell = Measured(None, why="no order is read")
        if trust is not None and trust.n_pairs:
            flips = without_n(measured(trust.flips))
        accuracy: Cell = Measured(None, why="not known")
        if len(one.known.truth):
            credit, of_known = one.known.credits(one.pairs.mean), one.known.pairs.prompts()
            accuracy = without_n(measured(share_over(credit, of_known, level)))
        lines.append(
            [
                one.name,
                "" if trust is None else trust.verdict,
                without_n(measured(share_over(coverage, prompts, level))),
                flips,
                None if trust is None else trust.n_decided,
                None if trust is None else trust.n_missing,
                accuracy,
                len(rows),
            ]
        )
    basis = prompt_words(settings[0].pairs.rows)
    notes = [
        "on the labels: mean probability, of the order with less of it",
        "flips: of the pairs that are decided in both orders; each side of the interval errs with "
        "1 - confidence level, as in the verdict; a judge that sees only the order flips in half "
        "or more",
        "accuracy: share of pairs whose better answer is named, a tie counting half",
        "the best of several settings is best partly by chance: look at the verdict of the whole "
        "run again",
    ]
    return make_table(
        "judge_prompts", "Settings of the judge", _COLUMNS, lines, basis=basis, notes=notes
    )


def _agreement(settings: Sequence[Judged], context: Context) -> Table:
    """Tabulate how often two settings decide alike, on the pairs that both judged."""
    lines: list[list[Cell]] = []
    for one, two in combinations(settings, 2):
        first, second = (
            setting.pairs.rows.select(
                *_PAIR, *OVER, pl.Series(name, setting.pairs.decisions(setting.pairs.mean))
            )
            for setting, name in ((one, "first"), (two, "second"))
        )
        both = first.join(second.drop(OVER), on=_PAIR, maintain_order="left")
        alike = (both["first"] == both["second"]).cast(pl.Float64).to_numpy()
        level = context.confidence_level
        decided = both["first"].to_numpy(), both["second"].to_numpy()
        kappa = without_n(measured(cohen_kappa(*decided, codes(both[CLUSTER]), level)))
        share: Cell = Measured(None, why="no pair in common")
        if len(both):
            share = without_n(measured(share_over(alike, codes(both[CLUSTER]), level)))
        lines.append([one.name, two.name, share, kappa, len(both)])
    notes = ["decisions by the mean of both orders; settings can agree and both be wrong"]
    return make_table(
        "judge_prompts.agreement", "Agreement of the settings", _AGREEMENT, lines, notes=notes
    )
