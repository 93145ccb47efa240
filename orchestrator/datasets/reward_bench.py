"""RewardBench: 2,985 prompts with a chosen and a rejected answer, in 23 subsets.

Source: Lambert et al. 2024, "RewardBench: Evaluating Reward Models for Language Modeling" (arXiv
2403.13787), its filtered split. The answers are the columns `chosen` and `rejected`; the analysis
`judge_benchmark` gives the paper's table.
"""

from pathlib import Path
from typing import Final

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import (
    SubsetSettings,
    hub_file,
    of_subsets,
    read,
)
from orchestrator.plugin import About, Dataset, DatasetKind

_FILE: Final = hub_file("allenai/reward-bench", "data/filtered-00000-of-00001.parquet")
_FIELDS: Final = FieldNames.model_validate(
    {"prompt": "prompt", "category": "subset", "reference": None, "key": "id"}
)


class RewardBenchKind(DatasetKind[SubsetSettings]):
    """The prompts of RewardBench with their chosen and rejected answers."""

    cites = ("lambert2024rewardbench",)
    about = About(
        licence="ODC-BY as the hub states; subsets have their own",
        size="about 3 MB",
        source="https://huggingface.co/datasets/allenai/reward-bench",
        files=(_FILE,),
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The prompts; fetched at first use.

        Raises:
            DatasetError: If the file can't be had, with where to put it, or has no such subset.
        """
        rows = read("reward_bench", _FILE, ParquetRows)
        return from_rows(of_subsets(rows, "subset", self.config.subsets), _FIELDS)
