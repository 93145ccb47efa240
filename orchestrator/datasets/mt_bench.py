"""MT-Bench: 80 questions of two turns in 8 categories; reference answers of GPT-4 on demand.

Source: Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (arXiv 2306.05685).
Its answers are drawn at a temperature that depends on the category:
`temperature_by_category: mt_bench` where a method draws answers.
"""

from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from orchestrator.datasets import _fastchat
from orchestrator.plugin import About, Dataset, DatasetKind, Settings

QUESTIONS: Final = _fastchat.file(
    "mt_bench",
    "question.jsonl",
    "589532dcfa83700f950b9aa3983416c543afabc0",
    "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
)
# The branch, as the revision that last changed this file is not known here; its SHA-256 is.
REFERENCES: Final = _fastchat.file(
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


class MtBenchKind(DatasetKind[Config]):
    """The questions of MT-Bench."""

    cites = ("zheng2023judging",)
    about = About(
        licence=_fastchat.LICENCE,
        size="49 kB, references 51 kB",
        source=_fastchat.SOURCE,
        files=(QUESTIONS,),
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The questions; fetched at first use.

        Raises:
            DatasetError: If a file can't be had, with where to put it.
        """
        references = REFERENCES if self.config.references else None
        return _fastchat.opened("mt_bench", QUESTIONS, references, self.config.turns)
