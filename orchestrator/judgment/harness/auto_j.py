"""Auto-J, and SelfEval's copy of it: the last rating, the last final decision.

Source: Li et al. 2023, "Generative Judge for Evaluating Alignment" (arXiv 2310.05470), its code
(commit 2ae17a39) and SelfEval's copy (commit d73bd7ef).

The released code gives 0.0 to a text without a rating, SelfEval's copy 5.0, and -1 where there is
no decision; each only under its name as `convention`. Without one such a verdict is None.
"""

import re
from typing import Final, Literal

from orchestrator.judgment.harness._numbers import NUMBER, within

LOW: Final = 1.0
HIGH: Final = 10.0
UNPARSED: Final = {"auto_j": 0.0, "selfeval": 5.0}
UNPARSED_DECISION: Final = -1
DECISIONS: Final = ("response 1", "response 2", "tie")
"""Response 1 is better (0), response 2 is better (1), equal (2)."""

_BEFORE_RATING: Final = "Rating: [["
_BEFORE_DECISION: Final = "final decision is "
_RATING = re.compile(rf"\s{{0,4}}({NUMBER})\s{{0,4}}\]\]")


def parse_rating(
    text: str, *, convention: Literal["auto_j", "selfeval"] | None = None
) -> float | None:
    """The rating in a critique: the last "Rating: [[x]]".

    Args:
        text: What the judge wrote.
        convention: None gives None for no rating and for one outside 1..10; "auto_j" gives 0.0
            and "selfeval" 5.0 for no rating, and both check no range.
    """
    match = rating_match(text)
    if convention is not None:
        return UNPARSED[convention] if match is None else float(match.group(1))
    return None if match is None else within(match.group(1), LOW, HIGH)


def rating_match(text: str) -> re.Match[str] | None:
    """Where the rating of `parse_rating` stands; group 1 is the number."""
    start = text.rfind(_BEFORE_RATING)
    return None if start < 0 else _RATING.match(text, start + len(_BEFORE_RATING))


def parse_decision(text: str, *, convention: Literal["auto_j"] | None = None) -> int | None:
    """The verdict of a comparison after the last "final decision is": 0, 1, or 2 for a tie.

    Args:
        text: What the judge wrote.
        convention: None gives None for no decision, "auto_j" gives -1.
    """
    start = decision_start(text)
    if start >= 0:
        said = text[start : start + 20].lower()
        for decision, name in enumerate(DECISIONS):
            if said.startswith(name):
                return decision
    return UNPARSED_DECISION if convention == "auto_j" else None


def decision_start(text: str) -> int:
    """Where the decision of `parse_decision` begins; -1 where nothing announces one."""
    start = text.rfind(_BEFORE_DECISION)
    if start < 0:
        return -1
    start += len(_BEFORE_DECISION)
    return len(text) - len(text[start:].lstrip())
