"""CritiqueLLM: a judge that criticises in Chinese, then scores an answer or compares two.

`pointwise`: the rating is `综合得分` in the judge's text, 0 to 10. `pairwise`: `综合比较结果` in
both orders; a winner counts only where both agree. The wording with the reference answer is used
where the item has one.

Source: Ke et al. 2024, "CritiqueLLM" (arXiv 2311.18702) and its code (commit e1e0241b), from whose
`inference/prompts.py` the four wordings are read; they are not part of this project.

Deviations: a text has a verdict only where all matches agree, and a score outside 0..10 is missing
too; with `convention: critique_llm` the first
match counts, no score counts as 5, and 100 is read as 10, as there. Orders that disagree are a tie
here; CritiqueLLM's agreement counts them as wrong.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from orchestrator.judgment import verdicts
from orchestrator.methods._harness import (
    COMPACT,
    PAIR,
    RATINGS,
    TEN,
    Format,
    HarnessJudge,
    NamedJudgesSettings,
)
from orchestrator.plugin import Item
from orchestrator.prompts.files import ONLY, Wording, wordings_from

LABELS: Final[dict[str, verdicts.Winner]] = {"助手1": "A", "助手2": "B", "质量相当": "tie"}
_LABEL = re.compile(rf"{{'综合比较结果': '({'|'.join(LABELS)})'}}")
# In this order, as published; the first that is found anywhere counts.
_BEFORE: Final = ("'综合得分': ", "综合得分: ", "综合得分\uff1a")
_SCORES = tuple(re.compile(f"{before}({verdicts.NUMBER})") for before in _BEFORE)
# Reads 100 as 10 and 0.5 as 0.
_SCORE_AS_PUBLISHED = re.compile(r"(?:0|10)(?:\.0*+)?|\d(?:\.\d*+)?")


def published_rating(text: str) -> verdicts.Match | None:
    """The first score in a critique by the released code's order of forms, 0..10."""
    found = next(filter(None, (pattern.search(text) for pattern in _SCORES)), None)
    if found is None:
        return None
    read = _SCORE_AS_PUBLISHED.match(text, found.start(1))
    return verdicts.number(found)._replace(value=None if read is None else float(read.group()))


def _ratings(text: str) -> list[verdicts.Match]:
    return [verdicts.number(one) for pattern in _SCORES for one in pattern.finditer(text)]


def _winners(text: str) -> list[verdicts.Match]:
    return [verdicts.matched(one, LABELS[one[1]]) for one in _LABEL.finditer(text)]


SCORE: Final = Format(
    lambda text: verdicts.on_scale(verdicts.agreed(text, _ratings(text)), 0.0, 10.0),
    ("0", *TEN),
    (0.0, *RATINGS),
    published_rating,
    {"critique_llm": 5.0},
)
LABEL: Final = Format(
    lambda text: verdicts.agreed(text, _winners(text)),
    tuple(LABELS),
    PAIR,
    lambda text: verdicts.first_named(_winners(text), LABELS),
)

WHERE: Final = (
    "CritiqueLLM's is inference/prompts.py in the repository thu-coai/CritiqueLLM; for the "
    "bundled judge use `prompts: compact`"
)
_FACTS, _LOGIC, _WRITING = "事实与解释型回答", "逻辑推理型回答", "生成型回答"
# Its code's map from the categories of AlignBench, which calls the first one 基本任务.
TYPES: Final = {
    "基本任务": _FACTS,
    "基本能力": _FACTS,
    "中文理解": _FACTS,
    "综合问答": "建议型回答",
    "文本写作": _WRITING,
    "逻辑推理": _LOGIC,
    "数学计算": _LOGIC,
    "角色扮演": _WRITING,
    "专业能力": _FACTS,
    "多语言能力": _WRITING,
    "代码": _LOGIC,
}


class Config(NamedJudgesSettings):
    """Settings of `critique_llm`."""

    mode: Literal["pointwise", "pairwise"] = Field(
        "pointwise", description="Score answers, or compare two."
    )
    prompts: Annotated[Literal["compact"] | dict[str, Wording], wordings_from(WHERE, "compact")] = (
        Field(description="CritiqueLLM's prompts.py, a file of one template, or compact.")
    )
    reference: bool | None = Field(
        None, description="Show the reference answer; null: where the item has one."
    )
    type_field: str = Field(
        "type",
        description="Column of the dataset with the type of answer that a question asks for. Items "
        "without it have that of their category.",
    )
    types: dict[str, str] = Field(
        {},
        description="Types by category. Default: CritiqueLLM's for the categories of AlignBench; "
        "any other category is shown itself.",
    )
    convention: Literal["critique_llm"] | None = Field(
        None,
        description="critique_llm: the first match counts, no score counts as 5; null: a text "
        "without one clear verdict is missing.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.prompts == "compact" or ONLY in self.prompts:
            return self
        wanted = {True, False} if self.reference is None else {self.reference}
        names = [self._name(based=based) for based in sorted(wanted)]
        if lacking := [name for name in names if name not in self.prompts]:
            raise ValueError(f"'prompts' has no {', '.join(lacking)}; {WHERE}")
        return self

    def _name(self, *, based: bool) -> str:
        """Return the name of a wording in CritiqueLLM's file, in lower case."""
        return f"{self.mode}_reference_{'based' if based else 'free'}"

    def wording(self, item: Item, n_turns: int) -> Wording:
        """Return the template, with the reference where the item has one for the last turn."""
        if self.prompts == "compact":
            return COMPACT[self.pairwise]
        based = self.reference
        if based is None:
            based = any(item.reference_of(turn) is not None for turn in range(1, n_turns + 1))
        return self.prompts.get(self._name(based=based)) or self.prompts[ONLY]

    def fields(self, item: Item) -> dict[str, str | None]:
        """Return the type of answer that the item asks for."""
        kind = item.fields.get(self.type_field)
        types = TYPES | self.types
        named = types.get(item.category or "", item.category) if kind is None else str(kind)
        return {"type": named}


class Kind(HarnessJudge[Config]):
    """A judge that criticises in Chinese, then scores an answer or compares two."""

    cites = ("ke2024critiquellm",)
    version = 4
    published_as = "CritiqueLLM"
    forms = (SCORE, LABEL)
