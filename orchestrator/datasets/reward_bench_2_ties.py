"""The subset Ties of RewardBench 2: each answer of a prompt alone, to be rated.

Source: Malik et al. 2025, "RewardBench 2: Advancing Reward Model Evaluation" (arXiv 2506.01937).
A prompt stands there twice: as `ref` with one right answer, and as `tied` with several right ones.
Each answer is an item with the columns `answer`, `question`, `form` (`ref` or `tied`) and `right`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import PickedRows, located, shown_name
from orchestrator.datasets.reward_bench_2 import ABOUT, FILE
from orchestrator.plugin import Dataset, DatasetKind, Settings

_FIELDS: Final = FieldNames.model_validate(
    {"prompt": "prompt", "category": "form", "reference": None, "key": "id", "cluster": "question"}
)
_COLUMNS: Final = ("id", "prompt", "form", "question", "answer", "right")


class Config(Settings):
    """Settings of `reward_bench_2_ties`: none."""


class RewardBench2TiesKind(DatasetKind[Config]):
    """The answers of the subset Ties of RewardBench 2, an item each."""

    cites = ("malik2025rewardbench2",)
    about = ABOUT

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """Open the answers; they are fetched at first use.

        Raises:
            DatasetError: If the file can't be had, with where to put it.
        """
        path = located("reward_bench_2_ties", FILE)
        rows = ParquetRows(path, shown_name("reward_bench_2_ties", path))
        picks: list[tuple[int, str]] = []
        for index in range(len(rows)):
            row = rows.row(index)
            if row["subset"] == "Ties":
                picks += [(index, str(k)) for k in range(len(row["chosen"]) + len(row["rejected"]))]
        return from_rows(PickedRows(rows, picks, _item, _COLUMNS), _FIELDS)


def _item(__: int, place: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    form, _, question = str(row["id"]).partition(":")
    answers = [*row["chosen"], *row["rejected"]]
    return {
        "id": f"{row['id']}:{place}",
        "prompt": row["prompt"],
        "form": form,
        "question": question,
        "answer": answers[int(place)],
        "right": int(place) < len(row["chosen"]),
    }
