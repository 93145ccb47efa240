"""CNN/DailyMail: news with highlights as summaries; 1,000 of its test documents by default.

Source: Hermann et al., "Teaching Machines to Read and Comprehend" (arXiv 1506.03340), version
3.0.0. The prompt is ProbDiff's; which documents ProbDiff drew is not published.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import Field

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import PickedRows, drawn, hub_file, located, shown_name
from orchestrator.plugin import About, Dataset, DatasetKind, File, Settings

# The wording of ProbDiff's released code, blank at its end included.
PROMPT: Final = (
    "I want you to act as a Summarization Writer.\n"
    "Your goal is to provide a concise and coherent summary that captures the essential "
    "information and ideas expressed in the given content.\n"
    "Here is the content:\n{content}\nYour answer: "
)
_FIELDS: Final = FieldNames.model_validate(
    {"key": "key", "prompt": "prompt", "reference": "reference"}
)


class SampledDocuments(Settings):
    """Settings of a summarisation benchmark."""

    n: int | None = Field(
        1000, ge=1, description="Number of documents, sampled with `seed`; null for all."
    )
    seed: int = Field(0, ge=0, description="Seed of the sample of documents.")


def sampled_documents(
    config: SampledDocuments, kind: str, file: File, document: str, summary: str
) -> Dataset:
    """Documents to be summarised, each with its published summary as reference.

    The Parquet file has a column `id`, and those of texts and summaries by the names given.

    Raises:
        DatasetError: If the file can't be had or is not as published.
    """
    path = located(kind, file)
    rows = ParquetRows(path, shown_name(kind, path))
    chosen = drawn(config.n, len(rows), np.random.default_rng(config.seed), kind)

    def make(index: int, told: str, row: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG001
        return {
            "key": str(row["id"]),
            "prompt": PROMPT.replace("{content}", row[document]),
            "reference": row[summary],
        }

    picks = [(index, "") for index in chosen]
    return from_rows(PickedRows(rows, picks, make, ("key", "prompt", "reference")), _FIELDS)


FILE: Final = hub_file(
    "abisee/cnn_dailymail", "3.0.0/test-00000-of-00001.parquet", name="test.parquet"
)


class Config(SampledDocuments):
    """Settings of `cnn_dailymail`."""


class CnnDailymailKind(DatasetKind[Config]):
    """Articles of CNN and the Daily Mail to summarise."""

    cites = ("see2017get",)
    about = About(
        licence="Apache-2.0; the articles are CNN's and the Daily Mail's",
        size="about 30 MB",
        source="https://huggingface.co/datasets/abisee/cnn_dailymail",
        files=(FILE,),
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The documents; fetched at first use.

        Raises:
            DatasetError: If the file can't be had, with where to put it.
        """
        return sampled_documents(self.config, "cnn_dailymail", FILE, "article", "highlights")
