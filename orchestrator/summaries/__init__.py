"""Tables that summarise the rows of each method, found by its name: a file each, or a class."""

from typing import Final

KINDS: Final = {
    "align_bench": "_verdicts:AlignBenchSummary",
    "answers": "_answers:AnswersSummary",
    "confidence": "_features:ConfidenceSummary",
    "consistency": "_answers:ConsistencySummary",
    "glass_box": "_features:GlassBoxSummary",
    "pairwise_scoring": "_scores:PairwiseScoringSummary",
    "pointwise": "_scores:PointwiseRatingSummary",
    "samples": "_answers:SamplesSummary",
    "verdicts": "_verdicts:VerdictsSummary",
}
