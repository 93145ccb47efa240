"""AlignBench: scores by dimension from the dictionary a judge ends with, and the overall score.

Source: Liu et al. 2023, "AlignBench" (arXiv 2311.18743), and its code (commit 5b79d4a8).

The released code takes the last dictionary, whole numbers only (7.5 inside it becomes 7) and -1 for
no score, which its result table does not drop; `convention="align_bench"` does the same. Without it
a score keeps its decimals, and one that is missing, outside 1..10 or contradicted by another
overall score of the text is None.
"""

import re
from typing import Final, Literal

from orchestrator.judgment.harness._reading import (
    AMBIGUOUS,
    NUMBER,
    Match,
    Published,
    Reading,
    agreed,
    on_scale,
    published_number,
    within,
)

OVERALL: Final = "综合得分"
"""The key of the overall score."""
LOW: Final = 1.0
HIGH: Final = 10.0
UNPARSED: Final = -1.0
"""AlignBench's stand-in for a score that it can't read."""

REASONING: Final = {"Math": "数学计算", "Logic": "逻辑推理"}
LANGUAGE: Final = {
    "Fund": "基本任务",
    "Chi": "中文理解",
    "Open": "综合问答",
    "Writ": "文本写作",
    "Role": "角色扮演",
    "Pro": "专业能力",
}
"""Category names as the papers abbreviate them, and as AlignBench's data has them."""

# Straight and curly quotes, Latin and full-width colons: a judge that writes Chinese uses all.
_QUOTES: Final = "'\"\u2018\u2019\u201c\u201d"
_COLON: Final = r"\s{0,4}[:\uff1a]\s{0,4}"
_ENTRY = re.compile(rf"[{_QUOTES}]([^{_QUOTES}]{{1,40}})[{_QUOTES}]{_COLON}({NUMBER})")
_OVERALL = re.compile(rf"{OVERALL}[{_QUOTES}]?{_COLON}({NUMBER})")
_VALUE_AS_PUBLISHED = re.compile(r"': (\d++)")
_OVERALL_AS_PUBLISHED = re.compile(rf"'{OVERALL}': (\d++(?:\.\d{{1,2}})?)")


Scores = tuple[float | None, dict[str, float]]
"""The overall score, None where there is none (-1 by AlignBench's convention); and every other
score of the dictionary, in its order."""


def parse_judgment(text: str, *, convention: Literal["align_bench"] | None = None) -> Scores:
    """The scores in a judge's text: its overall score, and the dimensions of its last dictionary.

    A convention of None reads as `read_overall`, with no dimensions where that is ambiguous;
    "align_bench" as the released code.
    """
    if convention == "align_bench":
        published = _entries_as_published(text)
        score = published.pop(OVERALL, UNPARSED)
        if score == UNPARSED and (match := _OVERALL_AS_PUBLISHED.search(text)):
            score = float(match.group(1))
        return score, published
    read = read_overall(text)
    begin, end = (0, 0) if read.cause == AMBIGUOUS else _last_braces(text)
    found = {
        key.strip(): value
        for key, written in _ENTRY.findall(text, begin, end)
        if key.strip() != OVERALL and (value := within(written, LOW, HIGH)) is not None
    }
    return read.value, found


def read_overall(text: str) -> Reading:
    """The one overall score of a text; its place is in the last dictionary, if there is one."""
    found = [
        Match(float(one.group(1)), one.start(), *one.span(1), text[one.end() : one.end() + 1])
        for one in _OVERALL.finditer(text)
    ]
    begin, end = _last_braces(text)
    inside = [at for at, one in enumerate(found) if begin <= one.start and one.end <= end]
    return on_scale(agreed(text, found, at=inside[0] if inside else 0), LOW, HIGH)


def published_overall(text: str) -> Published:
    """The overall score as the released code reads it: in the last dictionary, else the first."""
    match = _OVERALL.search(text, *_last_braces(text)) or _OVERALL.search(text)
    score, _ = parse_judgment(text, convention="align_bench")
    return score, published_number(match, UNPARSED)[1]


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
