"""Nectar: prompts with seven answers, ranked by GPT-4.

Source: Zhu et al. 2023, "Starling-7B: Improving LLM Helpfulness & Harmlessness with RLAIF". The
answers are the columns `rank_1`, the best one, to `rank_7`. The paper of the judgment distribution
uses the first 1,000 of the library `datasets`' shuffle by seed 17; here `seed` decides.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import Field

from orchestrator.dataset.files import ParquetRows
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._benchmark import BenchmarkKind, PickedRows, converted, drawn, read
from orchestrator.plugin import About, Settings

_FILE: Final = converted("berkeley-nest/Nectar", "default", "train", 0, "train-0.parquet")
_RANKS: Final = tuple(f"rank_{rank}" for rank in range(1, 8))
_BEGINS: Final = "\n\nHuman: "
_ENDS: Final = "\n\nAssistant: "


class Config(Settings):
    """Settings of `nectar`."""

    n: int | None = Field(
        1000, ge=1, description="Number of prompts, drawn at random; null for all of the file."
    )
    seed: int = Field(0, description="Seed of the choice.")


class NectarKind(BenchmarkKind[Config]):
    """Prompts of Nectar with seven ranked answers, from the first Parquet file of the hub."""

    cites = ("zhu2023starling",)
    about = About(
        licence="Apache-2.0; not to compete with OpenAI",
        size="some hundred MB",
        source="https://huggingface.co/datasets/berkeley-nest/Nectar",
        files=(_FILE,),
    )
    fields: ClassVar = {"prompt": "prompt"}

    def rows(self) -> Rows:
        """Return the prompts that are drawn."""
        rows = read("nectar", _FILE, ParquetRows)
        rng = np.random.default_rng(self.config.seed)
        places = drawn(self.config.n, len(rows), rng, "nectar")
        return PickedRows(rows, _item, ("prompt", *_RANKS), places)


def _item(_: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    by_rank = sorted(row["answers"], key=lambda answer: float(answer["rank"]))
    # A conversation of several turns stays as it is written there.
    prompt = str(row["prompt"]).removeprefix(_BEGINS).removesuffix(_ENDS)
    return {
        "prompt": prompt,
        **{name: answer["answer"] for name, answer in zip(_RANKS, by_rank, strict=True)},
    }
