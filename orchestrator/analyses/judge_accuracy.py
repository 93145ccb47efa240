"""Accuracy of judges in naming the better answer, by setting and estimator: mean against mode.

The rule for ties. Pairs whose label is a tie have no right verdict and are left out (their number
is given). A verdict that is a tie counts half: it is what a coin would get. What a judge did not
judge is missing, not wrong. The rule of the paper (Wang, Zhang and Choi 2025, arXiv
2503.03064) was not at hand (2026-11-28), so its figures may differ by it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import msgspec
import numpy as np
import polars as pl

from orchestrator.analyses.judge_benchmark import sections_of
from orchestrator.clusters import CLUSTER, OVER, codes, prompt_words
from orchestrator.methods._judging import JudgeMethod
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Measured,
    Source,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.preferences import (
    PAIRWISE,
    POINTWISE,
    SCORES,
    WORDS,
    judged_rows,
    mass,
    preferences,
)
from orchestrator.ranking.winners import JudgedWinner, judging_sources, truths
from orchestrator.records import Floats
from orchestrator.statistics.correlation import Comparison, compare_accuracies, holm_adjusted
from orchestrator.statistics.means import clustered_mean, clustered_share
from orchestrator.statistics.resampling import Resampling
from orchestrator.tables import measured, with_interval

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


class Config(JudgedWinner):
    """Settings of `judge_accuracy`."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """One method with one judge, on the pairs whose better answer is known.

    Attributes:
        name: What tables call it.
        source: The method.
        judge: Name.
        rows: Columns item, cluster, turn, category, pair (its models in alphabetical order) and
            coverage.
        credits: By estimator, shape (n,): 1 for a right verdict, 0.5 for a tie, 0 for a wrong one.
        errors: By estimator in [-1, 1], shape (n,): squared, from 0 for a sure and right one to 1
            for a sure and wrong one.
        n_ties: Pairs left out, because neither answer is better.
        n_unknown: Pairs left out, because it is not known.
        n_missing: Pairs that were not judged.
    """

    name: str
    source: Source
    judge: str
    rows: pl.DataFrame
    credits: dict[str, Floats]
    errors: dict[str, Floats]
    n_ties: int
    n_unknown: int
    n_missing: int


class JudgeAccuracyAnalysis(Analysis[Config]):
    """By setting and estimator, mean against mode and so on."""

    def summarise(self, context: Context) -> list[Table]:
        """Accuracy by setting and estimator, intervals, and what each choice is worth."""
        settings = list(_settings(context, self.config))
        tables = []
        for estimators, kind in ((POINTWISE, "pointwise"), ((*PAIRWISE, SCORES), "pairwise")):
            mine = [setting for setting in settings if set(estimators) >= set(setting.credits)]
            if mine:
                tables.append(_accuracies(mine, estimators, kind))
        tables.append(_intervals(settings, context))
        tables.append(_errors(settings, context))
        tables.append(_contrasts(settings, context))
        tables += _categories(settings, context)
        tables += _reasoning(settings, context)
        return tables


def _settings(context: Context, config: Config) -> Iterator[_Setting]:
    for source in judging_sources(context, config.methods):
        found = preferences(judged_rows(context, source))
        for name, judge, of_judge in found.settings(source.name):
            truth = truths(context, config.winner, of_judge.rows, source.name)
            kept = np.abs(truth) == 1.0
            pair = pl.concat_list("model_a", "model_b").list.sort().list.join("\x1f")
            columns = of_judge.rows.select("item", *OVER, "turn", "category", "coverage", pair=pair)
            credits_of = {
                estimator: 0.5 + 0.5 * of_judge.decisions(estimator)[kept] * truth[kept]
                for estimator in of_judge.estimators
            }
            errors_of = {
                estimator: 0.25 * (of_judge.values(estimator)[kept] - truth[kept]) ** 2
                for estimator in of_judge.estimators
                if estimator != SCORES
            }
            yield _Setting(
                name,
                source,
                judge,
                columns.filter(pl.Series(kept)),
                credits_of,
                errors_of,
                n_ties=int((truth == 0.0).sum()),
                n_unknown=int(np.isnan(truth).sum()),
                n_missing=of_judge.n_missing,
            )


def _accuracies(settings: Sequence[_Setting], estimators: Sequence[str], kind: str) -> Table:
    """The table of the paper: a row a setting, a column an estimator."""
    estimators = [one for one in estimators if any(one in of.credits for of in settings)]
    by_estimator = (Column(_SHORT.get(name, WORDS[name]), "number") for name in estimators)
    columns = (*table_columns("setting | pairs: count | coverage"), *by_estimator)
    lines: list[list[Cell]] = []
    for setting in settings:
        given = map(setting.credits.get, estimators)
        means = [None if one is None or not one.size else float(one.mean()) for one in given]
        lines.append([setting.name, len(setting.rows), mass(setting.rows["coverage"]), *means])
    first = settings[0]
    left_out = f"{first.n_ties:,} pairs labelled as ties are excluded"
    notes = [
        "accuracy: share of correct verdicts, tied verdicts counting half; pairs labelled as ties "
        "are excluded"
    ]
    notes += [
        f"{setting.name}: {setting.n_missing:,} pairs were not judged"
        for setting in settings
        if setting.n_missing
    ]
    notes += [
        f"{setting.name}: of {setting.n_unknown:,} pairs the better answer is unknown"
        for setting in settings
        if setting.n_unknown
    ]
    return make_table(
        f"judge_accuracy.{kind}",
        f"Accuracy of the judge, {kind}",
        columns,
        lines,
        basis=f"{prompt_words(first.rows)} · {left_out}",
        notes=notes,
    )


def _intervals(settings: Sequence[_Setting], context: Context) -> Table:
    columns = table_columns(
        "setting | estimator | accuracy: percent | tied verdicts: percent | pairs: count"
    )
    lines: list[list[Cell]] = []
    for setting in settings:
        prompts = codes(setting.rows[CLUSTER])
        counts = np.bincount(prompts).astype(np.float64)
        for name, credit in setting.credits.items():
            share, tied = Measured(None, why="no pair has a better answer"), None
            if credit.size:
                sums = np.bincount(prompts, credit).astype(np.float64)
                share = measured(clustered_share(sums, counts, context.confidence_level))
                tied = float((credit == 0.5).mean())
            lines.append([setting.name, WORDS[name], without_n(share), tied, len(credit)])
    return make_table(
        "judge_accuracy.intervals",
        "Accuracy with its interval",
        columns,
        lines,
        notes=["intervals: over prompts, by Gaffke's test of a bounded mean; for these judges"],
    )


def _errors(settings: Sequence[_Setting], context: Context) -> Table:
    """Return the squared errors of the estimators: sureness counts, unlike in the accuracy."""
    columns = table_columns(
        "setting | estimator | mean squared error: number 3",
        "minus that of the mode: signed 3 | pairs: count",
    )
    lines: list[list[Cell]] = []
    for setting in settings:
        prompts, level = codes(setting.rows[CLUSTER]), context.confidence_level
        for name, error in setting.errors.items():
            mean = measured(clustered_mean(error, prompts, level))
            of_mode = setting.errors.get(_MODES.get(name, "mode"))
            change = None
            if of_mode is not None and not name.startswith("mode"):
                change = without_n(measured(clustered_mean(error - of_mode, prompts, level)))
            lines.append([setting.name, WORDS[name], without_n(mean), change, len(error)])
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


def _contrasts(settings: Sequence[_Setting], context: Context) -> Table:
    """The mean against the mode, and averaging before against averaging after."""
    found: list[tuple[str, str, str, Comparison]] = []
    for setting in settings:
        prompts = codes(setting.rows[CLUSTER])
        for one, two in _CONTRASTS:
            if one in setting.credits and two in setting.credits:
                comparison = compare_accuracies(
                    setting.credits[one], setting.credits[two], prompts, _resampling(context)
                )
                found.append((setting.name, WORDS[one], WORDS[two], comparison))
    table = _comparison_table(
        "judge_accuracy.contrasts", "Mean against mode, before against after", found
    )
    against_mode = [one for one in found if one[2].startswith("mode")]
    return _with_count(table, "the mean is more accurate than the mode", against_mode, context)


def _categories(settings: Sequence[_Setting], context: Context) -> list[Table]:
    """Tabulate the mean against the mode in each section; [] if there is only one."""
    named = pl.concat([setting.rows["category"] for setting in settings]).drop_nulls().unique()
    sections = sections_of(sorted(named.to_list()))
    if len(set(sections.values())) < 2:
        return []
    lines: list[list[Cell]] = []
    against_mode = [pair for pair in _CONTRASTS if pair[1].startswith("mode")]
    for setting in settings:
        section = setting.rows["category"].replace(sections)
        prompts = codes(setting.rows[CLUSTER])
        for name in dict.fromkeys(sections.values()):
            mine = (section == name).fill_null(value=False).to_numpy()
            for one, two in against_mode:
                if not {one, two} <= setting.credits.keys() or not mine.any():
                    continue
                first, second = (setting.credits[which][mine] for which in (one, two))
                found = compare_accuracies(first, second, prompts[mine], _resampling(context))
                gain = with_interval(found.value, found.interval, why=found.undefined)
                how = WORDS[one].partition(", ")[2]
                lines.append(
                    [name, setting.name, how, found.first, found.second, gain, int(mine.sum())]
                )
    if not lines:
        return []  # such as of reward models, whose preferences have no mode
    notes = ["difference: accuracy of the mean minus that of the mode; interval over prompts"]
    title = "Mean against mode by section"
    return [make_table("judge_accuracy.categories", title, _SECTIONS, lines, notes=notes)]


def _reasoning(settings: Sequence[_Setting], context: Context) -> list[Table]:
    """Without reasoning against with it, where two settings differ in nothing else."""
    found: list[tuple[str, str, str, Comparison]] = []
    by_mean = []
    keys = ["item", "turn", "pair"]
    for one, two in permutations(settings, 2):
        plain, reasoning = one.source.method, two.source.method
        if one.judge != two.judge or not isinstance(plain, JudgeMethod):
            continue
        if not plain.differs_in_reasoning(reasoning):
            continue
        for name in one.credits:
            # The same estimator in both settings, on the pairs that both have
            both = one.rows.select(*keys, *OVER, first=pl.Series(one.credits[name])).join(
                two.rows.select(*keys, second=pl.Series(two.credits[name])),
                on=keys,
                maintain_order="left",
            )
            first, second = (
                both[side].to_numpy().astype(np.float64) for side in ("first", "second")
            )
            prompts = codes(both[CLUSTER])
            comparison = compare_accuracies(first, second, prompts, _resampling(context))
            found.append((WORDS[name], one.name, two.name, comparison))
            if name in ("mean", "mean_pre"):
                by_mean.append(found[-1])
    if not found:
        return []
    table = _comparison_table(
        "judge_accuracy.reasoning", "Without reasoning against with it", found
    )
    return [_with_count(table, "without reasoning the mean is more accurate", by_mean, context)]


def _comparison_table(
    key: str, title: str, found: Sequence[tuple[str, str, str, Comparison]]
) -> Table:
    adjusted = holm_adjusted([comparison for *_, comparison in found])
    lines: list[list[Cell]] = [
        [
            setting,
            first,
            second,
            with_interval(comparison.value, comparison.interval, why=comparison.undefined),
            comparison.p_value,
            p,
        ]
        for (setting, first, second, comparison), p in zip(found, adjusted, strict=True)
    ]
    notes = [
        "difference: first accuracy minus second, on shared pairs; interval over prompts; p: "
        "by flipping signs of prompts"
    ]
    return make_table(key, title, _COMPARED, lines, notes=notes)


def _with_count(
    table: Table, what: str, found: Sequence[tuple[str, str, str, Comparison]], context: Context
) -> Table:
    """The table with a sentence on how often a claim holds, and how often surely."""
    values = [comparison.value for *_, comparison in found if comparison.value is not None]
    if not values:
        return table
    adjusted = holm_adjusted([comparison for *_, comparison in found])
    surely = sum(
        p is not None and p < 1 - context.confidence_level and (one[3].value or 0.0) > 0
        for one, p in zip(found, adjusted, strict=True)
    )
    better, equal = sum(value > 0 for value in values), sum(value == 0 for value in values)
    said = f"{what} in {better} of {len(values)} cases ({equal} equal); significantly in {surely}"
    return msgspec.structs.replace(table, notes=(said, *table.notes))


def _resampling(context: Context) -> Resampling:
    return Resampling(context.n_resamples, context.rng(), context.confidence_level)
