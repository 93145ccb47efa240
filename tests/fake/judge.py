"""Judgments of fake models: by the quality that fake answers show, with some noise."""

import math
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.fake import language

COVERAGE: Final = 0.97
"""Probability that a judge gives to the labels together."""

_WIDTH: Final = 0.4
_FIRST_BIAS: Final = 0.08
"""Judges prefer what they see first, a little."""

FIRST: Final = 0.6
"""View of a judge that prefers what it sees first, whatever it is."""

SYMBOLS: Final = (">>", ">", "=", "<", "<<")
_PLACES: Final = {
    ">>": 1.0, ">": 0.5, "=": 0.0, "<": -0.5, "<<": -1.0,
    "a": 1.0, "b": -1.0, "c": 0.0, "tie": 0.0,
    "yes": 1.0, "no": -1.0, "true": 1.0, "false": -1.0,
}  # fmt: skip
_SYMBOL_PROMPT: Final = re.compile(r"\[\[[<=>]{1,2}\]\]|\ACompare two answers\.")
_SCORES_PROMPT: Final = re.compile(r"Rate both answers|rate each response")
_RATING_PROMPT: Final = re.compile(r"\brat(?:e|ing)\b|\bscore\b|\bgrade\b", re.IGNORECASE)
_LIST_PROMPT: Final = re.compile(r"\brank all assistants from best to worst\b", re.IGNORECASE)
_LETTER: Final = re.compile(r"\[Start of Assistant ([A-Z])'s Answer\]")

_TWO_ANSWERS: Final = re.compile(r"Answer B:|Assistant B's Answer")
_ONE_ANSWER: Final = re.compile(r"Answer:|Assistant's Answer")


class Case(NamedTuple):
    """The content of a prompt: a view in [-1, 1], and over how many answers (0, 1, 2)."""

    view: float
    n_answers: int


def read(prompt: str, model: str, quality: float) -> Case:
    """The view of a judge of some quality: of two answers, +1 for the first; of one, +1 for good.

    A prompt without answers in the invented language is viewed by its hash; that it shows answers
    at all is told by its headings.
    """
    runs = [language.quality_of(run) for run in language.RUN.findall(prompt)][-2:]
    noise = (language.fraction("noise", model, prompt) - 0.5) * (1 - quality)
    match runs:
        case [first, second]:
            return Case(math.tanh(2.5 * (first - second) + _FIRST_BIAS + noise), 2)
        case [only]:
            return Case(max(-1.0, min(1.0, 2 * only - 1 + noise)), 1)
        case _:
            shown = 2 if _TWO_ANSWERS.search(prompt) else 1 if _ONE_ANSWER.search(prompt) else 0
            return Case(2 * language.fraction("view", model, prompt) - 1, shown)


def reward(answer: str, prompt: str, model: str, quality: float) -> float:
    """Return the reward of an answer, in [-4, 4], by its share of good words or its hash."""
    noise = (language.fraction("noise", model, prompt, answer) - 0.5) * (1 - quality)
    share = language.quality_of(answer)
    if math.isnan(share):
        share = language.fraction("view", model, prompt, answer)
    return round(6 * (share - 0.5) + 2 * noise, 6)


def distribution(case: Case, names: Sequence[str], *, evenly: bool = False) -> list[float]:
    """Probabilities of labels by name; they sum to `COVERAGE`, or to 1 where even."""
    if evenly:
        return [1 / len(names)] * len(names)
    weights = [math.exp(-(((place - case.view) / _WIDTH) ** 2)) for place in _places(names)]
    # A weight that underflows would be a true zero, which no model gives.
    total = sum(weights) + 1e-6 * len(weights)
    return [COVERAGE * (weight + 1e-6) / total for weight in weights]


def verdict(prompt: str, case: Case, *, evenly: bool = False) -> str:
    """Return the end of a judge's reasons, its verdict; empty if none was asked for."""
    if _LIST_PROMPT.search(prompt):
        return "\n" + " > ".join(_LETTER.findall(prompt))
    if case.n_answers == 2 and _SCORES_PROMPT.search(prompt):
        lead = 0 if evenly else round(3 * case.view)
        return f" {5 + lead} {5 - lead}"
    if case.n_answers == 2 and _SYMBOL_PROMPT.search(prompt):
        weights = distribution(case, SYMBOLS)
        symbol = "=" if evenly else SYMBOLS[weights.index(max(weights))]
        return f" [[{symbol}]]"
    if case.n_answers == 1 and _RATING_PROMPT.search(prompt):
        rating = 5 if evenly else 5 + round(4 * case.view)
        return f" [[{rating}]]" if "[[" in prompt else f" Rating: {rating}"
    return ""


def one_token_labels(prompt: str, case: Case) -> tuple[str, ...]:
    """The labels that a judge would answer with in one token; empty where it is not judging."""
    if case.n_answers == 2 and _SCORES_PROMPT.search(prompt):
        return tuple("123456789")
    if case.n_answers == 2:
        return ("[[",) if _SYMBOL_PROMPT.search(prompt) else ("A", "B", "C")
    if case.n_answers == 1 and _RATING_PROMPT.search(prompt):
        return ("[[",) if "[[" in prompt else tuple("123456789")
    return ()


def _places(names: Sequence[str]) -> list[float]:
    plain = [name.strip().strip('[]"().').lower() for name in names]
    if all(name.isascii() and name.isdigit() for name in plain) and len(set(plain)) > 1:
        numbers = [int(name[:9]) for name in plain]
        low, high = min(numbers), max(numbers)
        return [2 * (value - low) / (high - low) - 1 for value in numbers]
    # Labels it doesn't know keep their order, from the first answer to the second.
    last = max(len(plain) - 1, 1)
    return [_PLACES.get(name, 1 - 2 * at / last) for at, name in enumerate(plain)]
