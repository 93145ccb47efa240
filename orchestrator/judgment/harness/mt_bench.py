"""MT-Bench (FastChat llm_judge): single ratings, pairwise verdicts of two games, win rates.

Its agreement with human votes is `orchestrator.statistics.agreement.raw_agreement`.

Source: Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena"
(arXiv 2306.05685), and FastChat's `llm_judge` (commit 0e6d3e4b).

The first match counts and a single-bracket number is the backup, as published: a judge that quotes
an example before its verdict, or cites "[1]", is misread by both. Unlike FastChat, a rating outside
the scale and an unparseable text are None; `convention="fastchat"` gives what FastChat gives.
"""

import math
import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from orchestrator.judgment.harness._numbers import NUMBER, within

Winner = Literal["A", "B", "tie"]

LOW: Final = 1.0
HIGH: Final = 10.0
UNPARSED: Final = -1.0
"""What FastChat puts in the place of a rating it can't read; dropped from its means."""
SCORE_TIE: Final = 0.1
"""Scores at most this far apart are a tie where a winner is derived from two ratings."""
NEEDS_REFERENCE: Final = frozenset({"math", "reasoning", "coding"})
"""Categories that FastChat judges against a reference answer."""

_RATING = re.compile(rf"\[\[({NUMBER})\]\]")
_RATING_BACKUP = re.compile(rf"\[({NUMBER})\]")
_SCORES = re.compile(rf"\[\[({NUMBER}),\s?({NUMBER})\]\]")
_SCORES_BACKUP = re.compile(rf"\[({NUMBER}),\s?({NUMBER})\]")
_VERDICTS: Final[tuple[tuple[str, Winner], ...]] = (
    ("[[A]]", "A"),
    ("[[B]]", "B"),
    ("[[C]]", "tie"),
)


def parse_rating(text: str, *, convention: Literal["fastchat"] | None = None) -> float | None:
    """The rating in a judge's text: the first `[[x]]`, else the first `[x]`.

    Args:
        text: What the judge wrote.
        convention: None gives None for no rating and for one outside 1..10; "fastchat" gives -1
            for no rating and checks no range.
    """
    match = rating_match(text)
    if convention == "fastchat":
        return UNPARSED if match is None else float(match.group(1))
    return None if match is None else within(match.group(1), LOW, HIGH)


def rating_match(text: str) -> re.Match[str] | None:
    """Where the rating of `parse_rating` stands; group 1 is the number."""
    return _RATING.search(text) or _RATING_BACKUP.search(text)


def parse_winner(
    text: str, *, convention: Literal["fastchat"] | None = None
) -> Winner | Literal["error"] | None:
    """The verdict of one game: "[[A]]" before "[[B]]" before "[[C]]", wherever they stand.

    Args:
        text: What the judge wrote.
        convention: None gives None for no verdict, "fastchat" gives "error".
    """
    for written, winner in _VERDICTS:
        if written in text:
            return winner
    return "error" if convention == "fastchat" else None


def parse_scores(text: str) -> tuple[float, float] | None:
    """Both ratings of the prompt that asks for two: the first `[[x, y]]`, else `[x, y]`."""
    match = _SCORES.search(text) or _SCORES_BACKUP.search(text)
    if match is None:
        return None
    a, b = (within(match.group(i), LOW, HIGH) for i in (1, 2))
    return None if a is None or b is None else (a, b)


def winner_of_scores(a: float | None, b: float | None) -> Winner | None:
    """The winner that two ratings imply: a tie up to 0.1 apart; None where one is missing."""
    if a is None or b is None:
        return None
    if abs(a - b) <= SCORE_TIE:
        return "tie"
    return "A" if a > b else "B"


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
    """A model's results; the rates are nan where there are none.

    Attributes:
        wins: W.
        losses: L.
        ties: T.
        missing: Pairs without a verdict; they are in no rate.
        win_rate: W / (W + L + T).
        loss_rate: L / (W + L + T).
        win_rate_adjusted: (W + T/2) / (W + L + T).
    """

    wins: int
    losses: int
    ties: int
    missing: int
    win_rate: float
    loss_rate: float
    win_rate_adjusted: float


def win_rates(results: Iterable[Winner | None]) -> WinRates:
    """FastChat's win rates of the model that stands as A in every pair."""
    counts: dict[str | None, int] = {"A": 0, "B": 0, "tie": 0, None: 0}
    for result in results:
        counts[result] += 1
    wins, losses, ties = counts["A"], counts["B"], counts["tie"]
    n = wins + losses + ties
    if not n:
        return WinRates(wins, losses, ties, counts[None], math.nan, math.nan, math.nan)
    adjusted = (wins + 0.5 * ties) / n
    return WinRates(wins, losses, ties, counts[None], wins / n, losses / n, adjusted)
