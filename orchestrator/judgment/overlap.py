"""Overlap of the words of two texts."""

import re
from collections import Counter
from typing import Final

# Scripts that are written without blanks: each character is a word.
_CJK: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")


def words(text: str) -> list[str]:
    """Words without case and punctuation; single characters of Chinese and Japanese."""
    return _WORD.findall(text.lower())


def token_f1(first: str, second: str) -> float | None:
    """Harmonic mean of the shares of each text's words that are in the other, in [0, 1].

    Words count as often as they occur. 0 where one text has no words; None where neither has any
    and the texts differ: there is nothing to compare.

    Source: Rajpurkar et al. 2016 (SQuAD, arXiv 1606.05250), without its removal of articles.
    """
    one, two = Counter(words(first)), Counter(words(second))
    total = one.total() + two.total()
    if total == 0:
        return 1.0 if first == second else None
    return 2.0 * (one & two).total() / total
