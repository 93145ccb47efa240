"""Audit of judges from stored rows: cycles among models, scores against comparisons, verbosity.

A consistent judge does not prefer A to B, B to C and C to A on one item, and gives the answer that
it prefers the higher score. A fair one does not prefer an answer for its length. Order effects
stand in the tables of each judging method.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.analyses._audit_ratings import CITES, RatingIntervals, rating_tables
from orchestrator.clusters import CLUSTER, OVER, codes, prompt_words
from orchestrator.plugin import (
    Analysis,
    Cell,
    Context,
    Settings,
    Source,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import share_of, without_n
from orchestrator.ranking.preferences import SOFT, Preferences, judged_rows, preferences
from orchestrator.ranking.style import controllable, styles_of, with_style
from orchestrator.ranking.winners import judging_sources
from orchestrator.statistics.agreement import raw_agreement
from orchestrator.statistics.bradley_terry import fit_style
from orchestrator.statistics.correlation import correlate
from orchestrator.statistics.multiple import holm
from orchestrator.statistics.orders import Verdicts, count_cycles
from orchestrator.statistics.resampling import Resampling
from orchestrator.tables import as_chance, measured, with_interval

# Verbosity of judges: how much the longer answer is preferred at equal ratings of its model.
#
# The effect of length is that of `style_control`, for each judge by itself and with no other
# feature.


_COLUMNS = table_columns(
    "method | judge | pairs: count | prefers the longer: percent | effect: signed 2",
    "against an equal answer: percent | p: p",
)


def length_table(context: Context, found: Sequence[tuple[Source, dict[str, Preferences]]]) -> Table:
    """Tabulate each judge's preference for longer answers, plain and at equal ratings."""
    lines: list[list[Cell]] = []
    p_values: list[float] = []
    left_out: list[str] = []
    basis = ""
    for source, by_judge in found:
        try:
            styles = styles_of(context, source)
        except UsageError as error:
            left_out.append(f"{source.name}: {str(error).removeprefix(f'{context.name}: ')}")
            continue
        for judge, mine in by_judge.items():
            longer = with_style(mine, styles)
            if longer.rows.is_empty():
                left_out.append(f"{source.name}, {judge}: the run has no texts of these answers")
                continue
            line, p, why = _line(longer, context.confidence_level)
            lines.append([source.name, judge, *line])
            p_values.append(p)
            left_out += [f"{source.name}, {judge}: {note}" for note in why]
            basis = basis or prompt_words(longer.rows)
    for line, p in zip(lines, holm(np.array(p_values)), strict=True):
        line.append(None if np.isnan(p) else float(p))
    notes = [
        "pairs: of answers of unlike length; prefers the longer: mean preference on these pairs, a "
        "tie as one half; 50 % is none",
        "effect: log-odds for the longer answer of a difference of one spread (root mean square) "
        "in length, (a - b) / (a + b + 1) of characters, at equal ratings of the two models; "
        "against an equal answer: the same as a probability",
        "p: of no effect, Holm over this table; intervals over prompts",
        "an effect is no proof of a bias: the better of a model's answers may be the longer ones",
        *left_out,
    ]
    title = "Does each judge prefer longer answers?"
    return make_table("judge_audit.length", title, _COLUMNS, lines, basis=basis, notes=notes)


def _line(found: Preferences, level: float) -> tuple[list[Cell], float, tuple[str, ...]]:
    """Return one judge's cells from the count of pairs on, the effect's p-value, and omissions."""
    differing = found.rows.filter(pl.col("length_a") != pl.col("length_b"))
    a_longer = pl.col("length_a") > pl.col("length_b")
    soft = pl.col(SOFT).clip(0.0, 1.0)
    plain = share_of(differing, pl.when(a_longer).then(soft).otherwise(1.0 - soft), level)
    cells: list[Cell] = [len(differing), without_n(plain)]
    styled = controllable(found, ("length",))
    fit = fit_style(styled.pairs) if styled.features else None
    if fit is None:
        why = styled.notes or ("no effect of length: models and length decide every pair",)
        return [*cells, None, None], np.nan, why
    value, interval = float(fit.effects[0]), fit.interval(len(fit.strengths), level)
    cells += [with_interval(value, interval), as_chance(value, interval)]
    return cells, fit.p_value(0), styled.notes


_KEYS: Final = ["item", "turn", "model_a", "model_b"]


class Config(Settings):
    """Settings of `judge_audit`."""

    methods: tuple[str, ...] = Field(
        (), description="Names of judging methods of this recipe. Default: all."
    )
    ratings: RatingIntervals | None = Field(
        None,
        description="Conformal intervals of ratings, from gold of some answers. Default: none.",
    )


