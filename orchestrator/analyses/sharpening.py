"""Sharpening: entropy of a judge's distribution without reasoning and after it.

With p the distribution over a method's labels, renormalised over them, its entropy is

    H = -sum_k p_k ln p_k    in nats, from 0 (one label has all) to ln K (all K are alike)

Of a pair, H is the mean of both presentation orders. Methods that differ in nothing but their chain
of thought are compared on the judgments that both have. It works for every method with a
distribution over labels: scores, verdicts on pairs, and differences of two scores.

Source: Wang, Zhang and Choi, "Improving LLM-as-a-Judge Inference with the Judgment Distribution"
(arXiv 2503.03064): reasoning sharpens the distribution, "whereby the initial entropy in the
judgment is lost as the model commits to one instantiation of a reasoning trace". The write-up that
was at hand (2026-11-28) prints no measure of it; entropy is the one that its words name.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.clusters import CLUSTER, OVER, codes
from orchestrator.contracts.context import renamed
from orchestrator.methods._judging import JudgeMethod, by_reasoning
from orchestrator.numbers import finite
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
from orchestrator.ranking.cells import entropy, mean_of
from orchestrator.ranking.winners import judging_sources
from orchestrator.statistics.correlation import Comparison, compare_accuracies, holm_adjusted
from orchestrator.tables import measured

_OF_PAIRS: Final = ("turn", "judge", "model_a", "model_b", "p_ab", "p_ba")
_OF_SCORES: Final = ("turn", "judge", "model", "p")
_TWO: Final = 2
_UNITS: Final = ("model", "model_a", "model_b")
_FILLED: Final = {"turn": pl.lit(1, pl.Int64), "judge": pl.lit("")}

_ENTROPIES: Final = table_columns(
    "setting | labels: count | entropy, nats: number 3 | of the maximum: percent",
    "top label: percent | judgments: count | only bounded: count",
)
_COMPARED: Final = table_columns(
    "without reasoning | with it | entropy without: number 3 | entropy with: number 3",
    "difference: signed 3 | p: p | p (Holm): p | sharper: percent | judgments: count",
)


class Config(Settings):
    """Settings of `sharpening`."""

    methods: tuple[str, ...] = Field(
        (), description="Names of judging methods of this recipe. Default: all."
    )


_Setting = tuple[str, Source, str, pl.DataFrame]
"""One method with one judge: its name in tables, the method, the judge, and its rows.

Their columns are item, cluster, turn, unit (the models), entropy, top, exact and labels (K).
"""


class Kind(Analysis[Config]):
    """Entropy of the judge's distribution without reasoning and after it, in every mode."""

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate the entropy of each setting, and its change by reasoning alone."""
        settings = [
            setting
            for source in judging_sources(context, self.config.methods)
            for setting in _settings(context, source)
        ]
        if not settings:
            raise UsageError(f"{context.name}: no method of this recipe has a distribution")
        return [_means(settings, context), *_differences(settings, context)]


def _settings(context: Context, source: Source) -> Iterator[_Setting]:
    """Return the settings of a method's judges; [] if its rows hold no distribution."""
    pairs, scores = source.method.pairs, source.method.distribution
    role, wanted = (scores, _OF_SCORES) if pairs is None else (pairs, _OF_PAIRS)
    columns = {} if role is None else role.columns()
    columns = {name: column for name, column in columns.items() if name in wanted}
    lists = [name for name in ("p", "p_ab", "p_ba") if name in columns]
    if not lists:
        return
    rows = context.rows_of(source, ["item", "status", "exact", *columns.values()])
    if rows.is_empty():
        return
    rows = renamed(rows, columns).filter((pl.col("status") == "ok").fill_null(value=False))
    missing = {name: value for name, value in _FILLED.items() if name not in rows.columns}
    # Judgments of two labels can't tie: the level for ties is empty.
    method = source.method
    has_two = isinstance(method, JudgeMethod) and len(method.config.verdicts()) == _TWO
    missing |= {} if "exact" in rows.columns else {"exact": pl.lit(value=True)}
    unit = pl.concat_list([one for one in _UNITS if one in rows.columns])
    measured = (
        rows.with_columns(**missing)
        .select(
            "item",
            *OVER,
            "turn",
            "judge",
            "exact",
            unit=unit.list.sort().list.join("\x1f"),
            labels=pl.lit(_TWO) if has_two else pl.col(lists[0]).list.len(),
            entropy=pl.mean_horizontal(*map(entropy, lists), ignore_nulls=False),
            top=pl.mean_horizontal(*(pl.col(one).list.max() for one in lists)),
        )
        .filter(pl.col("entropy").is_finite().fill_null(value=False))
    )
    judges = measured["judge"].unique(maintain_order=True).to_list()
    for judge in judges:
        name = source.name if len(judges) == 1 else f"{source.name} · {judge}"
        yield name, source, str(judge), measured.filter(pl.col("judge") == judge)


