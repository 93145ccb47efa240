"""LLMBar: 419 instructions with an answer that follows them and one that does not.

Source: Zeng et al. 2024, "Evaluating Large Language Models at Evaluating Instruction Following"
(arXiv 2310.07641). The answers are the columns `chosen` and `rejected`; the analysis
`judge_benchmark` gives the paper's table.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from orchestrator.dataset.files import JoinedRows
from orchestrator.dataset.readers import JsonRows
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import (
    BenchmarkKind,
    PickedRows,
    SubsetSettings,
    chosen_subsets,
    pair_of,
    read,
)
from orchestrator.plugin import About, File

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
_COLUMNS: Final = ("input", "subset", "chosen", "rejected")


class LlmBarKind(BenchmarkKind[SubsetSettings]):
    """The instructions of LLMBar with an answer that follows them and one that does not."""

    cites = ("zeng2024llmbar",)
    about = About(
        licence="MIT",
        size="about 500 kB",
        source="https://github.com/princeton-nlp/LLMBar",
        files=tuple(_FILES.values()),
    )
    fields: ClassVar = {"prompt": "input", "category": "subset"}

    def rows(self) -> Rows:
        """Return the instructions of the subsets."""
        names = chosen_subsets(_FILES, self.config.subsets, "llm_bar")
        return JoinedRows([_rows(name) for name in names], "llm_bar")


def _rows(subset: str) -> PickedRows:
    def make(_: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
        first = {1: True, 2: False}[row["label"]]
        answers = pair_of(row["output_1"], row["output_2"], is_first_better=first)
        return {"input": row["input"], "subset": subset, **answers}

    return PickedRows(read("llm_bar", _FILES[subset], JsonRows), make, _COLUMNS)