class JudgeAuditAnalysis(Analysis[Config]):
    """Consistency of each judge with itself."""

    cites = ("kendall1940paired", "li2024style", *CITES)

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate cycles, scores against comparisons, verbosity and intervals of ratings."""
        sources = judging_sources(context, self.config.methods)
        found = {source.name: _judged(context, source) for source in sources}
        if not any(found.values()):
            raise UsageError(f"{context.name}: no judge judged two different answers")
        scored = [s for s in sources if s.method.pairs is None and s.method.distribution]
        compared = [s for s in sources if s.method.pairs is not None]
        tables = _transitivity(context, found)
        lines = [
            line
            for one, two in product(scored, compared)
            for line in _scores(context, one, two, found)
        ]
        if lines:
            tables.append(_scores_table(lines))
        tables.append(length_table(context, [(s, found[s.name]) for s in sources]))
        if self.config.ratings is not None:
            tables += rating_tables(context, self.config.ratings, self.config.methods)
        return tables


def _judged(context: Context, source: Source) -> dict[str, Preferences]:
    rows = judged_rows(context, source)
    if rows.is_empty():
        return {}
    found = preferences(rows)
    differing = found.rows.filter(~pl.col("same_text").fill_null(value=False))
    return dict(replace(found, rows=differing).by_judge())


def _transitivity(context: Context, found: dict[str, dict[str, Preferences]]) -> list[Table]:
    """Tabulate the cycles of each judge; [] if no judge compared three models."""
    lines: list[list[Cell]] = []
    basis = ""
    for name, by_judge in found.items():
        for judge, mine in by_judge.items():
            rows, sides = mine.rows, mine.sides()
            if sides.n_models < 3:
                continue
            verdicts = Verdicts(
                sides.prompts,
                sides.first,
                sides.second,
                sides.n_models,
                codes(rows.select(pl.concat_str("item", "turn", separator="\x1f")).to_series()),
                mine.decisions(mine.mean),
            )
            resampling = Resampling(context.n_resamples, context.rng(), context.confidence_level)
            cycles = count_cycles(verdicts, resampling)
            lines.append(
                [
                    name,
                    judge,
                    cycles.n_triples,
                    without_n(measured(cycles.share)),
                    None if np.isnan(cycles.expected) else cycles.expected,
                    without_n(measured(cycles.excess)),
                ]
            )
            basis = basis or prompt_words(rows)
    if not lines:
        return []
    columns = table_columns(
        "method | judge | triples: count | cycles: percent | by chance: percent", "excess: signed 3"
    )
    notes = [
        "triples: of models on one item, their three answers different and no verdict a tie, by "
        "the mean; cycles: A over B, B over C and C over A",
        "by chance: if each verdict were drawn by the Bradley-Terry model of the judge's verdicts, "
        "25 % for equal models; far fewer are usual, since items differ too; more than that is a "
        "contradiction no ranking can hold",
        "intervals over prompts: of cycles by Gaffke's test of a bounded mean, of the excess a "
        "bootstrap in which the model is fitted anew, no narrower than that of cycles",
    ]
    title = "Does each judge order the models without cycles?"
    return [make_table("judge_audit", title, columns, lines, basis=basis, notes=notes)]


def _scores(
    context: Context, one: Source, two: Source, found: dict[str, dict[str, Preferences]]
) -> Iterator[list[Cell]]:
    """Tabulate each judge that both scored and compared the same answers."""
    for judge, scored in found[one.name].items():
        if judge not in found[two.name]:
            continue
        both = _on_the_same(scored, found[two.name][judge])
        if both.is_empty():
            continue
        gap, preferred, by_score, by_pair = (
            both[name].to_numpy().astype(np.float64)
            for name in ("gap", "preferred", "by_score", "by_pair")
        )
        prompts, level = codes(both[CLUSTER]), context.confidence_level
        agreed = raw_agreement(by_score, by_pair, prompts, level, ties=False)
        tau = correlate(gap, preferred, prompts, kind="kendall", confidence_level=level)
        yield [
            judge,
            one.name,
            two.name,
            len(both),
            without_n(measured(agreed)),
            float((by_score == 0).mean()),
            float((by_pair == 0).mean()),
            with_interval(tau.value, tau.interval, why=tau.undefined),
        ]


def _on_the_same(scored: Preferences, compared: Preferences) -> pl.DataFrame:
    """Return pairs of different answers with both judgments, in the sides of the comparisons."""

    def told(found: Preferences, names: tuple[str, str]) -> pl.DataFrame:
        soft, decision = names
        return found.rows.select(
            *_KEYS,
            *OVER,
            pl.Series(soft, found.values(SOFT) - 0.5),
            pl.Series(decision, found.decisions(found.mean)),
        )

    scores = told(scored, ("gap", "by_score")).drop(OVER)
    swapped = scores.rename({"model_a": "model_b", "model_b": "model_a"}).with_columns(
        -pl.col("gap"), -pl.col("by_score")
    )
    either = pl.concat([scores, swapped.select(scores.columns)])
    pairs = told(compared, ("preferred", "by_pair"))
    return pairs.join(either, on=_KEYS, maintain_order="left").drop_nans()


def _scores_table(lines: list[list[Cell]]) -> Table:
    columns = table_columns(
        "judge | scores | comparisons | pairs: count | same side: percent",
        "equal scores: percent | tied comparisons: percent | tau-b: signed 2",
    )
    notes = [
        "same side: of the pairs that both decide, by their means, the share in which the judge "
        "rates the answer higher that it prefers; one half is chance",
        "tau-b: Kendall's, of P(higher score) and the preference; intervals over prompts; pairs of "
        "equal answers are excluded",
    ]
    title = "Do scores and comparisons of one judge agree?"
    return make_table("judge_audit.scores", title, columns, lines, notes=notes)
