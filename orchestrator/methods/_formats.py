"""How each harness writes its verdicts: parser, place, labels."""

import re
from collections.abc import Callable
from typing import Final

from orchestrator.judgment.harness import align_bench, auto_j, critique_llm, mt_bench
from orchestrator.judgment.harness.mt_bench import Winner
from orchestrator.methods._harness import Format, Slot
from orchestrator.prompts import compact

TEN: Final = tuple(str(rating) for rating in range(1, 11))
_RATINGS: Final = tuple(float(rating) for rating in TEN)
_PAIR: Final = (1.0, 0.0, 0.5)


def _in_brackets(find: Callable[[str], re.Match[str] | None]) -> Callable[[str], Slot | None]:
    def slot(text: str) -> Slot | None:
        match = find(text)
        return None if match is None else Slot(match.start(1), text[match.end(1) : match.end()])

    return slot


FASTCHAT_RATING: Final = Format(
    lambda text, convention: mt_bench.parse_rating(text, convention=convention),
    _in_brackets(mt_bench.rating_match),
    TEN,
    _RATINGS,
    dropped=mt_bench.UNPARSED,
)


def _fastchat_winner(text: str, convention: object) -> Winner | None:  # noqa: ARG001
    found = mt_bench.parse_winner(text)
    return None if found == "error" else found


def _fastchat_slot(text: str) -> Slot | None:
    for name in "ABC":
        begin = text.find(f"[[{name}]]")
        if begin >= 0:
            return Slot(begin + 2, "]]")
    return None


FASTCHAT_WINNER: Final = Format(_fastchat_winner, _fastchat_slot, ("A", "B", "C"), _PAIR)

AUTO_J_RATING: Final = Format(
    lambda text, convention: auto_j.parse_rating(text, convention=convention),
    _in_brackets(auto_j.rating_match),
    TEN,
    _RATINGS,
)
_DECISIONS: Final[tuple[Winner, ...]] = ("A", "B", "tie")


def _decision(text: str, convention: object) -> Winner | None:  # noqa: ARG001
    found = auto_j.parse_decision(text)
    return None if found is None else _DECISIONS[found]


def _decision_slot(text: str) -> Slot | None:
    begin = auto_j.decision_start(text)
    return None if begin < 0 or auto_j.parse_decision(text) is None else Slot(begin)


AUTO_J_DECISION: Final = Format(
    _decision, _decision_slot, ("Response 1", "Response 2", "Tie"), _PAIR
)


def _before_next(find: Callable[[str], re.Match[str] | None]) -> Callable[[str], Slot | None]:
    """A number that ends with the character after it, or with the text."""

    def slot(text: str) -> Slot | None:
        match = find(text)
        return None if match is None else Slot(match.start(1), text[match.end(1) :][:1])

    return slot


CRITIQUE_SCORE: Final = Format(
    lambda text, convention: critique_llm.parse_score(text, convention=convention),
    _before_next(critique_llm.score_match),
    ("0", *TEN),
    (0.0, *_RATINGS),
)


def _label(text: str, convention: object) -> Winner | None:  # noqa: ARG001
    found = critique_llm.parse_label(text)
    return None if found is None else _DECISIONS[found]


def _label_slot(text: str) -> Slot | None:
    found = critique_llm.parse_label(text)
    if found is None:
        return None
    before, after = critique_llm.BEFORE_LABEL, critique_llm.AFTER_LABEL
    begin = text.index(before + critique_llm.LABELS[found] + after)
    return Slot(begin + len(before), after)


CRITIQUE_LABEL: Final = Format(_label, _label_slot, critique_llm.LABELS, _PAIR)

ALIGN_SCORE: Final = Format(
    lambda text, convention: align_bench.parse_judgment(text, convention=convention).score,
    _before_next(align_bench.overall_match),
    TEN,
    _RATINGS,
)

# -- the bundled judge's own forms ----------------------------------------------------------------

_DIGIT = re.compile(r"\s{0,8}([1-9])\s{0,8}")
_SYMBOL = re.compile(r"\s{0,8}(\[\[(?:>>|>|=|<|<<)\]\])\s{0,8}")
_SYMBOL_VALUES: Final = (1.0, 1.0, 0.5, 0.0, 0.0)


def _digit(text: str, convention: object) -> float | None:  # noqa: ARG001
    match = _DIGIT.fullmatch(text)
    return None if match is None else float(match.group(1))


def _symbol(text: str, convention: object) -> Winner | None:  # noqa: ARG001
    match = _SYMBOL.fullmatch(text)
    if match is None:
        return None
    return "A" if ">" in match.group(1) else "B" if "<" in match.group(1) else "tie"


def _at_start(pattern: re.Pattern[str]) -> Callable[[str], Slot | None]:
    def slot(text: str) -> Slot | None:
        match = pattern.fullmatch(text)
        return None if match is None else Slot(match.start(1))

    return slot


COMPACT_RATING: Final = Format(
    _digit, _at_start(_DIGIT), compact.RATINGS, tuple(map(float, compact.RATINGS))
)
COMPACT_SYMBOL: Final = Format(_symbol, _at_start(_SYMBOL), compact.LABELS, _SYMBOL_VALUES)
