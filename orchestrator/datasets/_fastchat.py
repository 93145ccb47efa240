"""FastChat's files of questions and reference answers, shared by its two benchmarks.

Source: https://github.com/lm-sys/FastChat, `fastchat/llm_judge/data`, Apache-2.0; the reference
answers are text of GPT-4.
"""

from collections.abc import Mapping
from typing import Any, Final

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.json_rows import JsonLines
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import MappedRows, located, shown_name
from orchestrator.plugin import Dataset, File

SOURCE: Final = "https://github.com/lm-sys/FastChat"
LICENCE: Final = "Apache-2.0; references are text of GPT-4"
_RAW: Final = "https://raw.githubusercontent.com/lm-sys/FastChat"
_FIELDS: Final = FieldNames.model_validate(
    {"key": "key", "turns": "turns", "reference": "reference", "category": "category"}
)


def file(benchmark: str, name: str, revision: str, sha256: str, *others: str) -> File:
    """A file of a benchmark at a revision of the repository."""
    path = f"{revision}/fastchat/llm_judge/data/{benchmark}/{name}"
    return File(name=name, path=f"{_RAW}/{path}", sha256=sha256, others=others)


def opened(kind: str, questions: File, references: File | None, n_turns: int | None) -> Dataset:
    """The questions as a dataset.

    Args:
        kind: Of the dataset.
        questions: One object a line: `question_id`, `category`, `turns`.
        references: Answers in FastChat's form; None for none.
        n_turns: How many turns to ask; None for all.

    Raises:
        DatasetError: If a file can't be had or is not as published.
    """
    path = located(kind, questions)
    known: dict[str, list[str]] = {}
    if references is not None:
        file = located(kind, references)
        answers = MappedRows(
            JsonLines(file, shown_name(kind, file)),
            lambda row: {"key": str(row["question_id"]), "turns": row["choices"][0]["turns"]},
            ("key", "turns"),
        )
        found = (answers.row(index) for index in range(len(answers)))
        known = {row["key"]: row["turns"] for row in found}

    def make(row: Mapping[str, Any]) -> Mapping[str, Any]:
        key = str(row["question_id"])
        turns = row["turns"][:n_turns]
        reference = known.get(key)
        return {
            "key": key,
            "category": row["category"],
            "turns": turns,
            "reference": None if reference is None else reference[: len(turns)],
        }

    columns = ("key", "category", "turns", "reference")
    rows = MappedRows(JsonLines(path, shown_name(kind, path)), make, columns)
    return from_rows(rows, _FIELDS)
