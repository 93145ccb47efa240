"""CritiqueLLM: pointwise scores, and labels of pairs.

Source: Ke et al. 2024, "CritiqueLLM" (arXiv 2311.18702), and its code (commit e1e0241b).

The released code takes the first match and gives 5 to a text without a score, -1 to one without a
label, both of which it counts. `convention="critique_llm"` does the same. Without it a text has a
verdict only where all matches agree.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.judgment.harness._reading import NUMBER, Match, Reading, Winner, agreed, on_scale

LOW: Final = 0.0
HIGH: Final = 10.0
UNPARSED_SCORE: Final = 5.0
LABELS: Final[Mapping[str, Winner]] = {"助手1": "A", "助手2": "B", "质量相当": "tie"}
BEFORE_LABEL: Final = "{'综合比较结果': '"
AFTER_LABEL: Final = "'}"
_LABEL = re.compile(f"{re.escape(BEFORE_LABEL)}({'|'.join(LABELS)}){re.escape(AFTER_LABEL)}")

# In this order, as published; the first that is found anywhere counts.
_BEFORE: Final = ("'综合得分': ", "综合得分: ", "综合得分\uff1a")
_SCORES = tuple(re.compile(f"{before}({NUMBER})") for before in _BEFORE)
# Reads 100 as 10 and 0.5 as 0.
_SCORES_AS_PUBLISHED = tuple(
    re.compile(rf"{before}((?:0|10)(?:\.0*+)?|\d(?:\.\d*+)?)") for before in _BEFORE
)


def published_score(text: str) -> float:
    """The first score in a critique, 0..10; 5 for none."""
    match = _first(_SCORES_AS_PUBLISHED, text)
    return UNPARSED_SCORE if match is None else float(match.group(1))


def read_score(text: str) -> Reading:
    """The one score of a critique."""
    found = [
        Match(float(one.group(1)), one.start(), *one.span(1), text[one.end() : one.end() + 1])
        for pattern in _SCORES
        for one in pattern.finditer(text)
    ]
    return on_scale(agreed(text, found), LOW, HIGH)


def score_match(text: str) -> re.Match[str] | None:
    """The first score by the released code's order of forms; group 1 is the number."""
    return _first(_SCORES, text)


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next((match for one in patterns if (match := one.search(text))), None)


def published_label(text: str) -> tuple[str, Winner | None]:
    """The label of a comparison, the first in their order that is found, and its verdict.

    Without a label it is ("", None), where the code has -1.
    """
    found = (name for name in LABELS if BEFORE_LABEL + name + AFTER_LABEL in text)
    label = next(found, "")
    return label, LABELS.get(label)


def read_label(text: str) -> Reading:
    """The one label of a comparison."""
    found = [
        Match(LABELS[one.group(1)], one.start(), *one.span(1), AFTER_LABEL)
        for one in _LABEL.finditer(text)
    ]
    return agreed(text, found)
