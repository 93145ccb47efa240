"""LLMBar: 419 instructions with an answer that follows them and one that does not.

Source: Zeng et al. 2024, "Evaluating Large Language Models at Evaluating Instruction Following"
(arXiv 2310.07641). The answers are the columns `chosen` and `rejected`; the analysis
`judge_benchmark` gives the paper's table.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import JoinedRows
from orchestrator.dataset.readers import JsonRows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import (
    PickedRows,
    SubsetSettings,
    chosen_subsets,
    pair_of,
    read,
)
from orchestrator.plugin import About, Dataset, DatasetKind, File

_ADDRESS: Final = (
    "https://raw.githubusercontent.com/princeton-nlp/LLMBar/"
    "caa7bee794bfed74baed038b99229fa3f0c4c511/Dataset/LLMBar"
)
_FOLDERS: Final = {
    "Natural": "Natural",
    **{name: f"Adversarial/{name}" for name in ("Neighbor", "GPTInst", "GPTOut", "Manual")},
}
_FILES: Final = {
    name: File(name=f"{name}.json", path=f"{_ADDRESS}/{folder}/dataset.json")
    for name, folder in _FOLDERS.items()
}
_FIELDS: Final = FieldNames.model_validate(
    {"prompt": "input", "category": "subset", "reference": None, "key": None}
)
_COLUMNS: Final = ("input", "subset", "chosen", "rejected")


class LlmBarKind(DatasetKind[SubsetSettings]):
    """The instructions of LLMBar with an answer that follows them and one that does not."""

    cites = ("zeng2024llmbar",)
    about = About(
        licence="MIT",
        size="about 500 kB",
        source="https://github.com/princeton-nlp/LLMBar",
        files=tuple(_FILES.values()),
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The instructions; fetched at first use.

        Raises:
            DatasetError: If a file can't be had, with where to put it, or there is no such subset.
        """
        names = chosen_subsets(_FILES, self.config.subsets, "llm_bar")
        parts = [_rows(name) for name in names]
        return from_rows(JoinedRows(parts, "llm_bar"), _FIELDS)


def _rows(subset: str) -> PickedRows:
    def make(_: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
        first = {1: True, 2: False}[row["label"]]
        answers = pair_of(row["output_1"], row["output_2"], is_first_better=first)
        return {"input": row["input"], "subset": subset, **answers}

    return PickedRows(read("llm_bar", _FILES[subset], JsonRows), make, _COLUMNS)
