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

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from orchestrator.judgment.harness.align_bench import parse_judgment
from orchestrator.methods._formats import ALIGN_SCORE
from orchestrator.methods._harness import COMPACT, HarnessJudge, NamedJudgesSettings, as_json
from orchestrator.plugin import Ask, AskFailed, Failure, Item, Row, Unit
from orchestrator.prompts.files import FROM_FOLDER, ONLY, Dimensions, Wording, wordings_from

WHERE: Final = (
    "AlignBench's is judge.py in the repository THUDM/AlignBench; for the bundled judge use "
    "`prompts: compact`"
)
NAME: Final = "base_prompt"
"""Name of the template in `judge.py`."""


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
    def _fits(self) -> Self:
        if self.dimensions is None and self.template().shows({"dimensions"}):
            raise ValueError("the template shows dimensions; set `dimensions: AlignBench/config`")
        return self

    def template(self) -> Wording:
        """The template.

        Raises:
            ValueError: If the file has none of a known name.
        """
        if self.prompts == "compact":
            return COMPACT[False]
        wording = self.prompts.get(NAME) or self.prompts.get(ONLY)
        if wording is None:
            raise ValueError(f"'prompts' has no {NAME}; {WHERE}")
        return wording

    def wording(self, item: Item, n_turns: int) -> Wording:  # noqa: ARG002 (one contract)
        """Return the template."""
        return self.template()

    def fields(self, item: Item) -> dict[str, str | None]:
        """Return the item's category, and the dimensions that apply to it."""
        found = {"category": item.category}
        if self.dimensions is not None:
            kind = str(item.fields.get(self.subcategory) or item.category)
            found["dimensions"] = self.dimensions.described(kind)
            if found["dimensions"] is None:
                said = f"AlignBench has no dimensions for {self.subcategory} {kind!r}"
                raise AskFailed(Failure("bad_item", said, permanent=True))
        return found


class AlignBench(HarnessJudge[Config]):
    """A judge scores an answer in Chinese by dimensions, and overall from 1 to 10."""

    cites = ("liu2023alignbench",)
    version = 3
    published_as = "AlignBench"
    forms = (ALIGN_SCORE,)

    def needs(self) -> frozenset[str]:
        """The reference, where the wording shows it."""
        return self.config.template().shows({"reference"})

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One overall score with its dimensions, a turn."""
        rows = await super().evaluate(unit, ask)
        for row in rows:
            _, scores = parse_judgment(row["text"], convention=self.config.convention)
            row["dimensions"] = as_json(scores)
        return rows
