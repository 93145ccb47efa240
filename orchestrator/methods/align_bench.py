"""AlignBench: a judge scores an answer in Chinese by dimensions, and overall from 1 to 10.

The judge compares with the reference answer, criticises by the dimensions of the question's type,
and ends with a dictionary; its `综合得分` is the rating. A model's overall score is a macro
average: the mean of two reasoning categories and the mean of six language categories, averaged.

Source: Liu et al. 2023, "AlignBench" (arXiv 2311.18743) and its code (commit 5b79d4a8), from where
prompt (`judge.py`) and dimensions (`config`) are read; neither is part of this project.

Deviations: a text without a score is missing, and a score keeps its decimals; with
`convention: align_bench` they are -1 (counted, as in its table of results) and cut. Answers are
drawn by `answer`; AlignBench's own temperatures are `temperature_by_category: align_bench`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from orchestrator.judgment.harness.align_bench import parse_judgment
from orchestrator.methods import _formats, _harness
from orchestrator.methods._drawing import Turn
from orchestrator.methods._harness import NamedJudges, NamedJudgesSettings
from orchestrator.plugin import Ask, AskFailed, Failure, Item, Messages, Row, Unit
from orchestrator.prompts import compact
from orchestrator.prompts.align_bench import FROM_FOLDER, Dimensions
from orchestrator.prompts.files import ONLY, Wording, wordings_from

WHERE: Final = (
    "AlignBench's is judge.py in the repository THUDM/AlignBench; for the bundled judge use "
    "`prompts: compact`"
)
NAME: Final = "base_prompt"
"""Name of the template in `judge.py`."""
_COMPACT: Final = Wording(user=compact.RATING, form="jinja")


class Config(NamedJudgesSettings):
    """Settings of `align_bench`."""

    prompts: Annotated[Literal["compact"] | dict[str, Wording], wordings_from(WHERE, "compact")] = (
        Field(
            description="AlignBench's judge.py, a file of one template with category, dimensions, "
            "question, reference and answer, or compact."
        )
    )
    dimensions: Annotated[Dimensions | None, FROM_FOLDER] = Field(
        None, description="AlignBench's folder `config`; needed where the template shows them."
    )
    subcategory: str = Field(
        "subcategory", description="Column of the dataset with the dimensions that apply."
    )
    convention: Literal["align_bench"] | None = Field(
        None,
        description="align_bench: the last dictionary, -1 for no score, whole numbers; null: a "
        "text without one clear score is missing.",
    )

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        wording = self.wording()
        if self.dimensions is None and wording.shows({"dimensions"}):
            raise ValueError("the template shows dimensions; set `dimensions: AlignBench/config`")
        return self

    def wording(self) -> Wording:
        """The template.

        Raises:
            ValueError: If the file has none of a known name.
        """
        if self.prompts == "compact":
            return _COMPACT
        wording = self.prompts.get(NAME) or self.prompts.get(ONLY)
        if wording is None:
            raise ValueError(f"'prompts' has no {NAME}; {WHERE}")
        return wording


class AlignBench(NamedJudges[Config]):
    """A judge scores an answer in Chinese by dimensions, and overall from 1 to 10."""

    cites = ("liu2023alignbench",)
    version = 3
    published_as = "AlignBench"

    def needs(self) -> frozenset[str]:
        """The reference, where the wording shows it."""
        return self.config.wording().shows({"reference"})

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One overall score with its dimensions, a turn."""
        config = self.config
        form = _formats.COMPACT_RATING if config.prompts == "compact" else _formats.ALIGN_SCORE
        prompt_of = partial(_messages, unit.item, config)
        rows = await self.verdicts(unit, ask, form, prompt_of, config.convention)
        for row in rows:
            _, scores = parse_judgment(row["text"], convention=config.convention)
            row["dimensions"] = _harness.as_json(scores)
        return rows


def _messages(item: Item, config: Config, shown: Sequence[Sequence[Turn]]) -> Messages:
    wording = config.wording()
    fields = _harness.fields(item, shown) | {"category": item.category}
    if config.dimensions is not None:
        kind = str(item.fields.get(config.subcategory) or item.category)
        fields["dimensions"] = config.dimensions.described(kind)
        if fields["dimensions"] is None:
            said = f"AlignBench has no dimensions for {config.subcategory} {kind!r}"
            raise AskFailed(Failure("bad_item", said, permanent=True))
    return _harness.messages(wording, fields)
