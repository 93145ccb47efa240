"""Findings about label probabilities: how exact, of how long labels, and whether they are right."""

import math
from collections.abc import Sequence
from typing import Final

from orchestrator.probing.checks import NOISE
from orchestrator.probing.record import BAD, GOOD, NO, UNKNOWN, WARNING, Finding, refuses, unknown
from orchestrator.probing.replies import HttpReply, chat
from orchestrator.records import Choice, Failure, Label, labels

ONE_TOKEN: Final = labels("A", "B", "C")
MANY_TOKENS: Final = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")

_REMEDY: Final = {
    "choose_letters": "a server that lists log-probabilities of alternatives",
    "choose_verdicts": "labels of one token each, such as A, B, C; or vLLM, SGLang or embedded",
}
_KINDS: Final = {"choose_letters": "labels A, B, C", "choose_verdicts": "labels [[>>]] … [[<<]]"}


def choice(name: str, found: Choice | Failure) -> Finding:
    """Report the quality with which label probabilities can be read.

    Args:
        name: "choose_letters" or "choose_verdicts".
        found: What a choice among them gave.
    """
    what = _KINDS[name]
    if isinstance(found, Failure):
        if refuses(found):
            return Finding(name, NO, WARNING, f"{what}: {found.message}", _REMEDY[name])
        return unknown(name, f"{what}: {found.message}")
    mass = mass_of(found)
    if mass > 1 + NOISE:
        said = f"{what}: their probabilities add up to {mass:.3g}"
        return Finding(name, "wrong", BAD, said, "another server or back-end", mass)
    said = f"{what}: by {found.method}, {found.n_requests} requests, mass {mass:.2g}"
    if found.exact:
        return Finding(name, "exact", GOOD, said, number=mass)
    unread = [
        upper for value, upper in zip(found.logprobs, found.upper, strict=True) if value != value
    ]
    return Finding(
        name,
        "bounded",
        WARNING,
        f"{said}; {len(unread)} of {len(found.logprobs)} labels are only bounded, by "
        f"{math.exp(max(unread, default=0.0)):.2g} at most",
        "choose_negligible: 0 where the back-end has it, else a higher cap of alternatives",
        mass,
    )


def mass_of(found: Choice) -> float:
    """The probability of the labels that were read, together."""
    return math.fsum(math.exp(value) for value in found.logprobs if value == value)


def agreement(found: Choice | Failure, asked: Sequence[Label], reply: HttpReply) -> Finding:
    """Compare label probabilities with those of generation, for labels of one listed token.

    Args:
        found: A choice among `asked`.
        asked: Labels of one spelling each.
        reply: One greedy token with alternatives after the same prompt.
    """
    name = "choose_agrees"
    drawn = chat(reply)
    if isinstance(found, Failure) or drawn is None or not drawn.positions:
        return unknown(name, "nothing to compare with")
    listed = drawn.positions[0].logprobs()
    gaps = [
        abs(value - listed[label.spellings[0]])
        for label, value in zip(asked, found.logprobs, strict=True)
        if label.spellings[0] in listed and math.isfinite(value)
    ]
    if not gaps:
        return Finding(name, UNKNOWN, UNKNOWN, "no label is among the listed alternatives")
    number = max(gaps)
    said = f"label ln p differ from the listed ones by at most {number:.2g}"
    if number <= NOISE:
        return Finding(name, "consistent", GOOD, said, number=number)
    return Finding(name, "inconsistent", BAD, said, "another back-end kind or server", number)
