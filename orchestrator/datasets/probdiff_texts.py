"""Texts of ProbDiff: the sentences, articles and requests that its Table 2 and Figure 5 are about.

Source: Xia et al., "Language Models can Evaluate Themselves via Probability Discrepancy" (Findings
of ACL 2024), and generation_task/data of its repository (xiatingyu/ProbDiff at 79bb264). That
states no licence (2026-11-28), so a clone of the user's is read. Prompts are those of its code, a
blank at the end of that for summaries included: the first 500 sentences are translated into
English, the others from English.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import located
from orchestrator.dataset.readers import json_lines
from orchestrator.dataset.rows import from_rows
from orchestrator.dataset.shapes import Row
from orchestrator.datasets._benchmark import picked
from orchestrator.plugin import Dataset, DatasetKind, FolderSettings

Part = Literal["cs-en", "de-en", "ru-en", "zh-en", "xsum", "cnn", "redbook"]
_LANGUAGES: Final = {"cs": "Czech", "de": "German", "ru": "Russian", "zh": "Chinese"}
_INTO_ENGLISH: Final = 500
_SUMMARY: Final = (
    "I want you to act as a Summarization Writer.\n"
    "Your goal is to provide a concise and coherent summary that captures the essential "
    "information and ideas expressed in the given content.\n"
    "Here is the content:\n{content}\nYour answer: "
)
# Columns of the text and of what is known of its answer.
_COLUMNS: Final = {
    "xsum": ("document", "summary"),
    "cnn": ("article", "highlights"),
    "redbook": ("user", "assistant"),
}
_FIELDS: Final = FieldNames.model_validate(
    {"key": "key", "prompt": "prompt", "reference": "reference", "category": "category"}
)


class Config(FolderSettings):
    """Settings of `probdiff_texts`; the folder is generation_task/data of a clone."""

    part: Part = Field(
        description="Translation from or into English, summaries of XSum or CNN and Daily Mail, or "
        "requests for posts on Xiaohongshu (redbook)."
    )


class Kind(DatasetKind[Config]):
    """The texts that ProbDiff was tried on, as its authors published them."""

    cites = ("xia2024probdiff", "barrault2019findings", "narayan2018dont", "see2017get")

    def open(self, base: Path) -> Dataset:
        """The texts of a part, in their order.

        Raises:
            DatasetError: If there is no file PART/test.json, or it is not as published.
        """
        part = self.config.part
        rows = json_lines(*located(f"{self.config.path}/{part}/test.json", base))

        def make(numbered: Row) -> Row:
            index, row = numbered["index"], numbered["row"]
            made = {"key": f"{part}-{index}", "category": part}
            if part in _COLUMNS:
                text, reference = (row[name] for name in _COLUMNS[part])
                prompt = text if part == "redbook" else _SUMMARY.replace("{content}", text)
                return made | {"prompt": prompt, "reference": reference}
            other = part.partition("-")[0]
            source, target = (other, "en") if index < _INTO_ENGLISH else ("en", other)
            into = _LANGUAGES.get(target, "English")
            prompt = f"Translate the sentence into {into}:\n{row[source]}"
            named = f"{source}-{target}"
            return made | {"prompt": prompt, "reference": row[target], "category": named}

        numbered = replace(rows, row=lambda index: {"index": index, "row": rows.row(index)})
        return from_rows(picked(numbered, make), _FIELDS)
