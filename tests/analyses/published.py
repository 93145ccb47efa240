"""Numbers of the ProbDiff papers, and rows with these means, for tests of analyses."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import probdiff
from tests.core.fakes import PLAIN

SCHEMA = {"method": pl.String(), **polars_schema(schema_of(probdiff.Kind))}
Row = dict[str, Any]


def gap(model: str, item: str, d: float | None, category: str | None = None) -> Row:
    """One row of ProbDiff."""
    return {
        "method": "probdiff", "item": item, "model": model, "turn": 1, "d": d, "unchanged": False,
        "category": category, "status": "ok",
    }  # fmt: skip


def gaps(
    model: str, n_passed: int, n: int, category: str | None = None, first: int = 0
) -> Iterator[Row]:
    """Rows of which some reach the threshold of -0.05: those from `first` on, then from 0."""
    for at in range(n):
        passes = (at - first) % n < n_passed
        yield gap(model, f"{category} {at}", -0.01 if passes else -0.5, category)


def context_of(rows: list[Row], others: Mapping[str, pl.DataFrame] = {}) -> Context:
    """A run of ProbDiff and of made-up methods with the column `rating`."""
    frames = {"probdiff": pl.DataFrame(rows, schema=SCHEMA), **others}
    sources = [
        Source("probdiff", "probdiff", probdiff.Kind(probdiff.Config()), "probdiff", {"d": 1}),
        *(Source(name, name, PLAIN, name, {"rating": 1}) for name in others),
    ]
    return Context("a", frames, pl.DataFrame(), sources, 0.95, 300, 0)


def ratings(name: str, means: Mapping[tuple[str, str], float], n: int = 6) -> pl.DataFrame:
    """Ratings of n items for each model and category, with a given mean and some spread."""
    places = {model: at for at, model in enumerate(dict.fromkeys(model for model, _ in means))}
    return pl.DataFrame(
        {
            "method": name,
            "item": f"{category} {at}",
            "category": category,
            "model": model,
            "turn": 1,
            "rating": mean + (0.5 if (at + places[model]) % 2 else -0.5),
            "status": "ok",
        }
        for (model, category), mean in means.items()
        for at in range(n)
    )
