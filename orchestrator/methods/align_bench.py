"""AlignBench: a judge scores an answer in Chinese by dimensions, and overall from 1 to 10.

The judge compares with the reference answer, criticises by the dimensions of the question's type,
and ends with a dictionary; its `综合得分` is the rating. A model's overall score is a macro
average: the mean of two reasoning categories and the mean of six language categories, averaged.

Source: Liu et al. 2023, "AlignBench" (arXiv 2311.18743) and its code (commit 5b79d4a8), from where
prompt (`judge.py`) and dimensions (`config`) are read; neither is part of this project.

Deviations: a score keeps its decimals, and one that is missing, outside 1..10 or contradicted by
another overall score of the text is missing; with `convention: align_bench` the last dictionary
counts, its decimals are cut (7.5 inside it becomes 7), and no score is -1 (counted, as in its table
of results). Answers are
drawn by `answer`; AlignBench's own temperatures are `temperature_by_category: align_bench`.
"""

import re
from typing import Annotated, Final, Literal, Self

import msgspec
from pydantic import Field, model_validator

from orchestrator.judgment.verdicts import (
    AMBIGUOUS,
    NUMBER,
    Match,
    Reading,
    agreed,
    number,
    on_scale,
)
from orchestrator.methods._drawing import permanent
from orchestrator.methods._harness import (
    COMPACT,
    RATINGS,
    TEN,
    Format,
    HarnessJudge,
    NamedJudgesSettings,
)
from orchestrator.plugin import Ask, Item, Row, Unit
from orchestrator.prompts.files import FROM_FOLDER, ONLY, Dimensions, Wording, wordings_from

OVERALL: Final = "综合得分"
"""The key of the overall score."""
_LOW, _HIGH = 1.0, 10.0

# Straight and curly quotes, Latin and full-width colons: a judge that writes Chinese uses all.
_QUOTES: Final = "'\"\u2018\u2019\u201c\u201d"
_COLON: Final = r"\s{0,4}[:\uff1a]\s{0,4}"
_ENTRY = re.compile(rf"[{_QUOTES}]([^{_QUOTES}]{{1,40}})[{_QUOTES}]{_COLON}({NUMBER})")
_OVERALL = re.compile(rf"{OVERALL}[{_QUOTES}]?{_COLON}({NUMBER})")
_VALUE_AS_PUBLISHED = re.compile(r"': (\d++)")
_OVERALL_AS_PUBLISHED = re.compile(rf"'{OVERALL}': (\d++(?:\.\d{{1,2}})?)")


Scores = tuple[float | None, dict[str, float]]
"""The overall score, None where there is none; and every other score of the dictionary, in its
order."""


def parse_judgment(text: str, *, convention: Literal["align_bench"] | None = None) -> Scores:
    """The scores in a judge's text: its overall score, and the dimensions of its last dictionary.

    A convention of None reads as `read_rating`, with no dimensions where that is ambiguous;
    "align_bench" as the released code.
    """
    if convention == "align_bench":
        published = _entries_as_published(text)
        score = published.pop(OVERALL, None)
        if score is None and (match := _OVERALL_AS_PUBLISHED.search(text)):
            score = float(match.group(1))
        return score, published
    read = read_rating(text)
    begin, end = (0, 0) if read.cause == AMBIGUOUS else _last_braces(text)
    found = {
        key.strip(): float(score)
        for key, score in _ENTRY.findall(text, begin, end)
        if key.strip() != OVERALL and _LOW <= float(score) <= _HIGH
    }
    return read.value, found


def read_rating(text: str) -> Reading:
    """The one overall score of a text; its place is in the last dictionary, if there is one."""
    found = [*map(number, _OVERALL.finditer(text))]
    begin, end = _last_braces(text)
    inside = [at for at, one in enumerate(found) if begin <= one.start and one.end <= end]
    return on_scale(agreed(text, found, at=inside[0] if inside else 0), _LOW, _HIGH)


def published_rating(text: str) -> Match | None:
    """The overall score as the released code reads it: in the last dictionary, else the first."""
    found = _OVERALL.search(text, *_last_braces(text)) or _OVERALL.search(text)
    score, _ = parse_judgment(text, convention="align_bench")
    return None if found is None else number(found)._replace(value=score)


def _last_braces(text: str) -> tuple[int, int]:
    """From where to where the last pair of braces that no other begins after; (0, 0) for none."""
    start = text.rfind("{")
    end = text.find("}", start)
    return (start + 1, end) if start >= 0 and end >= 0 else (0, 0)


def _entries_as_published(text: str) -> dict[str, float]:
    r"""Return the matches of `{(.*?)}(?![^{]*{)` and `'(.*?)': (\d+)`, in linear time.

    `.` stops at line ends, so a dictionary over several lines is not found; where several begin on
    the line, the first counts as the beginning.
    """
    end = text.find("}", max(text.rfind("{"), 0))
    line = text.rfind("\n", 0, max(end, 0)) + 1
    start = text.find("{", line, max(end, 0))
    found: dict[str, float] = {}
    if start < 0:
        return found
    quote = text.find("'", start, end)
    while quote >= 0 and (match := _VALUE_AS_PUBLISHED.search(text, quote + 1, end)):
        found[text[quote + 1 : match.start()]] = float(match.group(1))
        quote = text.find("'", match.end(), end)
    return found


SCORE: Final = Format(read_rating, TEN, RATINGS, published_rating, {"align_bench": -1.0})

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
        if self.dimensions is None and self.template().shows("dimensions"):
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
                raise permanent("bad_item", said)
        return found


class Kind(HarnessJudge[Config]):
    """A judge scores an answer in Chinese by dimensions, and overall from 1 to 10."""

    cites = ("liu2023alignbench",)
    version = 3
    published_as = "AlignBench"
    forms = (SCORE,)

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One overall score with its dimensions, a turn."""
        rows = await super().evaluate(unit, ask)
        for row in rows:
            _, scores = parse_judgment(row["text"], convention=self.config.convention)
            row["dimensions"] = msgspec.json.encode(scores).decode() if scores else None
        return rows
