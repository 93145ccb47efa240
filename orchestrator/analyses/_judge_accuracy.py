"""Accuracy and calibration of judges in naming the better answer, and their settings compared.

The rule for ties. Pairs whose label is a tie have no right verdict and are left out (their number
is given). A verdict that is a tie counts half: it is what a coin would get. What a judge did not
judge is missing, not wrong. The rule of the paper (Wang, Zhang and Choi 2025, arXiv
2503.03064) was not at hand (2026-11-28), so its figures may differ by it.

`judge_prompts` compares the settings of a judge on a sample. The recipe has one judging method for
each setting (prompt, prefix, labels, chain of thought, examples) over the same few items. Each gets
the probability on its labels, its flips with the order, its missing judgments, and the verdict of
the rule on judges; its accuracy where the better answer is known; and its agreement with every
other setting. Shares have intervals over prompts. A setting that is best on a sample is best partly
by chance: take one that is clearly better, and read the verdict of the whole run again.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.analyses._gold import Compared, compared_lines
from orchestrator.analyses.judge_benchmark import sections_of
from orchestrator.clusters import CLUSTER, OVER, codes, prompt_words
from orchestrator.contracts.settings import Winner
from orchestrator.methods._judging import by_reasoning
from orchestrator.numbers import finite
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Measured,
    Settings,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.preferences import PAIRWISE, POINTWISE, SCORES, WORDS, mass
from orchestrator.ranking.winners import Judged, JudgedWinner, calibrated, judged_settings, tables
from orchestrator.statistics.agreement import cohen_kappa
from orchestrator.statistics.correlation import compare_accuracies, holm_adjusted
from orchestrator.statistics.means import clustered_mean, share_over
from orchestrator.tables import measured

_SHORT: Final = {
    "rounded_mean": "[mean]",
    "median": "med",
    "first_percentile": "1p",
    "median_pre": "med, pre",
    "median_post": "med, post",
    SCORES: "scores",
}
_CONTRASTS: Final = (
    ("mean", "mode"),
    ("mean_pre", "mode_pre"),
    ("mean_post", "mode_post"),
    ("mean_pre", "mean_post"),
    ("mean_pre", SCORES),
    ("mean_pre", "margin"),
)

# The mode that other estimators of pairs are held against.
_MODES: Final = {
    name: f"mode_{name.rpartition('_')[2]}" for name in PAIRWISE if not name.startswith("mode")
} | dict.fromkeys(("margin", "davidson"), "mode_pre")
_PAIR: Final = ("item", "turn", "model_a", "model_b")
_SETTINGS: Final = table_columns(
    "setting | verdict | on the labels: percent | flips: percent | decided: count",
    "missing: count | accuracy: percent | judgments: count",
)
_AGREEMENT: Final = table_columns(
    "setting | setting | same decision: percent | kappa: signed 2 | pairs: count"
)


class JudgeAccuracyAnalysis(Analysis[JudgedWinner]):
    """Accuracy and calibration of judges in naming the better answer, by setting and estimator."""

    def summarise(self, context: Context) -> list[Table]:
        """Accuracy by setting and estimator, what each choice is worth, and calibration."""
        settings = judged_settings(context, self.config.methods, self.config.winner)
        found = []
        for estimators, kind in ((POINTWISE, "pointwise"), ((*PAIRWISE, SCORES), "pairwise")):
            mine = [one for one in settings if {*estimators} >= {*one.pairs.estimators}]
            if mine:
                found.append(_means(mine, estimators, kind))
        found.append(_intervals(settings, context))
        found.append(_errors(settings, context))
        found.append(_differences(settings, context))
        found += _categories(settings, context)
        found += _reasoning(settings, context)
        return found + tables(list(calibrated(settings, context.confidence_level)))


def _means(settings: Sequence[Judged], estimators: Sequence[str], kind: str) -> Table:
    """The table of the paper: a row a setting, a column an estimator."""
    estimators = [one for one in estimators if any(one in of.pairs.estimators for of in settings)]
    by_estimator = (Column(_SHORT.get(name, WORDS[name]), "number") for name in estimators)
    columns = (*table_columns("setting | pairs: count | coverage"), *by_estimator)
    lines: list[list[Cell]] = []
    for setting in settings:
        known, rows = setting.known, setting.known.pairs.rows
        means: list[Cell] = [
            float(known.credits(name).mean())
            if name in known.pairs.estimators and len(rows)
            else None
            for name in estimators
        ]
        lines.append([setting.name, len(rows), mass(rows["coverage"]), *means])
    n_ties = int((settings[0].truth == 0.0).sum())
    left_out = f"{n_ties:,} pairs labelled as ties are excluded"
    notes = [
        "accuracy: share of correct verdicts, tied verdicts counting half; pairs labelled as ties "
        "are excluded"
    ]
    notes += [
        f"{setting.name}: {setting.pairs.n_missing:,} pairs were not judged"
        for setting in settings
        if setting.pairs.n_missing
    ]
    notes += [
        f"{setting.name}: of {n_unknown:,} pairs the better answer is unknown"
        for setting in settings
        if (n_unknown := int(np.isnan(setting.truth).sum()))
    ]
    return make_table(
        f"judge_accuracy.{kind}",
        f"Accuracy of the judge, {kind}",
        columns,
        lines,
        basis=f"{prompt_words(settings[0].known.pairs.rows)} · {left_out}",
        notes=notes,
    )


def _intervals(settings: Sequence[Judged], context: Context) -> Table:
    columns = table_columns(
        "setting | estimator | accuracy: percent | tied verdicts: percent | pairs: count"
    )
    lines: list[list[Cell]] = []
    for setting in settings:
        prompts, level = setting.known.pairs.prompts(), context.confidence_level
        for name in setting.pairs.estimators:
            credit = setting.known.credits(name)
            share, tied = Measured(None, why="no pair has a better answer"), None
            if credit.size:
                share = measured(share_over(credit, prompts, level))
                tied = float((credit == 0.5).mean())
            lines.append([setting.name, WORDS[name], share, tied, len(credit)])
    return make_table(
        "judge_accuracy.intervals",
        "Accuracy with its interval",
        columns,
        lines,
        notes=["intervals: over prompts, by Gaffke's test of a bounded mean; for these judges"],
    )


def _errors(settings: Sequence[Judged], context: Context) -> Table:
    """Return the squared errors of the estimators: sureness counts, unlike in the accuracy."""
    columns = table_columns(
        "setting | estimator | mean squared error: number 3",
        "minus that of the mode: signed 3 | pairs: count",
    )
    lines: list[list[Cell]] = []
    for setting in settings:
        known, level = setting.known, context.confidence_level
        prompts = known.pairs.prompts()
        errors = {
            name: 0.25 * (known.pairs.values(name) - known.truth) ** 2
            for name in known.pairs.estimators
            if name != SCORES
        }
        for name, error in errors.items():
            mean = measured(clustered_mean(error, prompts, level))
            of_mode = errors.get(_MODES.get(name, "mode"))
            change = None
            if of_mode is not None and not name.startswith("mode"):
                change = measured(clustered_mean(error - of_mode, prompts, level))
            lines.append([setting.name, WORDS[name], mean, change, len(error)])
    notes = [
        "of the preference x in [-1, 1] for what is right, ((1 - x) / 2)²: 0 for a sure and right "
        "verdict, 0.25 for a tie, 1 for a sure and wrong one; intervals over prompts (jackknife, "
        "Student's t)"
    ]
    title = "Mean squared error of the judge's preferences"
    return make_table("judge_accuracy.errors", title, columns, lines, notes=notes)


_COMPARED: Final = table_columns(
    "setting | first | second | difference: signed 3 | p: p | p (Holm): p"
)


_SECTIONS: Final = table_columns(
    "section | setting | aggregation | mean: percent | mode: percent",
    "difference: signed 3 | pairs: count",
)


def _differences(settings: Sequence[Judged], context: Context) -> Table:
    """The mean against the mode, and averaging before against averaging after."""
    found: list[Compared] = []
    for setting in settings:
        known, prompts = setting.known, setting.known.pairs.prompts()
        for one, two in _CONTRASTS:
            if {one, two} <= {*known.pairs.estimators}:
                comparison = compare_accuracies(
                    known.credits(one), known.credits(two), prompts, context.resampling()
                )
                found.append((setting.name, WORDS[one], WORDS[two], comparison))
    against_mode = [one for one in found if one[2].startswith("mode")]
    note = _count("the mean is more accurate than the mode", against_mode, context)
    return _compared(
        "judge_accuracy.contrasts", "Mean against mode, before against after", found, note
    )


def _categories(settings: Sequence[Judged], context: Context) -> list[Table]:
    """Tabulate the mean against the mode in each section; [] if there is only one."""
    rows = [setting.known.pairs.rows for setting in settings]
    named = pl.concat([one["category"] for one in rows]).drop_nulls().unique()
    sections = sections_of(sorted(named.to_list()))
    if len(set(sections.values())) < 2:
        return []
    lines: list[list[Cell]] = []
    against_mode = [pair for pair in _CONTRASTS if pair[1].startswith("mode")]
    for setting in settings:
        pairs = setting.known.pairs
        section, prompts = pairs.rows["category"].replace(sections), pairs.prompts()
        for name in dict.fromkeys(sections.values()):
            mine = (section == name).fill_null(value=False).to_numpy()
            for one, two in against_mode:
                if not {one, two} <= {*pairs.estimators} or not mine.any():
                    continue
                first, second = (setting.known.credits(which)[mine] for which in (one, two))
                found = compare_accuracies(first, second, prompts[mine], context.resampling())
                means, gain = (found.first, found.second), measured(found)
                how = WORDS[one].partition(", ")[2]
                lines.append([name, setting.name, how, *map(finite, means), gain, int(mine.sum())])
    if not lines:
        return []  # such as of reward models, whose preferences have no mode
    notes = ["difference: accuracy of the mean minus that of the mode; interval over prompts"]
    title = "Mean against mode by section"
    return [make_table("judge_accuracy.categories", title, _SECTIONS, lines, notes=notes)]


def _reasoning(settings: Sequence[Judged], context: Context) -> list[Table]:
    """Without reasoning against with it, where two settings differ in nothing else."""
    found: list[Compared] = []
    by_mean = []
    keys = ["item", "turn", "pair"]
    names = pl.col("model_a", "model_b").cast(pl.String)
    pair = pl.concat_list(names).list.sort().list.join("\x1f").alias("pair")
    for one, two in by_reasoning(settings, lambda of: (of.source.method, of.judge)):
        rows, others = (side.known.pairs.rows.with_columns(pair) for side in (one, two))
        for name in one.pairs.estimators:
            # The same estimator in both settings, on the pairs that both have
            first, second = (pl.Series(side.known.credits(name)) for side in (one, two))
            both = rows.select(*keys, *OVER, first=first).join(
                others.select(*keys, second=second), on=keys, maintain_order="left"
            )
            comparison = compare_accuracies(
                both["first"].to_numpy(),
                both["second"].to_numpy(),
                codes(both[CLUSTER]),
                context.resampling(),
            )
            found.append((WORDS[name], one.name, two.name, comparison))
            if name in ("mean", "mean_pre"):
                by_mean.append(found[-1])
    if not found:
        return []
    note = _count("without reasoning the mean is more accurate", by_mean, context)
    title = "Without reasoning against with it"
    return [_compared("judge_accuracy.reasoning", title, found, note)]


def _compared(key: str, title: str, found: Sequence[Compared], note: list[str]) -> Table:
    notes = [
        *note,
        "difference: first accuracy minus second, on shared pairs; interval over prompts; p: "
        "by flipping signs of prompts",
    ]
    return make_table(key, title, _COMPARED, compared_lines(found), notes=notes)


def _count(what: str, found: Sequence[Compared], context: Context) -> list[str]:
    """Say how often a claim holds, and how often surely; [] for nothing to count."""
    values = [one.value for *_, one in found if not math.isnan(one.value)]
    if not values:
        return []
    adjusted = holm_adjusted([comparison for *_, comparison in found])
    surely = sum(
        p is not None and p < 1 - context.confidence_level and one[3].value > 0.0
        for one, p in zip(found, adjusted, strict=True)
    )
    better, equal = sum(value > 0 for value in values), sum(value == 0 for value in values)
    return [f"{what} in {better} of {len(values)} cases ({equal} equal); significantly in {surely}"]


class JudgePromptsConfig(Settings):
    """Settings of `judge_prompts`."""

    methods: tuple[str, ...] = Field(
        (), description="Names of judging methods of this recipe, one a setting. Default: all."
    )
    winner: Winner | None = Field(
        None, description="Source of the better answer, where it is known. Default: not known."
    )


class JudgePromptsAnalysis(Analysis[JudgePromptsConfig]):
    """Settings of a judge compared on a sample: which one answers in the form asked, steadily."""

    def summarise(self, context: Context) -> list[Table]:
        """Return a row a setting, and the agreement of every two settings."""
        settings = judged_settings(context, self.config.methods, self.config.winner)
        return [_settings(settings, context), _agreement(settings, context)]


def _settings(settings: Sequence[Judged], context: Context) -> Table:
    lines: list[list[Cell]] = []
    for one in settings:
        trusts = {trust.judge: trust for trust in context.trust.get(one.source.name, ())}
        trust = trusts.get(one.judge)
        rows, prompts, level = one.pairs.rows, one.pairs.prompts(), context.confidence_level
        coverage = rows["coverage"].cast(pl.Float64).fill_null(np.nan).clip(0.0, 1.0).to_numpy()
        flips: Cell = Measured(None, why="no order is read")
        if trust is not None and trust.n_pairs:
            flips = measured(trust.flips)
        accuracy: Cell = Measured(None, why="not known")
        if len(one.known.truth):
            credit, of_known = one.known.credits(one.pairs.mean), one.known.pairs.prompts()
            accuracy = measured(share_over(credit, of_known, level))
        lines.append(
            [
                one.name,
                "" if trust is None else trust.verdict,
                measured(share_over(coverage, prompts, level)),
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
        "judge_prompts", "Settings of the judge", _SETTINGS, lines, basis=basis, notes=notes
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
        kappa = measured(cohen_kappa(*decided, codes(both[CLUSTER]), level))
        share: Cell = Measured(None, why="no pair in common")
        if len(both):
            share = measured(share_over(alike, codes(both[CLUSTER]), level))
        lines.append([one.name, two.name, share, kappa, len(both)])
    notes = ["decisions by the mean of both orders; settings can agree and both be wrong"]
    return make_table(
        "judge_prompts.agreement", "Agreement of the settings", _AGREEMENT, lines, notes=notes
    )
