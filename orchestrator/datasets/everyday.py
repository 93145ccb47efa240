"""Everyday questions: 96 short questions in 8 categories, with reference answers.

Part of this project and under its licence (Apache-2.0). The questions suit small chat models:
each can be answered in a few sentences. Categories take turns, so `--limit` keeps all of them.
"""

from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from orchestrator.dataset.readers import json_lines
from orchestrator.plugin import Dataset, DatasetKind, Item, Message, Settings, from_items

FILE: Final = Path(__file__).with_name("everyday.jsonl")

Category = Literal[
    "facts", "science", "reasoning", "arithmetic", "language", "advice", "writing", "extraction"
]


class Config(Settings):
    """Settings of `everyday`."""

    categories: tuple[Category, ...] | None = Field(
        None, min_length=1, description="Categories to take; null takes all eight."
    )


class Kind(DatasetKind[Config]):
    """Everyday questions with reference answers; no file of the user's is read."""

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """Read the questions; nothing is downloaded."""
        lines = json_lines(FILE, FILE.name)
        rows = [lines.row(index) for index in range(len(lines))]
        wanted = self.config.categories
        items = [
            Item(
                key=row["key"],
                messages=(Message("user", row["prompt"]),),
                reference=row["reference"],
                category=row["category"],
            )
            for row in rows
            if wanted is None or row["category"] in wanted
        ]
        return from_items("everyday", items)
