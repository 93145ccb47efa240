"""The verdict format of each harness: parser, place, labels."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from orchestrator.judgment.harness import align_bench, auto_j, critique_llm, mt_bench
from orchestrator.judgment.harness._reading import Match, Reading, Winner
from orchestrator.prompts import compact

Slot = tuple[int, str]
"""The place of a verdict in a text: the index of its label's first character, and what ends the
label, so that none is the beginning of another."""


class Format(NamedTuple):
    """The format in which a harness writes verdicts.

    Attributes:
        read: The one verdict that a text has: a rating, or a winner in the order shown.
        labels: What may stand where a verdict does.
        values: What each label is worth: a rating, or P(first is better).
        by_convention: The verdict by a convention of the released code, by its name, None for none;
            and where it stands. Left out, no convention reads a text otherwise.
        dropped: What the harness's own convention writes for no verdict and leaves out of means.
    """

    read: Callable[[str], Reading]
    labels: tuple[str, ...]
    values: tuple[float, ...]
    by_convention: tuple[Callable[[str, Any], Any], Callable[[str], Slot | None]] | None = None
    dropped: float | None = None

    def published(self, text: str, convention: str) -> float | Winner | None:
        """The verdict by a convention of the released code, by its name; None for none."""
        if self.by_convention is None:
            found: float | Winner | None = self.read(text).value
        else:
            found = self.by_convention[0](text, convention)
        return found

    def slot(self, text: str, convention: str | None) -> Slot | None:
        """Find the place of the verdict that a convention, or None, reads; None for no verdict."""
        if convention is not None and self.by_convention is not None:
            return self.by_convention[1](text)
        found = self.read(text).match
        return None if found is None else (found.begin, found.closing)


TEN: Final = tuple(str(rating) for rating in range(1, 11))
_RATINGS: Final = tuple(float(rating) for rating in TEN)
_PAIR: Final = (1.0, 0.0, 0.5)


def _number_at(find: Callable[[str], re.Match[str] | None]) -> Callable[[str], Slot | None]:
    """A number that ends with what the match ends with, else with the character after it."""

    def slot(text: str) -> Slot | None:
        match = find(text)
        if match is None:
            return None
        begin, end = match.span(1)
        return begin, text[end : match.end()] or text[end:][:1]

    return slot


FASTCHAT_RATING: Final = Format(
    mt_bench.read_rating,
    TEN,
    _RATINGS,
    (lambda text, _: mt_bench.published_rating(text), _number_at(mt_bench.rating_match)),
    dropped=mt_bench.UNPARSED,
)


def _fastchat_slot(text: str) -> Slot | None:
    for name in "ABC":
        begin = text.find(f"[[{name}]]")
        if begin >= 0:
            return begin + 2, "]]"
    return None


FASTCHAT_WINNER: Final = Format(
    mt_bench.read_winner,
    ("A", "B", "C"),
    _PAIR,
    (lambda text, _: mt_bench.published_winner(text), _fastchat_slot),
)
AUTO_J_RATING: Final = Format(
    auto_j.read_rating,
    TEN,
    _RATINGS,
    (auto_j.published_rating, _number_at(auto_j.rating_match)),
)
FIRST_LINE_RATING: Final = Format(auto_j.read_first_line, TEN, _RATINGS)


def _decision_slot(text: str) -> Slot | None:
    begin = auto_j.decision_start(text)
    return None if auto_j.published_decision(text) is None else (begin, "")


AUTO_J_DECISION: Final = Format(
    auto_j.read_decision,
    ("Response 1", "Response 2", "Tie"),
    _PAIR,
    (lambda text, _: auto_j.published_decision(text), _decision_slot),
)
CRITIQUE_SCORE: Final = Format(
    critique_llm.read_score,
    ("0", *TEN),
    (0.0, *_RATINGS),
    (lambda text, _: critique_llm.published_score(text), _number_at(critique_llm.score_match)),
)


def _label_slot(text: str) -> Slot | None:
    label, _ = critique_llm.published_label(text)
    before, after = critique_llm.BEFORE_LABEL, critique_llm.AFTER_LABEL
    return (text.index(before + label + after) + len(before), after) if label else None


CRITIQUE_LABEL: Final = Format(
    critique_llm.read_label,
    tuple(critique_llm.LABELS),
    _PAIR,
    (lambda text, _: critique_llm.published_label(text)[1], _label_slot),
)


ALIGN_SCORE: Final = Format(
    align_bench.read_overall,
    TEN,
    _RATINGS,
    (
        lambda text, _: align_bench.parse_judgment(text, convention="align_bench")[0],
        _number_at(align_bench.overall_match),
    ),
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
