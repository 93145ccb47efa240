"""RewardBench: 2,985 prompts with a chosen and a rejected answer, in 23 subsets.

Source: Lambert et al. 2024, "RewardBench: Evaluating Reward Models for Language Modeling" (arXiv
2403.13787), its filtered split. The answers are the columns `chosen` and `rejected`; the analysis
`judge_benchmark` gives the paper's table.
"""

from typing import ClassVar, Final

from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import (
    BenchmarkKind,
    SubsetSettings,
    hub_file,
    of_subsets,
    read,
)
from orchestrator.plugin import About

_FILE: Final = hub_file("allenai/reward-bench", "data/filtered-00000-of-00001.parquet")


class RewardBenchKind(BenchmarkKind[SubsetSettings]):
    """The prompts of RewardBench with their chosen and rejected answers."""

    cites = ("lambert2024rewardbench",)
    about = About(
        licence="ODC-BY as the hub states; subsets have their own",
        size="about 3 MB",
        source="https://huggingface.co/datasets/allenai/reward-bench",
        files=(_FILE,),
    )
    fields: ClassVar = {"prompt": "prompt", "category": "subset", "key": "id"}

    def rows(self) -> Rows:
        """Return the prompts of the subsets."""
        rows = read("reward_bench", _FILE, ParquetRows)
        return of_subsets(rows, "subset", self.config.subsets)
