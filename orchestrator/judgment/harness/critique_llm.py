"""CritiqueLLM: pointwise scores, and labels of pairs.

Source: Ke et al. 2024, "CritiqueLLM" (arXiv 2311.18702), and its code (commit e1e0241b).

The released code takes the first match and gives 5 to a text without a score, -1 to one without a
label, both of which it counts. `convention="critique_llm"` does the same. Without it a text has a
verdict only where all matches agree.
"""

import re
from collections.abc import Mapping
from typing import Final

from orchestrator.judgment.harness._reading import (
    NUMBER,
    Match,
    Published,
    Reading,
    Winner,
    agreed,
    on_scale,
    published_number,
)

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


def published_score(text: str) -> Published:
    """The first score in a critique by the released code's order of forms, 0..10; 5 for none."""
    for read, whole in zip(_SCORES_AS_PUBLISHED, _SCORES, strict=True):
        if match := read.search(text):
            return float(match.group(1)), published_number(whole.search(text), UNPARSED_SCORE)[1]
    return UNPARSED_SCORE, None


def read_score(text: str) -> Reading:
    """The one score of a critique."""
    found = [
        Match(float(one.group(1)), one.start(), *one.span(1), text[one.end() : one.end() + 1])
        for pattern in _SCORES
        for one in pattern.finditer(text)
    ]
    return on_scale(agreed(text, found), LOW, HIGH)


def published_label(text: str) -> Published:
    """The verdict of a comparison by the first label in their order; None for none (-1 there)."""
    for name, winner in LABELS.items():
        begin = text.find(BEFORE_LABEL + name + AFTER_LABEL)
        if begin >= 0:
            return winner, (begin + len(BEFORE_LABEL), AFTER_LABEL)
    return None, None


def read_label(text: str) -> Reading:
    """The one label of a comparison."""
    found = [
        Match(LABELS[one.group(1)], one.start(), *one.span(1), AFTER_LABEL)
        for one in _LABEL.finditer(text)
    ]
    return agreed(text, found)
