"""MT-Bench human judgments: votes of experts on the answers of two models to the first turn.

Source: Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (arXiv
2306.05685). The answers are the columns `first` and `second`, the vote is `better`: "first",
"second" or "tie". Second turns are left out: their questions follow answers of the two models.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import (
    BenchmarkKind,
    PickedRows,
    SubsetSettings,
    converted,
    of_subsets,
    read,
)
from orchestrator.plugin import About

_FILE: Final = converted("lmsys/mt_bench_human_judgments", "default", "human", 0, "human.parquet")
_CATEGORIES: Final = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
)  # fmt: skip
"""Of questions 81 to 160, ten each."""
_FIRST_QUESTION: Final = 81
_BETTER: Final = {"model_a": "first", "model_b": "second"}
_COLUMNS: Final = (
    "prompt", "category", "question_id", "first", "second", "better", "model_a", "model_b", "voter",
)  # fmt: skip


class MtBenchHumanKind(BenchmarkKind[SubsetSettings]):
    """Pairs of answers to MT-Bench's first turns with the votes of people."""

    cites = ("zheng2023judging",)
    about = About(
        licence="CC BY 4.0",
        size="about 1 MB",
        source="https://huggingface.co/datasets/lmsys/mt_bench_human_judgments",
        files=(_FILE,),
    )
    fields: ClassVar = {"prompt": "prompt", "category": "category", "cluster": "question_id"}

    def rows(self) -> Rows:
        """Return the votes on first turns, of the categories."""
        votes = read("mt_bench_human", _FILE, ParquetRows)
        first = [place for place in range(len(votes)) if votes.row(place)["turn"] == 1]
        rows = PickedRows(votes, _item, _COLUMNS, first)
        return of_subsets(rows, "category", self.config.subsets)


def _item(_: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    question, one, two = row["question_id"], row["conversation_a"], row["conversation_b"]
    return {
        "prompt": one[0]["content"],
        "category": _CATEGORIES[(question - _FIRST_QUESTION) // 10],
        "question_id": question,
        "first": one[1]["content"],
        "second": two[1]["content"],
        "better": _BETTER.get(row["winner"], "tie"),
        "model_a": row["model_a"],
        "model_b": row["model_b"],
        "voter": row["judge"],
    }
