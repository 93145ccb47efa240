"""HelpSteer2: pairs of answers that people rated for helpfulness.

Source: Wang et al. 2024, "HelpSteer2: Open-source dataset for training top-performing reward
models" (arXiv 2406.08673). Each prompt has two rated answers. The better one by mean helpfulness is
the column `chosen`, the other one `rejected`; pairs rated alike are left out.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import BenchmarkKind, PickedRows, converted, pair_of, read
from orchestrator.plugin import About, File, Settings

_RATED: Final = "helpfulness"
_COLUMNS: Final = ("prompt", "chosen", "rejected", "chosen_helpfulness", "rejected_helpfulness")


class Config(Settings):
    """Settings of `help_steer_2`."""

    split: Literal["validation", "train"] = Field(
        "validation", description="Split: 519 or 10,162 prompts, those rated alike included."
    )


def _file(split: str) -> File:
    return converted("nvidia/HelpSteer2", "default", split, 0, f"{split}.parquet")


class HelpSteer2Kind(BenchmarkKind[Config]):
    """The prompts of HelpSteer2 with a more and a less helpful answer."""

    cites = ("wang2024helpsteer2",)
    about = About(
        licence="CC BY 4.0",
        size="about 1 MB; train 25 MB",
        source="https://huggingface.co/datasets/nvidia/HelpSteer2",
        files=(_file("validation"),),
    )
    fields: ClassVar = {"prompt": "prompt"}

    def rows(self) -> Rows:
        """Return the pairs that are not rated alike."""
        rows = read("help_steer_2", _file(self.config.split), ParquetRows)

        def make(first: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
            other = rows.row(first + 1)
            is_first = row[_RATED] > other[_RATED]
            ratings = pair_of(row[_RATED], other[_RATED], is_first_better=is_first)
            return {
                "prompt": row["prompt"],
                **pair_of(row["response"], other["response"], is_first_better=is_first),
                **{f"{name}_{_RATED}": value for name, value in ratings.items()},
            }

        return PickedRows(rows, make, _COLUMNS, _unlike(rows))


def _unlike(rows: Rows) -> list[int]:
    """Places of the first of two rows of one prompt that are not rated alike."""
    found, index = [], 0
    while index + 1 < len(rows):
        one, two = rows.row(index), rows.row(index + 1)
        if one["prompt"] != two["prompt"]:
            index += 1
            continue
        if one[_RATED] != two[_RATED]:
            found.append(index)
        index += 2
    return found
