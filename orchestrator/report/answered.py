"""Answers alone, where nothing was judged: how many, how many failed, how many are right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich.console import RenderableType

from orchestrator.report import numbers
from orchestrator.report.markdown import escaped
from orchestrator.report.page import BAD, FAINT, HEADING, Column, Page, Paged

_FORMAT = 1
_MAX_NAME = 32


@dataclass(frozen=True, slots=True)
class ModelAnswers:
    """What one model answered.

    Attributes:
        model: Its name.
        n_answers: Items it answered.
        n_failed: Items whose answer is missing.
        n_references: Answers that have a reference to be compared with.
        exact_match: Share of these that are equal to it; None without any.
        mean_logprob: Mean over answers of the mean log-probability a token, in nats.
    """

    model: str
    n_answers: int
    n_failed: int
    n_references: int
    exact_match: float | None
    mean_logprob: float | None


def summarise(answers: pl.DataFrame) -> list[ModelAnswers]:
    """Each model's line, in the order of the frame.

    Args:
        answers: The frame `answers`.
    """
    good = pl.col("status") == "ok"
    table = answers.group_by("model", maintain_order=True).agg(
        good.sum().alias("n_answers"),
        (~good).sum().alias("n_failed"),
        pl.col("exact_match").count().alias("n_references"),
        pl.col("exact_match").mean().alias("share"),
        pl.col("mean_logprob").mean().alias("mean_logprob"),
    )
    return [ModelAnswers(*row) for row in table.iter_rows()]


def answers_table(models: Sequence[ModelAnswers]) -> RenderableType:
    """For a terminal."""

    def build(page: Page) -> Iterator[RenderableType]:
        yield page.heading("Answers", "nothing was judged")
        columns = [Column("model", "left"), Column("answers"), Column("failed")]
        columns += [Column("exact match"), Column("of"), Column("mean log-prob")]
        rows = []
        for model in models:
            name, *cells = _cells(model)
            styles = ["", BAD if model.n_failed else FAINT, "", "", ""]
            texts = [page.cell(text, style) for text, style in zip(cells, styles, strict=True)]
            rows.append([page.name(name, max(8, min(_MAX_NAME, page.width - 52)), HEADING), *texts])
        yield page.table(columns, rows)

    return Paged(build)


def answers_markdown(models: Sequence[ModelAnswers]) -> str:
    """As a Markdown table."""
    lines = ["## Answers", "", "| model | answers | failed | exact match | of | mean log-prob |"]
    lines.append("| :--- | ---: | ---: | ---: | ---: | ---: |")
    for model in models:
        name, *cells = _cells(model)
        lines.append(f"| {' | '.join([escaped(name), *cells])} |")
    return "\n".join(lines)


def answers_json(models: Sequence[ModelAnswers]) -> dict[str, Any]:
    """As plain values; undefined is null."""
    keys = ModelAnswers.__slots__
    rows = [{key: getattr(model, key) for key in keys} for model in models]
    return {"format": _FORMAT, "answers": rows}


def _cells(model: ModelAnswers) -> list[str]:
    mean = model.mean_logprob
    return [
        model.model,
        numbers.count(model.n_answers),
        numbers.count(model.n_failed),
        numbers.maybe(model.exact_match, numbers.percent),
        numbers.count(model.n_references),
        numbers.UNDEFINED if mean is None else f"{mean:.3f}",
    ]
