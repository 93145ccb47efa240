"""Tables that summarise the rows of each method, found by its name: a file each, or a class."""

from typing import Final

KINDS: Final = {
    "align_bench": "_verdicts:AlignBenchSummary",
    "answers": "_answers:AnswersSummary",
    "consistency": "_answers:ConsistencySummary",
    "samples": "_answers:SamplesSummary",
    "verdicts": "_verdicts:VerdictsSummary",
}
