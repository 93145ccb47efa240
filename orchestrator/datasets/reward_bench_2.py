"""RewardBench 2: prompts with one right and three wrong answers, in five subsets.

Source: Malik et al. 2025, "RewardBench 2: Advancing Reward Model Evaluation" (arXiv 2506.01937).
The answers are the columns `chosen`, `rejected_1`, `rejected_2` and `rejected_3`. The subset Ties,
whose prompts have up to 26 right answers and a score of their own, is not among them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import (
    BenchmarkKind,
    PickedRows,
    SubsetSettings,
    hub_file,
    of_subsets,
    read,
)
from orchestrator.plugin import About

FILE: Final = hub_file("allenai/reward-bench-2", "data/test-00000-of-00001.parquet")
ABOUT: Final = About(
    licence="ODC-BY as the hub states",
    size="about 15 MB",
    source="https://huggingface.co/datasets/allenai/reward-bench-2",
    files=(FILE,),
)
_SUBSETS: Final = ("Factuality", "Precise IF", "Math", "Safety", "Focus")
_COLUMNS: Final = ("id", "prompt", "subset", "chosen", "rejected_1", "rejected_2", "rejected_3")


class RewardBench2Kind(BenchmarkKind[SubsetSettings]):
    """The prompts of RewardBench 2 with a right and three wrong answers."""

    cites = ("malik2025rewardbench2",)
    about = ABOUT
    fields: ClassVar = {"prompt": "prompt", "category": "subset", "key": "id"}

    def rows(self) -> Rows:
        """Return the prompts of the subsets."""
        rows = read("reward_bench_2", FILE, ParquetRows)
        wanted = self.config.subsets or _SUBSETS
        return PickedRows(of_subsets(rows, "subset", wanted), _item, _COLUMNS)


def _item(_: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    (chosen,), wrong = row["chosen"], row["rejected"]
    rejected = {f"rejected_{n}": wrong[n - 1] for n in (1, 2, 3)}
    return {
        **{name: row[name] for name in ("id", "prompt", "subset")},
        "chosen": chosen,
        **rejected,
    }
