"""Texts of ProbDiff: the sentences, articles and requests that its Table 2 and Figure 5 are about.

Source: Xia et al., "Language Models can Evaluate Themselves via Probability Discrepancy" (Findings
of ACL 2024); its repository, generation_task/data. Prompts are those of its code, with the blank at
the end of that for summaries: of 1,000 sentences the first 500 are translated into English, the
others from English.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import located as found_at
from orchestrator.dataset.readers import JsonLines
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import PickedRows, located, shown_name
from orchestrator.plugin import About, Dataset, DatasetKind, File, Settings

Part = Literal["cs-en", "de-en", "ru-en", "zh-en", "xsum", "cnn", "redbook"]
_LANGUAGES: Final = {"cs": "Czech", "de": "German", "ru": "Russian", "zh": "Chinese"}
_ADDRESS: Final = (
    "https://raw.githubusercontent.com/xiatingyu/ProbDiff/"
    "79bb26490339c879d8ccbe76384916e8d7fcc8d6/generation_task/data"
)
_FILES: Final = {
    part: File(name=f"{part}/test.json", path=f"{_ADDRESS}/{part}/test.json")
    for part in (*(f"{language}-en" for language in _LANGUAGES), "xsum", "cnn", "redbook")
}
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


class Config(Settings):
    """Settings of `probdiff_texts`."""

    part: Part = Field(
        description="Translation from or into English, summaries of XSum or CNN and Daily Mail, or "
        "requests for posts on Xiaohongshu (redbook)."
    )
    folder: str | None = Field(
        None,
        min_length=1,
        description="Folder (relative to the recipe) that holds PART/test.json, such as "
        "generation_task/data of a clone of the repository; left out, the file is fetched.",
    )


class ProbdiffTextsKind(DatasetKind[Config]):
    """The texts that ProbDiff was tried on, as its authors published them."""

    cites = ("xia2024probdiff", "barrault2019findings", "narayan2018dont", "see2017get")
    about = About(
        licence="none stated (2026-11-27); news and posts of others",
        size="0.1 to 5 MB a part",
        source="https://github.com/xiatingyu/ProbDiff",
        files=tuple(_FILES.values()),
    )

    def open(self, base: Path) -> Dataset:
        """The texts of a part, in their order.

        Raises:
            DatasetError: If the file can't be had, with where to put it, or is not as published.
        """
        part, folder = self.config.part, self.config.folder
        if folder is not None:
            path, shown = found_at(f"{folder}/{_FILES[part].name}", base)
        else:
            path = located("probdiff_texts", _FILES[part])
            shown = shown_name("probdiff_texts", path)
        rows = JsonLines(path, shown)
        picks = [(index, part) for index in range(len(rows))]
        return from_rows(PickedRows(rows, picks, _item, tuple(_FIELDS.model_dump())), _FIELDS)


def _item(index: int, part: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    made = {"key": f"{part}-{index}", "category": part}
    if part in _COLUMNS:
        text, reference = (row[name] for name in _COLUMNS[part])
        prompt = text if part == "redbook" else _SUMMARY.replace("{content}", text)
        return made | {"prompt": prompt, "reference": reference}
    other = part.partition("-")[0]
    source, target = (other, "en") if index < _INTO_ENGLISH else ("en", other)
    prompt = f"Translate the sentence into {_LANGUAGES.get(target, 'English')}:\n{row[source]}"
    return made | {"prompt": prompt, "reference": row[target], "category": f"{source}-{target}"}
