"""XSum: news of the BBC, to be summarised in a sentence; 1,000 of its test documents by default.

Source: Narayan, Cohen and Lapata, "Don't Give Me the Details, Just the Summary!" (arXiv
1808.08745). The prompt is ProbDiff's; which documents ProbDiff drew is not published.
"""

from pathlib import Path
from typing import Final

from orchestrator.datasets._benchmark import hub_file
from orchestrator.datasets.cnn_dailymail import SampledDocuments, sampled_documents
from orchestrator.plugin import About, Dataset, DatasetKind

FILE: Final = hub_file(
    "EdinburghNLP/xsum",
    "default/test/0000.parquet",
    revision="refs/convert/parquet",
    name="test.parquet",
)


class Config(SampledDocuments):
    """Settings of `xsum`."""


class XsumKind(DatasetKind[Config]):
    """Articles of the BBC to summarise."""

    cites = ("narayan2018dont",)
    about = About(
        licence="none stated; the articles are the BBC's",
        size="about 17 MB",
        source="https://huggingface.co/datasets/EdinburghNLP/xsum",
        files=(FILE,),
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The documents; fetched at first use.

        Raises:
            DatasetError: If the file can't be had, with where to put it.
        """
        return sampled_documents(self.config, "xsum", FILE, "document", "summary")