def _means(settings: Sequence[_Setting], context: Context) -> Table:
    lines: list[list[Cell]] = []
    for name, _, _, rows in settings:
        most = np.log(rows["labels"].to_numpy().astype(np.float64))
        lines.append(
            [
                name,
                int(rows["labels"].max()),  # type: ignore[arg-type] # of whole numbers
                mean_of(rows, pl.col("entropy"), context.confidence_level),
                float((rows["entropy"].to_numpy() / most).mean()),
                float(rows["top"].mean()),  # type: ignore[arg-type] # of floats
                len(rows),
                int((~rows["exact"]).sum()),
            ]
        )
    notes = [
        "entropy of the labels, renormalised over them, mean of both orders for pairs; its maximum "
        "is ln K; interval over prompts",
        "top label: probability of the most likely label",
        "only bounded: judgments of which the server did not list every label; a label that is not "
        "listed counts as 0",
    ]
    return make_table(
        "sharpening.entropy", "Entropy of the judge's distribution", _ENTROPIES, lines, notes=notes
    )


def _differences(settings: Sequence[_Setting], context: Context) -> list[Table]:
    """Return the entropy with reasoning minus that without, of settings equal otherwise."""
    keys = ["item", "turn", "unit"]
    found: list[tuple[str, str, Comparison, float | None]] = []
    averaged: list[str] = []
    resampling = context.resampling()
    alike = by_reasoning(settings, lambda of: (of[1].method, of[2]))
    for (plain, _, _, rows), (reasoned, source, _, others) in alike:
        both = rows.select(*keys, *OVER, without="entropy").join(
            others.select(*keys, after="entropy"), on=keys, maintain_order="left"
        )
        if int(getattr(source.method.config, "traces", 1)) > 1:
            averaged.append(reasoned)
        after, without = (both[name].to_numpy() for name in ("after", "without"))
        comparison = compare_accuracies(after, without, codes(both[CLUSTER]), resampling)
        sharper = float((after < without).mean()) if after.size else None
        found.append((plain, reasoned, comparison, sharper))
    if not found:
        return []
    adjusted = holm_adjusted([comparison for *_, comparison, _ in found])
    lines: list[list[Cell]] = [
        [
            plain,
            reasoned,
            finite(comparison.second),
            finite(comparison.first),
            measured(comparison),
            finite(comparison.p_value),
            p,
            sharper,
            comparison.n_points,
        ]
        for (plain, reasoned, comparison, sharper), p in zip(found, adjusted, strict=True)
    ]
    notes = [
        "difference: entropy with reasoning minus without it, in nats, on the judgments that both "
        "have; below 0 the distribution is sharper; interval over prompts; p: by flipping signs of "
        "prompts",
        "sharper: judgments whose entropy is lower with reasoning",
    ]
    if averaged:
        many = ", ".join(averaged)
        notes.append(f"{many}: of the average over several traces, which is less sharp")
    return [make_table("sharpening", "Sharpening by reasoning", _COMPARED, lines, notes=notes)]
