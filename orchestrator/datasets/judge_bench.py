"""JudgeBench: 350 or 270 questions with a right and a wrong answer, by GPT-4o or Claude 3.5 Sonnet.

Source: Tan et al. 2024, "JudgeBench: A Benchmark for Evaluating LLM-Based Judges" (arXiv
2410.12784). The answers are the columns `chosen` and `rejected`; the analysis `judge_benchmark`
gives the paper's table.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from orchestrator.dataset.readers import JsonLines
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import (
    BenchmarkKind,
    PickedRows,
    SubsetSettings,
    of_subsets,
    pair_of,
    read,
)
from orchestrator.plugin import About, File

_ADDRESS: Final = (
    "https://raw.githubusercontent.com/ScalerLab/JudgeBench/"
    "12a499c5c29f06940d259b49250fca627d2a0ee5/data/dataset=judgebench,response_model="
)
_MODELS: Final = {"gpt": "gpt-4o-2024-05-13", "claude": "claude-3-5-sonnet-20240620"}
_COLUMNS: Final = ("pair_id", "question", "source", "chosen", "rejected", "response_model")


class Config(SubsetSettings):
    """Settings of `judge_bench`."""

    answers: Literal["gpt", "claude"] = Field(
        "gpt", description="Whose answers: those of GPT-4o or of Claude 3.5 Sonnet."
    )


def _file(answers: str) -> File:
    return File(name=f"{answers}.jsonl", path=f"{_ADDRESS}{_MODELS[answers]}.jsonl")


class JudgeBenchKind(BenchmarkKind[Config]):
    """The questions of JudgeBench with a right and a wrong answer."""

    cites = ("tan2024judgebench",)
    about = About(
        licence="MIT as the hub states",
        size="about 2 MB",
        source="https://github.com/ScalerLab/JudgeBench",
        files=(_file("gpt"),),
    )
    fields: ClassVar = {"prompt": "question", "category": "source", "key": "pair_id"}

    def rows(self) -> Rows:
        """Return the questions of the subsets."""

        def make(_: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
            first = {"A>B": True, "B>A": False}[row["label"]]
            answers = pair_of(row["response_A"], row["response_B"], is_first_better=first)
            kept = {name: row[name] for name in ("pair_id", "question", "source")}
            return {**kept, **answers, "response_model": row.get("response_model")}

        lines = read("judge_bench", _file(self.config.answers), JsonLines)
        return of_subsets(PickedRows(lines, make, _COLUMNS), "source", self.config.subsets)
