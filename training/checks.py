"""Grades of answers, the written check behind a verdict, and made-up wrong answers."""

from __future__ import annotations

import random

from orchestrator.datasets.demo import DIGITS, LETTERS, DemoItem, draw_item
from orchestrator.prompts import compact

WRONG, NEAR, RIGHT = 0, 1, 2
GRADE_WORDS = ("wrong", "near", "right")


def seeded(seed: str) -> random.Random:
    """Return a source of randomness that always gives the same for the same seed."""
    return random.Random(seed)  # noqa: S311 - not for secrets


def matches(reference: str, answer: str) -> list[bool]:
    """Compare two strings of symbols place by place, up to the end of the longer one."""
    expected, given = reference.split(), answer.split()
    length = max(len(expected), len(given))
    return [
        place < len(expected) and place < len(given) and expected[place] == given[place]
        for place in range(length)
    ]


def grade(reference: str, answer: str) -> int:
    """Grade an answer.

    Returns:
        2 if it is right, 1 if exactly one place of a reference of three or more symbols is
        wrong, missing or too many, otherwise 0.
    """
    misses = matches(reference, answer).count(False)
    if misses == 0:
        return RIGHT
    return NEAR if misses == 1 and len(reference.split()) >= 3 else WRONG


def verdict(reference: str, first: str, second: str) -> str:
    """Return the label for a pair of answers."""
    return compact.LABELS[2 - grade(reference, first) + grade(reference, second)]


def rating(reference: str, answer: str) -> str:
    """Return the rating, from 1 for no right place to 9 for all places right."""
    hits = matches(reference, answer)
    return str(1 + int(8 * sum(hits) / len(hits) + 0.5))


def check(reference: str, answer: str) -> str:
    """Write the check: each place's symbol with yes or no, then the grade in a word."""
    expected, given = reference.split(), answer.split()
    words = []
    for place, hit in enumerate(matches(reference, answer)):
        words += [expected[place] if place < len(expected) else given[place]]
        words += ["yes" if hit else "no"]
    return " ".join([*words, GRADE_WORDS[grade(reference, answer)]])


def _alphabet(item: DemoItem) -> str:
    return DIGITS if item.reference[0] in DIGITS else LETTERS


def _change_one(rng: random.Random, item: DemoItem) -> list[str]:
    symbols = item.reference.split()
    place = rng.randrange(len(symbols))
    own = [symbol for symbol in symbols if symbol != symbols[place]]
    if own and rng.random() < 0.5:
        symbols[place] = rng.choice(own)
    else:
        symbols[place] = rng.choice(_alphabet(item).replace(symbols[place], ""))
    return symbols


def _near(rng: random.Random, item: DemoItem) -> list[str]:
    symbols = item.reference.split()
    draw = rng.random()
    if draw < 0.7:
        return _change_one(rng, item)
    if draw < 0.85:
        return symbols[:-1]
    return [*symbols, rng.choice(_alphabet(item))]


def _shuffled(rng: random.Random, item: DemoItem) -> list[str]:
    symbols = item.prompt.split(": ")[1].split()
    if rng.random() < 0.5:
        symbols = item.reference.split()
    if len(symbols) > 1 and rng.random() < 0.5:
        first, second = rng.sample(range(len(symbols)), 2)
        symbols[first], symbols[second] = symbols[second], symbols[first]
    else:
        rng.shuffle(symbols)
    return symbols


def _resized(rng: random.Random, item: DemoItem) -> list[str]:
    symbols = item.reference.split()
    if rng.random() < 0.5:
        del symbols[rng.randrange(len(symbols))]
        return symbols
    for _ in range(rng.randint(1, 2)):
        symbols.insert(rng.randint(0, len(symbols)), rng.choice(_alphabet(item)))
    return symbols


def _unrelated(rng: random.Random, item: DemoItem) -> list[str]:
    draw = rng.random()
    if draw < 0.12:
        return []
    if draw < 0.4:
        other = draw_item(rng, item.category, held_out=False)
        return other.reference.split()
    if draw < 0.6:
        return item.prompt.split(": ")[1].split()
    length = rng.choice([len(item.reference.split()), rng.randint(1, 7)])
    return [rng.choice(_alphabet(item)) for _ in range(length)]


def _several(rng: random.Random, item: DemoItem) -> list[str]:
    symbols = item.reference.split()
    pool = rng.choice([_alphabet(item), "".join(symbols)])
    for _ in range(rng.randint(2, 3)):
        symbols[rng.randrange(len(symbols))] = rng.choice(pool)
    return symbols


def perturb(rng: random.Random, item: DemoItem) -> str:
    """Make up an answer such as weak models give; now and then it is right by chance."""
    makers = (_near, _near, _shuffled, _shuffled, _resized, _unrelated, _several)
    return " ".join(rng.choice(makers)(rng, item))


def answer_with_grade(rng: random.Random, item: DemoItem, wanted: int) -> str:
    """Make up an answer of a wanted grade.

    Grade 1 does not exist for references shorter than three symbols; grade 0 is used then.
    """
    if wanted == NEAR and len(item.reference.split()) < 3:
        wanted = WRONG
    while wanted != RIGHT:
        answer = " ".join(_near(rng, item)) if wanted == NEAR else perturb(rng, item)
        if grade(item.reference, answer) == wanted:
            return answer
    return item.reference
