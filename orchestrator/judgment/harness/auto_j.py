"""Auto-J, and SelfEval's copy of it: the last rating, the last final decision.

Source: Li et al. 2023, "Generative Judge for Evaluating Alignment" (arXiv 2310.05470), its code
(commit 2ae17a39) and SelfEval's copy (commit d73bd7ef).

The released code takes the last match and gives 0.0 to a text without a rating (SelfEval's copy
5.0), -1 where there is no decision. Each does so only under its name as `convention`. Without one a
text has a verdict only where all matches agree.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

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

LOW: Final = 1.0
HIGH: Final = 10.0
UNPARSED: Final = {"auto_j": 0.0, "selfeval": 5.0}
_DECISIONS: Final[Mapping[str, Winner]] = {"response 1": "A", "response 2": "B", "tie": "tie"}

_BEFORE_RATING: Final = "Rating: [["
_BEFORE_DECISION: Final = "final decision is "
_RATING = re.compile(rf"\s{{0,4}}({NUMBER})\s{{0,4}}\]\]")
_RATINGS = re.compile(rf"Rating: \[\[\s{{0,4}}({NUMBER})\s{{0,4}}\]\]")
_FIRST_LINE = re.compile(rf"\s{{0,8}}({NUMBER})[ \t]{{0,8}}(?=\r?\n|\Z)")
_DECIDED = re.compile(rf"{_BEFORE_DECISION}\s*+(?i:({'|'.join(_DECISIONS)}))?")


def published_rating(text: str, convention: Literal["auto_j", "selfeval"]) -> Published:
    """The last "Rating: [[x]]" of a critique, of any range.

    For no rating "auto_j" gives 0.0 and "selfeval" 5.0.
    """
    start = text.rfind(_BEFORE_RATING)
    match = None if start < 0 else _RATING.match(text, start + len(_BEFORE_RATING))
    return published_number(match, UNPARSED[convention])


def read_rating(text: str) -> Reading:
    """The one "Rating: [[x]]" of a critique, which no unfinished one follows."""
    found = [
        Match(float(one.group(1)), one.start(), *one.span(1), text[one.end(1) : one.end()])
        for one in _RATINGS.finditer(text)
    ]
    if found and text.rfind(_BEFORE_RATING) != found[-1].start:
        return Reading()
    return on_scale(agreed(text, found, at=-1), LOW, HIGH)


def read_first_line(text: str) -> Reading:
    """The rating of a text whose first line is to hold nothing else, as in the glass-box paper."""
    match = _FIRST_LINE.match(text)
    if match is None:
        return Reading()
    found = Match(float(match.group(1)), match.start(), *match.span(1), text[match.end(1) :][:1])
    return on_scale(agreed(text, [found], at=0), LOW, HIGH)


def published_decision(text: str) -> Published:
    """The verdict of a comparison after the last "final decision is"; None for none (-1 there)."""
    _, announced, after = text.rpartition(_BEFORE_DECISION)
    said = after.lstrip()
    for name, winner in _DECISIONS.items():
        if announced and said[:20].lower().startswith(name):
            return winner, (len(text) - len(said), "")
    return None, None


def read_decision(text: str) -> Reading:
    """The one decision of a text, after "final decision is"; the last of these has one."""
    announced = list(_DECIDED.finditer(text))
    if not announced or announced[-1].group(1) is None:
        return Reading()
    found = [
        Match(_DECISIONS[one.group(1).lower()], one.start(), *one.span(1))
        for one in announced
        if one.group(1) is not None
    ]
    return agreed(text, found, at=-1)
