"""The verdict format of each harness: parser, place, labels."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from orchestrator.judgment.harness import align_bench, auto_j, critique_llm, mt_bench
from orchestrator.judgment.harness._reading import Match, Published, Reading
from orchestrator.prompts import compact


class Format(NamedTuple):
    """The format in which a harness writes verdicts.

    Attributes:
        read: The one verdict that a text has: a rating, or a winner in the order shown.
        labels: What may stand where a verdict does.
        values: What each label is worth: a rating, or P(first is better).
        by_convention: The verdict by a convention of the released code, by its name, and where it
            stands. Left out, no convention reads a text otherwise.
        dropped: What the harness's own convention writes for no verdict and leaves out of means.
    """

    read: Callable[[str], Reading]
    labels: tuple[str, ...]
    values: tuple[float, ...]
    by_convention: Callable[[str, Any], Published] | None = None
    dropped: float | None = None

    def by(self, text: str, convention: str | None) -> Published:
        """The verdict by a convention, or by none, and its place; None for no verdict."""
        if convention is not None and self.by_convention is not None:
            return self.by_convention(text, convention)
        found = self.read(text).match
        return (None, None) if found is None else (found.value, (found.begin, found.closing))


TEN: Final = tuple(str(rating) for rating in range(1, 11))
_RATINGS: Final = tuple(float(rating) for rating in TEN)
_PAIR: Final = (1.0, 0.0, 0.5)


FASTCHAT_RATING: Final = Format(
    mt_bench.read_rating,
    TEN,
    _RATINGS,
    lambda text, _: mt_bench.published_rating(text),
    dropped=mt_bench.UNPARSED,
)
FASTCHAT_WINNER: Final = Format(
    mt_bench.read_winner, ("A", "B", "C"), _PAIR, lambda text, _: mt_bench.published_winner(text)
)
AUTO_J_RATING: Final = Format(auto_j.read_rating, TEN, _RATINGS, auto_j.published_rating)
FIRST_LINE_RATING: Final = Format(auto_j.read_first_line, TEN, _RATINGS)
AUTO_J_DECISION: Final = Format(
    auto_j.read_decision,
    ("Response 1", "Response 2", "Tie"),
    _PAIR,
    lambda text, _: auto_j.published_decision(text),
)
CRITIQUE_SCORE: Final = Format(
    critique_llm.read_score,
    ("0", *TEN),
    (0.0, *_RATINGS),
    lambda text, _: critique_llm.published_score(text),
)
CRITIQUE_LABEL: Final = Format(
    critique_llm.read_label,
    tuple(critique_llm.LABELS),
    _PAIR,
    lambda text, _: critique_llm.published_label(text),
)
ALIGN_SCORE: Final = Format(
    align_bench.read_overall, TEN, _RATINGS, lambda text, _: align_bench.published_overall(text)
)

# -- the bundled judge's own forms ----------------------------------------------------------------

_DIGIT = re.compile(r"\s{0,8}([1-9])\s{0,8}")
_SYMBOL = re.compile(r"\s{0,8}(\[\[(?:>>|>|=|<|<<)\]\])\s{0,8}")
_SYMBOL_VALUES: Final = (1.0, 1.0, 0.5, 0.0, 0.0)


def _digit(text: str) -> Reading:
    match = _DIGIT.fullmatch(text)
    if match is None:
        return Reading()
    return Reading(Match(float(match.group(1)), 0, *match.span(1)), cause="")


def _symbol(text: str) -> Reading:
    match = _SYMBOL.fullmatch(text)
    if match is None:
        return Reading()
    winner = "A" if ">" in match.group(1) else "B" if "<" in match.group(1) else "tie"
    return Reading(Match(winner, 0, *match.span(1)), cause="")


COMPACT_RATING: Final = Format(_digit, compact.RATINGS, tuple(map(float, compact.RATINGS)))
COMPACT_SYMBOL: Final = Format(_symbol, compact.LABELS, _SYMBOL_VALUES)
