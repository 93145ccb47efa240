"""Everyday questions: 96 short questions in 8 categories, with reference answers.

Part of this project and under its licence (Apache-2.0). The questions suit small chat models:
each can be answered in a few sentences. Categories take turns, so `--limit` keeps all of them.
"""

from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import Field

from orchestrator.dataset.readers import json_lines
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import BenchmarkKind, of_subsets
from orchestrator.plugin import Settings

FILE: Final = Path(__file__).with_name("everyday.jsonl")

Category = Literal[
    "facts", "science", "reasoning", "arithmetic", "language", "advice", "writing", "extraction"
]


class Config(Settings):
    """Settings of `everyday`."""

    categories: tuple[Category, ...] | None = Field(
        None, min_length=1, description="Categories to take; null takes all eight."
    )


class Kind(BenchmarkKind[Config]):
    """Everyday questions with reference answers; no file of the user's is read."""

    fields: ClassVar = {name: name for name in ("key", "prompt", "reference", "category")}

    def rows(self) -> Rows:
        """Return the questions of the categories; nothing is downloaded."""
        return of_subsets(json_lines(FILE, "everyday"), "category", self.config.categories or ())
