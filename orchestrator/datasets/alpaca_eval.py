"""AlpacaEval: 805 instructions, with the answers of a baseline in the column `baseline`.

Source: Li et al., "AlpacaEval: An Automatic Evaluator of Instruction-following Models"
(https://github.com/tatsu-lab/alpaca_eval). A model of a recipe may be the baseline:
`models: {baseline: {answers: {field: baseline}}}`.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pydantic import Field

from orchestrator.dataset.readers import JsonRows
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import BenchmarkKind, PickedRows, hub_file, read
from orchestrator.plugin import About, Settings

_REPOSITORY: Final = "tatsu-lab/alpaca_eval"
_NAMES: Final = {
    "gpt4_turbo": "alpaca_eval_gpt4_baseline.json",
    "text_davinci_003": "alpaca_eval.json",
}


class Config(Settings):
    """Settings of `alpaca_eval`."""

    baseline: Literal["gpt4_turbo", "text_davinci_003"] = Field(
        "gpt4_turbo",
        description="Version of AlpacaEval, 1 or 2, whose baseline answers are in `baseline`.",
    )


class AlpacaEvalKind(BenchmarkKind[Config]):
    """The instructions of AlpacaEval, with the answers of a baseline."""

    cites = ("li2023alpacaeval",)
    about = About(
        licence="CC BY-NC 4.0: not for commercial use",
        size="about 1 to 2 MB",
        source="https://huggingface.co/datasets/tatsu-lab/alpaca_eval",
        files=(hub_file(_REPOSITORY, _NAMES["gpt4_turbo"]),),
    )
    fields: ClassVar = {"prompt": "instruction", "category": "dataset"}

    def rows(self) -> Rows:
        """Return the instructions with the answers of the baseline."""
        file = hub_file(_REPOSITORY, _NAMES[self.config.baseline])

        def make(_: int, row: Mapping[str, object]) -> Mapping[str, object]:
            return {
                "instruction": row["instruction"],
                "dataset": row.get("dataset"),
                "baseline": row["output"],
                "baseline_model": row.get("generator"),
            }

        columns = ("instruction", "dataset", "baseline", "baseline_model")
        return PickedRows(read("alpaca_eval", file, JsonRows), make, columns)
