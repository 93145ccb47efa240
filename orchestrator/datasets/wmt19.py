"""WMT19: sentences to be translated between English and Czech, German, Russian or Chinese.

Source: the news translation task of WMT 2019 (https://www.statmt.org/wmt19/), its development
sets. The prompts are those of ProbDiff (`docs/methods`): half of the items are translated into
English, the other half, of other sentences, from English. Which sentences ProbDiff drew is not
published.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field

from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import from_rows
from orchestrator.datasets._benchmark import PickedRows, drawn, hub_file, located, shown_name
from orchestrator.plugin import About, Dataset, DatasetKind, Settings

LANGUAGES: Final = {
    "cs": "Czech",
    "de": "German",
    "en": "English",
    "ru": "Russian",
    "zh": "Chinese",
}
_PATH: Final = "{pair}/validation-00000-of-00001.parquet"
FILES: Final = tuple(
    hub_file("wmt/wmt19", _PATH.format(pair=pair), name=f"{pair}.parquet")
    for pair in ("cs-en", "de-en", "ru-en", "zh-en")
)
_COLUMNS: Final = ("key", "prompt", "reference", "category", "source", "target")
_FIELDS: Final = {
    "key": "key",
    "prompt": "prompt",
    "reference": "reference",
    "category": "category",
}


class Config(Settings):
    """Settings of `wmt19`."""

    pair: Literal["cs-en", "de-en", "ru-en", "zh-en"] = Field(description="The two languages.")
    direction: Literal["both", "into_english", "from_english"] = Field(
        "both", description="Direction: half of the items each way, or all of them one way."
    )
    n: int | None = Field(
        1000, ge=2, description="Number of items, sampled with `seed`; null for every sentence."
    )
    seed: int = Field(0, ge=0, description="Seed of the sample of sentences.")


class Wmt19Kind(DatasetKind[Config]):
    """Sentences to translate."""

    cites = ("barrault2019findings",)
    about = About(
        licence="none stated; the texts are news of many publishers",
        size="about 1 MB for each pair",
        source="https://huggingface.co/datasets/wmt/wmt19",
        files=FILES,
    )

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The sentences, each with its translation as reference; fetched at first use.

        Raises:
            DatasetError: If the file can't be had, with where to put it.
        """
        file = next(file for file in FILES if file.name == f"{self.config.pair}.parquet")
        path = located("wmt19", file)
        rows = ParquetRows(path, shown_name("wmt19", path))
        picks = _picks(self.config, len(rows))
        if self.config.direction == "both" and self.config.n is None:
            # Every sentence comes twice, once each way.
            fields = FieldNames.model_validate({**_FIELDS, "cluster": "sentence"})
            return from_rows(PickedRows(rows, picks, _either_way, (*_COLUMNS, "sentence")), fields)
        fields = FieldNames.model_validate(_FIELDS)
        return from_rows(PickedRows(rows, picks, _item, _COLUMNS), fields)


def _picks(config: Config, total: int) -> list[tuple[int, str]]:
    """Return the sentences to translate, each with its direction, such as (17, "cs-en")."""
    other = config.pair.partition("-")[0]
    ways = {"into_english": [f"{other}-en"], "from_english": [f"en-{other}"]}
    both = ways["into_english"] + ways["from_english"]
    directions = ways.get(config.direction, both)
    rng = np.random.default_rng(config.seed)
    chosen = drawn(config.n, total, rng, f"wmt19 {config.pair}")
    if len(directions) == 1 or config.n is None:
        return [(index, way) for way in directions for index in chosen]
    # No sentence is translated both ways, so that no item shows another's reference.
    shuffled = rng.permutation(chosen).tolist()
    half = (len(shuffled) + 1) // 2
    return [
        (index, way)
        for way, part in zip(directions, (shuffled[:half], shuffled[half:]), strict=True)
        for index in sorted(part)
    ]


def _item(index: int, way: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    source, _, target = way.partition("-")
    texts = row["translation"]
    return {
        "key": f"{way}-{index}",
        "prompt": f"Translate the sentence into {LANGUAGES[target]}:\n{texts[source]}",
        "reference": texts[target],
        "category": way,
        "source": source,
        "target": target,
    }


def _either_way(index: int, way: str, row: Mapping[str, object]) -> Mapping[str, object]:
    return {**_item(index, way, row), "sentence": index}
