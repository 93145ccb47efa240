"""AlignBench: 683 questions in Chinese in 8 categories, each with a reference answer.

Source: Liu et al., "AlignBench: Benchmarking Chinese Alignment of Large Language Models"
(arXiv 2311.18743). Its answers are drawn at a temperature that depends on the category:
`temperature_by_category: align_bench` where a method draws answers.
"""

from typing import ClassVar, Final, Literal

from pydantic import Field

from orchestrator.dataset.readers import JsonLines
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import BenchmarkKind, read
from orchestrator.plugin import About, File, Settings

_RAW: Final = (
    "https://raw.githubusercontent.com/THUDM/AlignBench/5b79d4a84e566db26e755c719935c62a0e1b0527"
)
FILES: Final = {
    "1.1": File(name="data_v1.1_release.jsonl", path=f"{_RAW}/data/data_v1.1_release.jsonl"),
    "1.0": File(name="data_release.jsonl", path=f"{_RAW}/data/data_release.jsonl"),
}


class Config(Settings):
    """Settings of `align_bench`."""

    version: Literal["1.0", "1.1"] = Field(
        "1.1", description="1.1 has corrected references with their evidence."
    )


class AlignBenchKind(BenchmarkKind[Config]):
    """The questions of AlignBench."""

    cites = ("liu2023alignbench",)
    about = About(
        licence="none stated on 2026-11-28: all rights reserved",
        size="about 1 MB",
        source="https://github.com/THUDM/AlignBench",
        files=(FILES["1.1"],),
    )
    fields: ClassVar = {
        "key": "question_id",
        "prompt": "question",
        "reference": "reference",
        "category": "category",
    }

    def rows(self) -> Rows:
        """Return the questions."""
        return read("align_bench", FILES[self.config.version], JsonLines)
