"""CritiqueLLM: pointwise scores, pairwise labels over both orders, and its correlations.

Source: Ke et al. 2024, "CritiqueLLM" (arXiv 2311.18702), and its code (commit e1e0241b).

The released code takes the first match and gives 5 to a text without a score, -1 to one without a
label, both of which it counts. `convention="critique_llm"` does the same. Without it a text has a
verdict only where all matches agree.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from orchestrator.judgment.harness._reading import NUMBER, Match, Reading, agreed, on_scale

LOW: Final = 0.0
HIGH: Final = 10.0
UNPARSED_SCORE: Final = 5.0
UNPARSED_LABEL: Final = -1
LABELS: Final = ("助手1", "助手2", "质量相当")
"""Assistant 1 is better (0), assistant 2 is better (1), equal (2)."""
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


def published_label(text: str) -> int:
    """The verdict of a comparison: 0 assistant 1, 1 assistant 2, 2 equal.

    It is the first label that is found, in their order; -1 for none.
    """
    for label, name in enumerate(LABELS):
        if BEFORE_LABEL + name + AFTER_LABEL in text:
            return label
    return UNPARSED_LABEL


def read_label(text: str) -> Reading:
    """The one label of a comparison."""
    found = [
        Match(LABELS.index(one.group(1)), one.start(), *one.span(1), AFTER_LABEL)
        for one in _LABEL.finditer(text)
    ]
    return agreed(text, found)


def swapped(label: int | None) -> int | None:
    """A verdict of the swapped order in the view of the first."""
    return label if label is None or label > 1 else 1 - label


class PairwiseAgreement(msgspec.Struct, frozen=True):
    """Over pairs judged in both orders; the shares are nan for no pair.

    Attributes:
        agreement: Share where both orders say the same and it is the label.
        consistency: Share where both orders say the same.
        n: Pairs with both verdicts.
        n_missing: Pairs without; they are in no share.
    """

    agreement: float
    consistency: float
    n: int
    n_missing: int


def pairwise_agreement(
    first: Sequence[int | None], second: Sequence[int | None], labels: Sequence[int]
) -> PairwiseAgreement:
    """Agreement with labels and consistency of verdicts in both orders (also Auto-J's).

    `first` and `labels` are in order 1, 2; `second` are verdicts with the answers in order 2, 1, as
    the judge saw them.
    """
    n = consistent = right = 0
    for one, two, label in zip(first, second, labels, strict=True):
        if one is None or two is None:
            continue
        n += 1
        consistent += one == swapped(two)
        right += one == swapped(two) == label
    missing = len(labels) - n
    if not n:
        return PairwiseAgreement(math.nan, math.nan, 0, missing)
    return PairwiseAgreement(right / n, consistent / n, n, missing)
