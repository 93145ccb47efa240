"""MT-Bench: 80 questions of two turns in 8 categories; reference answers of GPT-4 on demand.

Source: Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (arXiv 2306.05685).
Its answers are drawn at a temperature that depends on the category:
`temperature_by_category: mt_bench` where a method draws answers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from orchestrator.dataset.readers import JsonLines
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import BenchmarkKind, PickedRows, read
from orchestrator.plugin import About, File, Settings

# FastChat's files of questions and reference answers, shared by its two benchmarks.
#
# Source: https://github.com/lm-sys/FastChat, `fastchat/llm_judge/data`, Apache-2.0; the reference
# answers are text of GPT-4.


SOURCE: Final = "https://github.com/lm-sys/FastChat"
LICENCE: Final = "Apache-2.0; references are text of GPT-4"
FIELDS: Final = {name: name for name in ("key", "category", "turns", "reference")}
_RAW: Final = "https://raw.githubusercontent.com/lm-sys/FastChat"


def file(benchmark: str, name: str, revision: str, sha256: str, *others: str) -> File:
    """A file of a benchmark at a revision of the repository."""
    path = f"{revision}/fastchat/llm_judge/data/{benchmark}/{name}"
    return File(name=name, path=f"{_RAW}/{path}", sha256=sha256, others=others)


def opened(kind: str, questions: File, references: File | None, n_turns: int | None) -> Rows:
    """The rows of the questions, with the columns of `FIELDS`.

    Questions have `question_id`, `category` and `turns`; references are in FastChat's form.

    Raises:
        DatasetError: If a file can't be had or is not as published.
    """
    known: dict[str, list[str]] = {}
    if references is not None:
        answers = PickedRows(
            read(kind, references, JsonLines),
            lambda _, row: {"key": str(row["question_id"]), "turns": row["choices"][0]["turns"]},
            ("key", "turns"),
        )
        found = (answers.row(index) for index in range(len(answers)))
        known = {row["key"]: row["turns"] for row in found}

    def make(_: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
        key = str(row["question_id"])
        turns = row["turns"][:n_turns]
        reference = known.get(key)
        return {
            "key": key,
            "category": row["category"],
            "turns": turns,
            "reference": None if reference is None else reference[: len(turns)],
        }

    return PickedRows(read(kind, questions, JsonLines), make, tuple(FIELDS))


QUESTIONS: Final = file(
    "mt_bench",
    "question.jsonl",
    "589532dcfa83700f950b9aa3983416c543afabc0",
    "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
)
# The branch, as the revision that last changed this file is not known here; its SHA-256 is.
REFERENCES: Final = file(
    "mt_bench",
    "reference_answer/gpt-4.jsonl",
    "main",
    "f957a5bc977badb66885ec970e6cd08527845780313f0995764260e5777b9b3f",
    "reference_answer_gpt4.jsonl",
)


class Config(Settings):
    """Settings of `mt_bench`."""

    turns: Literal[1, 2] = Field(2, description="Number of turns.")
    references: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description=(
            "Use the answers of GPT-4 as references; available for reasoning, math and coding."
        ),
    )


class MtBenchKind(BenchmarkKind[Config]):
    """The questions of MT-Bench."""

    cites = ("zheng2023judging",)
    about = About(
        licence=LICENCE, size="49 kB, references 51 kB", source=SOURCE, files=(QUESTIONS,)
    )
    fields: ClassVar = FIELDS

    def rows(self) -> Rows:
        """Return the questions."""
        references = REFERENCES if self.config.references else None
        return opened("mt_bench", QUESTIONS, references, self.config.turns)
