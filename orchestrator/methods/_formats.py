"""The verdict format of each harness: parser, place, labels."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from orchestrator.judgment.harness import align_bench, auto_j, critique_llm, mt_bench
from orchestrator.judgment.harness._reading import Match, Reading
from orchestrator.judgment.harness.mt_bench import Winner
from orchestrator.prompts import compact


class Slot(NamedTuple):
    """The place of a verdict in a text.

    Attributes:
        begin: Index of its label's first character in the text.
        closing: What ends the label, so that none is the beginning of another.
    """

    begin: int
    closing: str = ""


class Format(NamedTuple):
    """The format in which a harness writes verdicts.

    Attributes:
        read: The one verdict that a text has: a rating, or a winner in the order shown.
        published: The verdict by a convention of the released code, by its name; None for none.
        slot: Where the verdict of `read` stands; None where there is none.
        published_slot: Where the one of `published` does.
        labels: What may stand there.
        values: What each label is worth: a rating, or P(first is better).
        dropped: What the harness's own convention writes for no verdict and leaves out of means.
    """

    read: Callable[[str], Reading]
    published: Callable[[str, Any], Any]
    slot: Callable[[str], Slot | None]
    published_slot: Callable[[str], Slot | None]
    labels: tuple[str, ...]
    values: tuple[float, ...]
    dropped: float | None = None


TEN: Final = tuple(str(rating) for rating in range(1, 11))
_RATINGS: Final = tuple(float(rating) for rating in TEN)
_PAIR: Final = (1.0, 0.0, 0.5)


def _read_at(read: Callable[[str], Reading]) -> Callable[[str], Slot | None]:
    """The slot of the one verdict that a text has."""

    def slot(text: str) -> Slot | None:
        found = read(text).match
        return None if found is None else Slot(found.begin, found.closing)

    return slot


def _in_brackets(find: Callable[[str], re.Match[str] | None]) -> Callable[[str], Slot | None]:
    def slot(text: str) -> Slot | None:
        match = find(text)
        return None if match is None else Slot(match.start(1), text[match.end(1) : match.end()])

    return slot


def _before_next(find: Callable[[str], re.Match[str] | None]) -> Callable[[str], Slot | None]:
    """A number that ends with the character after it, or with the text."""

    def slot(text: str) -> Slot | None:
        match = find(text)
        return None if match is None else Slot(match.start(1), text[match.end(1) :][:1])

    return slot


FASTCHAT_RATING: Final = Format(
    mt_bench.read_rating,
    lambda text, _: mt_bench.published_rating(text),
    _read_at(mt_bench.read_rating),
    _in_brackets(mt_bench.rating_match),
    TEN,
    _RATINGS,
    dropped=mt_bench.UNPARSED,
)


def _fastchat_winner(text: str, _: object = None) -> Winner | None:
    found = mt_bench.published_winner(text)
    return None if found == "error" else found


def _fastchat_slot(text: str) -> Slot | None:
    for name in "ABC":
        begin = text.find(f"[[{name}]]")
        if begin >= 0:
            return Slot(begin + 2, "]]")
    return None


FASTCHAT_WINNER: Final = Format(
    mt_bench.read_winner,
    _fastchat_winner,
    _read_at(mt_bench.read_winner),
    _fastchat_slot,
    ("A", "B", "C"),
    _PAIR,
)

AUTO_J_RATING: Final = Format(
    auto_j.read_rating,
    auto_j.published_rating,
    _read_at(auto_j.read_rating),
    _in_brackets(auto_j.rating_match),
    TEN,
    _RATINGS,
)
FIRST_LINE_RATING: Final = Format(
    auto_j.read_first_line,
    lambda text, _: auto_j.read_first_line(text).value,
    _read_at(auto_j.read_first_line),
    _read_at(auto_j.read_first_line),
    TEN,
    _RATINGS,
)
_DECISIONS: Final[tuple[Winner, ...]] = ("A", "B", "tie")


def _winner_of(read: Callable[[str], Reading]) -> Callable[[str], Reading]:
    def reading(text: str) -> Reading:
        found = read(text)
        if found.match is None:
            return found
        return found._replace(match=found.match._replace(value=_DECISIONS[found.value]))

    return reading


def _decision(text: str, _: object = None) -> Winner | None:
    found = auto_j.published_decision(text)
    return None if found == auto_j.UNPARSED_DECISION else _DECISIONS[found]


def _decision_slot(text: str) -> Slot | None:
    begin = auto_j.decision_start(text)
    return None if begin < 0 or _decision(text) is None else Slot(begin)


AUTO_J_DECISION: Final = Format(
    _winner_of(auto_j.read_decision),
    _decision,
    _read_at(auto_j.read_decision),
    _decision_slot,
    ("Response 1", "Response 2", "Tie"),
    _PAIR,
)

CRITIQUE_SCORE: Final = Format(
    critique_llm.read_score,
    lambda text, _: critique_llm.published_score(text),
    _read_at(critique_llm.read_score),
    _before_next(critique_llm.score_match),
    ("0", *TEN),
    (0.0, *_RATINGS),
)


def _label(text: str, _: object = None) -> Winner | None:
    found = critique_llm.published_label(text)
    return None if found == critique_llm.UNPARSED_LABEL else _DECISIONS[found]


def _label_slot(text: str) -> Slot | None:
    found = critique_llm.published_label(text)
    if found == critique_llm.UNPARSED_LABEL:
        return None
    before, after = critique_llm.BEFORE_LABEL, critique_llm.AFTER_LABEL
    begin = text.index(before + critique_llm.LABELS[found] + after)
    return Slot(begin + len(before), after)


CRITIQUE_LABEL: Final = Format(
    _winner_of(critique_llm.read_label),
    _label,
    _read_at(critique_llm.read_label),
    _label_slot,
    critique_llm.LABELS,
    _PAIR,
)

ALIGN_SCORE: Final = Format(
    align_bench.read_overall,
    lambda text, convention: align_bench.parse_judgment(text, convention=convention)[0],
    _read_at(align_bench.read_overall),
    _before_next(align_bench.overall_match),
    TEN,
    _RATINGS,
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


def _whole(
    read: Callable[[str], Reading], labels: tuple[str, ...], values: tuple[float, ...]
) -> Format:
    """A form that is the whole text, which no convention reads otherwise."""
    slot = _read_at(read)
    return Format(read, lambda text, _: read(text).value, slot, slot, labels, values)


COMPACT_RATING: Final = _whole(_digit, compact.RATINGS, tuple(map(float, compact.RATINGS)))
COMPACT_SYMBOL: Final = _whole(_symbol, compact.LABELS, _SYMBOL_VALUES)
