"""MT-Bench (FastChat llm_judge): single ratings, pairwise verdicts of two games.

Its agreement with human votes is `orchestrator.statistics.agreement.raw_agreement`.

Source: Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena"
(arXiv 2306.05685), and FastChat's `llm_judge` (commit 0e6d3e4b).

FastChat takes the first match, and a number in single brackets where there is none: a judge that
quotes an example, denies a verdict ("not [[A]]") or cites "[1]" is misread. `convention="fastchat"`
does the same. Without it a text has a verdict only where all matches agree, none is denied, and a
number in single brackets is announced as the rating; a rating outside the scale is None too.
"""

import re
from typing import Final

from orchestrator.judgment.harness._reading import (
    AMBIGUOUS,
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
UNPARSED: Final = -1.0
"""FastChat's stand-in for a rating that it can't read; dropped from its means."""
NEEDS_REFERENCE: Final = frozenset({"math", "reasoning", "coding"})
"""Categories that FastChat judges against a reference answer."""

_RATING = re.compile(rf"\[\[({NUMBER})\]\]")
_RATING_BACKUP = re.compile(rf"\[({NUMBER})\]")
_ANNOUNCED = re.compile(rf"(?i:\b(?:rating|score)(?: is)?)[\s:*_=]{{1,4}}\[({NUMBER})\]")
_VERDICTS: Final[tuple[tuple[str, Winner], ...]] = (
    ("[[A]]", "A"),
    ("[[B]]", "B"),
    ("[[C]]", "tie"),
)
_VERDICT = re.compile(r"\[\[([ABC])\]\]")


def published_rating(text: str) -> Published:
    """The rating that FastChat reads: the first `[[x]]`, else the first `[x]`, of any range.

    It is -1 for no rating.
    """
    return published_number(_RATING.search(text) or _RATING_BACKUP.search(text), UNPARSED)


def read_rating(text: str) -> Reading:
    """The one rating in a text: `[[x]]`, else an announced `[x]` or nothing but `[x]`."""
    found = [*map(_match, _RATING.finditer(text))] or [*map(_match, _ANNOUNCED.finditer(text))]
    if not found and (alone := _RATING_BACKUP.fullmatch(text.strip())):
        found = [_match(alone, len(text) - len(text.lstrip()))]
    if not found and (cited := _RATING_BACKUP.search(text)):
        said = f"has no [[rating]]; {cited.group()} may be a citation"
        return Reading(cause=AMBIGUOUS, message=said)
    return on_scale(agreed(text, found), LOW, HIGH)


def _match(found: re.Match[str], at: int = 0) -> Match:
    begin, end = found.start(1) + at, found.end(1) + at
    closing = found.string[found.end(1) : found.end()]
    return Match(float(found.group(1)), found.start() + at, begin, end, closing)


def published_winner(text: str) -> Published:
    """The verdict of one game that FastChat reads; None where it says "error".

    "[[A]]" is looked for before "[[B]]" before "[[C]]", wherever they stand.
    """
    for written, winner in _VERDICTS:
        begin = text.find(written)
        if begin >= 0:
            return winner, (begin + 2, "]]")
    return None, None


def read_winner(text: str) -> Reading:
    """The one verdict of "[[A]]", "[[B]]" and "[[C]]" in a text."""
    winners = dict(_VERDICTS)
    found = [
        Match(winners[one.group()], one.start(), one.start(1), one.end(1), "]]")
        for one in _VERDICT.finditer(text)
    ]
    return agreed(text, found)


def two_games(game_1: Winner | None, game_2: Winner | None) -> Winner | None:
    """The result of two games with the answers swapped, both as seen in game 1's order.

    Different verdicts are a tie (FastChat's "tie (inconsistent)"); None where a game has none.
    """
    if game_1 is None or game_2 is None:
        return None
    return game_1 if game_1 == game_2 else "tie"


def swapped(winner: Winner | None) -> Winner | None:
    """A verdict of the swapped game in the view of the first."""
    return {"A": "B", "B": "A"}.get(winner or "", winner)  # type: ignore[return-value]
