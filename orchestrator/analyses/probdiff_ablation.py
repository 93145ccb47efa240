"""Ablation of ProbDiff: every probdiff method of the recipe, by threshold and by category.

Source: Xia et al. (Findings of ACL 2024), Tables 7 (threshold), 8 (prompt), 9 (temperature of the
rewriting), whose columns are the categories.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from orchestrator.methods import probdiff
from orchestrator.methods.probdiff import Config as ProbDiffConfig
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Settings,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import METHODS, mean_of
from orchestrator.statistics.confidence import Confidence
from orchestrator.summaries.probdiff import drawn_at, found_by_model
from orchestrator.tables import measured

_COLUMNS: Final = table_columns(
    "method | model | mean d: signed | delta: signed 2 | confidence: percent", "unchanged: percent"
)
_SETTINGS: Final = table_columns(
    "method | prompt | rounds: count | rewritings: count | categories",
    "temperature: number 2 | of the rewriting: number 2",
)
_LONGEST_PROMPT: Final = 40
_READ: Final = ("item", "category", "model", "status", "d", "unchanged")


class Config(Settings):
    """Settings of `probdiff_ablation`; there are none."""


class Kind(Analysis[Config]):
    """Every probdiff method of the recipe in one table, threshold by threshold."""

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate the differences between the methods, their results, and these by category."""
        sources = [
            (source, source.method.config)
            for source in context.sources
            if isinstance(source.method, probdiff.Kind)
        ]
        if not sources:
            raise UsageError(f"{context.name}: the recipe has no method of kind probdiff")
        lines: list[list[Cell]] = []
        settings: list[list[Cell]] = []
        confidences: list[tuple[str, str, Confidence]] = []
        for source, config in sources:
            rows = context.rows_of(source, _READ)
            settings += _settings(source.name, config, rows)
            if rows.is_empty():
                continue
            good = rows.filter(pl.col("status") == "ok")
            for model, found in found_by_model(config, good, context.confidence_level).items():
                confidences += [(source.name, model, one) for one in found]
                part = good.filter(pl.col("model") == model)
                mean = mean_of(part, pl.col("d"), context.confidence_level)
                unchanged = part.select(pl.col("unchanged").mean()).item()
                lines += [
                    [
                        source.name,
                        model,
                        mean,
                        one.delta,
                        measured(one.published),
                        unchanged,
                    ]
                    for one in sorted(found, key=lambda one: -one.delta)
                ]
        return [
            make_table("probdiff_ablation.settings", "What was varied", _SETTINGS, settings),
            make_table(
                "probdiff_ablation", "Ablation of ProbDiff", _COLUMNS, lines, notes=[METHODS]
            ),
            *_categories(confidences),
        ]


def _categories(lines: Sequence[tuple[str, str, Confidence]]) -> list[Table]:
    """The confidence in each category, by threshold; [] where there are no categories."""
    by_category = [dict(found.categories) for _, _, found in lines]
    names = sorted({name for found in by_category for name in found})
    if len(names) < 2:
        return []
    of_names = (Column(name, "percent") for name in ("all (micro)", "all (macro)", *names))
    columns = (*table_columns("delta: signed 2 | method | model"), *of_names)
    rows: list[list[Cell]] = []
    ordered = sorted(zip(lines, by_category, strict=True), key=lambda pair: -pair[0][2].delta)
    for (method, model, found), shares in ordered:
        cells = [found.published, found.macro, *map(shares.get, names)]
        given = [None if one is None else measured(one) for one in cells]
        rows.append([found.delta, method, model, *given])
    notes = ["all (micro): over all texts, as published; all (macro): mean of the categories"]
    title = "Confidence in each category, by threshold"
    return [
        make_table("probdiff_ablation.categories", title, columns, rows, notes=[*notes, METHODS])
    ]


def _settings(name: str, config: ProbDiffConfig, rows: pl.DataFrame) -> list[list[Cell]]:
    """One line, or one for each group of categories that were drawn at other temperatures."""
    categories = rows["category"].to_list()
    if not categories:
        categories = [*config.answer.by_category, *config.revision.by_category, None]
    drawn = drawn_at(config, categories)
    prompt = " ".join(config.prompt.split())
    if len(prompt) > _LONGEST_PROMPT:
        prompt = f"{prompt[: _LONGEST_PROMPT - 1]}…"
    return [
        [
            name,
            prompt,
            config.rounds,
            config.rewritings,
            "all" if len(drawn) == 1 else ", ".join(names),
            answer,
            rewriting,
        ]
        for names, answer, rewriting in drawn
    ]
