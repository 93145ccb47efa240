"""Settings of a judge compared on a sample: which one answers in the form asked, and steadily.

The recipe has one judging method for each setting (prompt, prefix, labels, chain of thought,
examples) over the same few items. Each gets the probability on its labels, its flips with the
order, its missing judgments, and the verdict of the rule on judges; its accuracy where the better
answer is known; and its agreement with every other setting. Shares have intervals over prompts.

A setting that is best on a sample is best partly by chance: take one that is clearly better, and
read the verdict of the whole run again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from orchestrator.ranking.preferences import Preferences, judged_rows, preferences
from orchestrator.ranking.winners import judging_sources, truths
from orchestrator.records import Floats
from orchestrator.statistics.agreement import cohen_kappa
from orchestrator.statistics.means import clustered_share
from orchestrator.statistics.results import Estimate
from orchestrator.statistics.trust import Trust
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


@dataclass(frozen=True, slots=True)
class _Setting:
    """One method with one judge.

    Attributes:
        name: What tables call it.
        trust: The verdict on the judge with this setting; None where the run has none.
        pairs: What it judged.
        credits: Shape (n,), 1 for a right verdict, 0.5 for a tie and 0 for a wrong one; nan where
            neither answer is known to be better.
    """

    name: str
    trust: Trust | None
    pairs: Preferences
    credits: Floats


class JudgePromptsAnalysis(Analysis[Config]):
    """Settings of a judge compared: form, order effects, accuracy, agreement."""

    def summarise(self, context: Context) -> list[Table]:
        """Return a row a setting, and the agreement of every two settings."""
        settings = list(_settings(context, self.config))
        return [_compared(settings, context), _agreement(settings, context)]


def _settings(context: Context, config: Config) -> Iterator[_Setting]:
    for source in judging_sources(context, config.methods):
        found = preferences(judged_rows(context, source))
        judges = list(found.by_judge())
        trusts = {trust.judge: trust for trust in context.trust.get(source.name, ())}
        for judge, of_judge in judges:
            name = source.name if len(judges) == 1 else f"{source.name} · {judge}"
            credits_of = np.full(len(of_judge.rows), np.nan)
            if config.winner is not None:
                truth = truths(context, config.winner, of_judge.rows, source.name)
                known = np.abs(truth) == 1.0
                decisions = of_judge.decisions(of_judge.mean)
                credits_of[known] = 0.5 + 0.5 * decisions[known] * truth[known]
            yield _Setting(name, trusts.get(judge), of_judge, credits_of)


def _compared(settings: Sequence[_Setting], context: Context) -> Table:
    lines: list[list[Cell]] = []
    for one in settings:
        trust, rows = one.trust, one.pairs.rows
        coverage = rows["coverage"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        flips: Cell = Measured(None, why="no order is read")
        if trust is not None and trust.n_pairs:
            flips = without_n(measured(trust.flips))
        accuracy: Cell = Measured(None, why="not known")
        if np.isfinite(one.credits).any():
            accuracy = without_n(measured(_share(one.credits, rows, context)))
        lines.append(
            [
                one.name,
                "" if trust is None else trust.verdict,
                without_n(measured(_share(coverage, rows, context))),
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


def _share(values: Floats, rows: pl.DataFrame, context: Context) -> Estimate:
    """Return the mean of values in [0, 1], nan left out, with an interval over prompts."""
    known = np.isfinite(values)
    prompts = np.unique(codes(rows[CLUSTER])[known], return_inverse=True)[1].reshape(-1)
    counts = np.bincount(prompts).astype(np.float64)
    sums = np.bincount(prompts, np.clip(values[known], 0.0, 1.0)).astype(np.float64)
    return clustered_share(sums, counts, context.confidence_level)


def _agreement(settings: Sequence[_Setting], context: Context) -> Table:
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
            share = without_n(measured(_share(alike, both, context)))
        lines.append([one.name, two.name, share, kappa, len(both)])
    notes = ["decisions by the mean of both orders; settings can agree and both be wrong"]
    return make_table(
        "judge_prompts.agreement", "Agreement of the settings", _AGREEMENT, lines, notes=notes
    )
