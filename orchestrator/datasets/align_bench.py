"""AlignBench: 683 questions in Chinese in 8 categories, each with a reference answer.

Source: Liu et al., "AlignBench: Benchmarking Chinese Alignment of Large Language Models"
(arXiv 2311.18743). Its answers are drawn at a temperature that depends on the category:
`temperature_by_category: align_bench` where a method draws answers.
"""

from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.readers import JsonLines
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import read
from orchestrator.plugin import About, Dataset, DatasetKind, File, Settings

_RAW: Final = (
    "https://raw.githubusercontent.com/THUDM/AlignBench/5b79d4a84e566db26e755c719935c62a0e1b0527"
)
FILES: Final = {
    "1.1": File(name="data_v1.1_release.jsonl", path=f"{_RAW}/data/data_v1.1_release.jsonl"),
    "1.0": File(name="data_release.jsonl", path=f"{_RAW}/data/data_release.jsonl"),
}
_FIELDS: Final = FieldNames.model_validate(
    {
        "key": "question_id",
        "prompt": "question",
        "reference": "reference",
        "category": "category",
        "messages": None,
        "turns": None,
    }
)


class Config(Settings):
    """Settings of `align_bench`."""

    version: Literal["1.0", "1.1"] = Field(
        "1.1", description="1.1 has corrected references with their evidence."
    )


class AlignBenchKind(DatasetKind[Config]):
    """The questions of AlignBench."""

    cites = ("liu2023alignbench",)
    about = About(
        licence="none stated on 2026-11-27: all rights reserved",
        size="about 1 MB",
        source="https://github.com/THUDM/AlignBench",
        files=(FILES["1.1"],),
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The questions; fetched at first use.

        Raises:
            DatasetError: If the file can't be had, with where to put it.
        """
        return from_rows(read("align_bench", FILES[self.config.version], JsonLines), _FIELDS)
