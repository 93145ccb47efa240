"""MT-Bench (FastChat llm_judge): single ratings, pairwise verdicts of two games, win rates.

Its agreement with human votes is `orchestrator.statistics.agreement.raw_agreement`.

Source: Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena"
(arXiv 2306.05685), and FastChat's `llm_judge` (commit 0e6d3e4b).

FastChat takes the first match, and a number in single brackets where there is none: a judge that
quotes an example, denies a verdict ("not [[A]]") or cites "[1]" is misread. `convention="fastchat"`
does the same. Without it a text has a verdict only where all matches agree, none is denied, and a
number in single brackets is announced as the rating; a rating outside the scale is None too.
"""

import math
import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from orchestrator.judgment.harness._reading import (
    AMBIGUOUS,
    NUMBER,
    Match,
    Reading,
    agreed,
    on_scale,
)

Winner = Literal["A", "B", "tie"]

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


def parse_rating(text: str, *, convention: Literal["fastchat"] | None = None) -> float | None:
    """The rating in a judge's text.

    A convention of None reads as `read_rating`; "fastchat" takes the first `[[x]]`, else the first
    `[x]`, gives -1 for no rating and checks no range.
    """
    if convention is None:
        value: float | None = read_rating(text).value
        return value
    match = rating_match(text)
    return UNPARSED if match is None else float(match.group(1))


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


def rating_match(text: str) -> re.Match[str] | None:
    """Return the match at which FastChat finds the rating; group 1 is the number."""
    return _RATING.search(text) or _RATING_BACKUP.search(text)


def parse_winner(
    text: str, *, convention: Literal["fastchat"] | None = None
) -> Winner | Literal["error"] | None:
    """The verdict of one game.

    A convention of None reads as `read_winner`; "fastchat" looks for "[[A]]" before "[[B]]" before
    "[[C]]", wherever they stand, and gives "error" for no verdict.
    """
    if convention is None:
        value: Winner | None = read_winner(text).value
        return value
    for written, winner in _VERDICTS:
        if written in text:
            return winner
    return "error"


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


class WinRates(msgspec.Struct, frozen=True):
    """A model's results; the rate is nan where there are none.

    Attributes:
        wins: W.
        losses: L.
        ties: T.
        missing: Pairs without a verdict; not in the rate.
        win_rate: W / (W + L + T).
    """

    wins: int
    losses: int
    ties: int
    missing: int
    win_rate: float


def win_rates(results: Iterable[Winner | None]) -> WinRates:
    """FastChat's win rates of the model that stands as A in every pair."""
    counts: dict[str | None, int] = {"A": 0, "B": 0, "tie": 0, None: 0}
    for result in results:
        counts[result] += 1
    wins, losses, ties = counts["A"], counts["B"], counts["tie"]
    n = wins + losses + ties
    return WinRates(wins, losses, ties, counts[None], wins / n if n else math.nan)
