"""CNN/DailyMail: news with their highlights as summaries; 1,000 of its test documents by default.

Source: Hermann et al., "Teaching Machines to Read and Comprehend" (arXiv 1506.03340), version
3.0.0. The prompt is ProbDiff's; which documents ProbDiff drew is not published.
"""

from pathlib import Path
from typing import Final

from orchestrator.datasets._hub import hub_file
from orchestrator.datasets._summaries import SampledDocuments, sampled_documents
from orchestrator.plugin import About, Dataset, DatasetKind

FILE: Final = hub_file(
    "abisee/cnn_dailymail", "3.0.0/test-00000-of-00001.parquet", name="test.parquet"
)


class Config(SampledDocuments):
    """Settings of `cnn_dailymail`."""


class CnnDailymailKind(DatasetKind[Config]):
    """Articles of CNN and the Daily Mail to summarise."""

    cites = ("see2017get",)
    about = About(
        licence="Apache-2.0; the articles are CNN's and the Daily Mail's",
        size="about 30 MB",
        source="https://huggingface.co/datasets/abisee/cnn_dailymail",
        files=(FILE,),
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The documents; fetched at first use.

        Raises:
            DatasetError: If the file can't be had, with where to put it.
        """
        return sampled_documents(self.config, "cnn_dailymail", FILE, "article", "highlights")
