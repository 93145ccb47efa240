"""Vicuna-Bench: 80 questions of one turn in 9 categories; reference answers of GPT-4 on demand.

Source: https://lmsys.org/blog/2023-03-30-vicuna/.
"""

from typing import ClassVar, Final

from pydantic import Field

from orchestrator.dataset.rows import Rows
from orchestrator.datasets import mt_bench
from orchestrator.datasets._benchmark import BenchmarkKind
from orchestrator.plugin import About, Settings

QUESTIONS: Final = mt_bench.file(
    "vicuna_bench",
    "question.jsonl",
    "589532dcfa83700f950b9aa3983416c543afabc0",
    "c248c5c98ba45bb0c2aadae2f270e643bd32679c6c306a3b2a503ac4254cdaa5",
)
REFERENCES: Final = mt_bench.file(
    "vicuna_bench",
    "reference_answer/gpt-4.jsonl",
    "09ee334fd8c6fd095312f64fc386de5a1a212ad6",
    "",
    "reference_answer_gpt4.jsonl",
)


class Config(Settings):
    """Settings of `vicuna_bench`."""

    references: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="Use the answers of GPT-4 as references; available for coding and math.",
    )


class VicunaBenchKind(BenchmarkKind[Config]):
    """The questions of Vicuna-Bench."""

    cites = ("chiang2023vicuna",)
    about = About(
        licence=mt_bench.LICENCE,
        size="13 kB, references 11 kB",
        source=mt_bench.SOURCE,
        files=(QUESTIONS,),
    )
    fields: ClassVar = mt_bench.FIELDS

    def rows(self) -> Rows:
        """Return the questions."""
        references = REFERENCES if self.config.references else None
        return mt_bench.opened("vicuna_bench", QUESTIONS, references, None)
