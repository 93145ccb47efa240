"""Audit of judges from stored rows: cycles among models, and scores against comparisons.

A consistent judge does not prefer A to B, B to C and C to A on one item, and gives the answer that
it prefers the higher score. Order effects stand in the tables of each judging method, and what a
preference for long answers explains in `style_control`.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

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
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.preferences import SOFT, Preferences, judged_rows, preferences
from orchestrator.ranking.winners import judging_sources
from orchestrator.statistics.agreement import raw_agreement
from orchestrator.statistics.correlation import correlate
from orchestrator.statistics.orders import Verdicts, count_cycles
from orchestrator.statistics.resampling import Resampling
from orchestrator.tables import measured, with_interval

_KEYS: Final = ["item", "turn", "model_a", "model_b"]


class Config(Settings):
    """Settings of `judge_audit`."""

    methods: tuple[str, ...] = Field(
        (), description="Names of judging methods of this recipe. Default: all."
    )


class JudgeAuditAnalysis(Analysis[Config]):
    """Consistency of each judge with itself."""

    cites = ("kendall1940paired",)

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate cycles, and scores against comparisons."""
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
        if not tables:
            raise UsageError(
                f"{context.name}: no judge compared three models, or scored answers it compared"
            )
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
