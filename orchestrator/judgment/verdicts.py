"""A verdict, or a number, that is read only where the text says one thing.

A judge may quote the form it was asked for, cite "[1]", weigh several verdicts or deny one. The
released parsers take the first or the last match all the same; here such a text has no verdict, and
says why. What the released code reads is asked for by its name (`convention`). All parsers take
time linear in the text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

Winner = Literal["A", "B", "tie"]
"""Of two answers, in the order shown."""

NUMBER: Final = r"\d++(?:\.\d*+)?+"
r"""Possessive, so that a long run of digits is read once: the published `\d+\.?\d*` backtracks
through it quadratically. Both accept the same texts where a bracket follows."""


NONE: Final = "no_verdict"
AMBIGUOUS: Final = "ambiguous_verdict"
OFF_SCALE: Final = "verdict_off_scale"
_MOST_SHOWN: Final = 3

# "not [[A]]", "would not give it a [[9]]"; a full stop, comma, colon or line break between ends the
# denial, and what is "not as good as A" or "no better than A" is not denied.
_DENIED = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|instead of|rather than)|n['\u2019]t)"
    r"(?:[ \t](?!(?:as|than)\b)[\w'\u2019]{1,20}){0,3}[ \t\"'`*(]{0,8}\Z",
    re.IGNORECASE,
)
_BEFORE: Final = 100
_ADVERBS = (
    r"(?:(?:really|quite|even|fully|actually|just|simply|clearly|always|at all|directly|properly)"
    r"[ ]){0,2}"
)
_NOT = r"(?:[ ]not|n['\u2019]t)[ ]"
_LABEL_FOLLOWS = r"[ \t\"'`*(]{0,8}\Z"
# "B does not answer it [[A]]", "Response 2 isn't helpful [[A]]": the clause is about an answer and
# complete, so that the label begins another. What is in none of these lists stays denied.
_OF_AN_ANSWER = re.compile(
    r"(?:\b(?:[AB12]|(?:assistant|response|answer|model|former|latter|other|first|second)s?))"
    r"(?:[ ](?:also|still|simply|just|clearly)){0,1}[ ](?:"
    rf"(?:does|do|did|has|have|could|can){_NOT}{_ADVERBS}"
    r"(?:answer|address|follow|solve|explain|mention|cover|understand|complete|satisfy|meet|respect|"
    r"fulfil|fulfill|finish|show|check|verify|handle|answered|addressed|followed|solved|explained)"
    r"(?:[ ](?:the|this|that|its|any|all|every|user's|main|whole|given)){0,2}"
    r"[ ](?:it|them|everything|anything|questions?|prompts?|instructions?|tasks?|problems?|"
    r"requests?|points?|details?|steps?|reasoning|constraints?|requirements?|query|correctly|fully|well|"
    r"properly|accurately|completely|directly|clearly|adequately)"
    rf"|(?:is|are|was|were){_NOT}{_ADVERBS}"
    r"(?:helpful|relevant|accurate|complete|coherent|convincing|useful|detailed|consistent|factual))"
    rf"{_LABEL_FOLLOWS}",
    re.IGNORECASE,
)
# "I would not give this response a [[9]]": with the judge as the subject a denial reaches further
# than three words, but not over a conjunction.
_OF_THE_JUDGE = re.compile(
    r"\b(?:I|we)(?:[ ](?:would|could|can|should|do|did|will|am|are|have)(?:not)?)?"
    rf"(?:[ ](?:not|never|cannot)|n['\u2019]t|(?<=cannot))[ ]{_ADVERBS}"
    r"(?:say|choose|pick|select|give|award|assign|rate|score|prefer|favou?r|vote|go|call|declare|"
    r"consider|recommend|conclude|justify|grant|agree|going)\b"
    r"(?:[ ](?!(?:so|hence|thus|therefore|because|but|while|since|than)\b)"
    r"(?!and[ ](?:so|hence|thus|therefore|I|we|choose|pick|select|give|rate|score|say|go|prefer)\b)"
    r"[\w'\u2019]{1,20}){0,11}"
    rf"{_LABEL_FOLLOWS}",
    re.IGNORECASE,
)
_BEFORE_THE_JUDGES: Final = 200


class Match(NamedTuple):
    """One place in a text that may be the verdict.

    Attributes:
        value: What it says; None where a released code reads none at the place of one.
        start: Where the whole of it starts, brackets or introduction included.
        begin: Where the label begins.
        end: Where it ends.
        closing: What ends the label in the text, so that none is the beginning of another.
    """

    value: Any
    start: int
    begin: int
    end: int
    closing: str = ""


def matched(found: re.Match[str], value: float | str) -> Match:
    """Return the place of a label, the first group of a match, that says `value`."""
    closing = found.string[found.end(1) : found.end()]
    return Match(value, found.start(), *found.span(1), closing)


def number(found: re.Match[str]) -> Match:
    """Return the place of a number, the first group, which ends with the match or one further."""
    match = matched(found, float(found.group(1)))
    return match if match.closing else match._replace(closing=found.string[match.end :][:1])


def first_named(found: Sequence[Match], winners: Mapping[str, Winner]) -> Match | None:
    """Return the first match of the winner that is named first, as the released codes look."""
    order = tuple(winners.values())
    return min(found, key=lambda match: order.index(match.value), default=None)


class Reading(NamedTuple):
    """The verdict of a text, or the reason why it has none.

    Attributes:
        match: Where the verdict stands; None where there is none.
        cause: Why there is none, as it stands in rows; empty where there is one.
        message: The same in words that go on from "the judge's text"; empty for nothing to add.
    """

    match: Match | None = None
    cause: str = NONE
    message: str = ""

    @property
    def value(self) -> Any:  # noqa: ANN401 (a number, an index or a name)
        """The verdict; None where there is none."""
        return None if self.match is None else self.match.value


def agreed(text: str, found: Sequence[Match], *, at: int = 0) -> Reading:
    """The verdict that all matches agree on.

    Matches stand in the order of the text; that `at` an index counts as the place of the verdict.
    """
    if not found:
        return Reading()
    # The first match of each value.
    different: dict[Any, Match] = {}
    for match in found:
        different.setdefault(match.value, match)
    if len(different) > 1:
        chosen = list(different.values())[:_MOST_SHOWN]
        shown = ", ".join(text[one.start : one.end + len(one.closing)] for one in chosen)
        more = ", …" if len(different) > _MOST_SHOWN else ""
        return Reading(cause=AMBIGUOUS, message=f"holds different verdicts: {shown}{more}")
    for match in found:
        at_judge, at_answer = (
            max(match.start - reach, 0) for reach in (_BEFORE_THE_JUDGES, _BEFORE)
        )
        # A denial that belongs to a complete clause about an answer is none of the label.
        if _OF_THE_JUDGE.search(text, at_judge, match.start) is not None or (
            denied(text, match.start) and _OF_AN_ANSWER.search(text, at_answer, match.start) is None
        ):
            what = text[match.start : match.end + len(match.closing)]
            return Reading(cause=AMBIGUOUS, message=f"denies its verdict: … not … {what}")
    return Reading(found[at], cause="")


def denied(text: str, start: int) -> bool:
    """Return True if the words right before an index deny the label there."""
    return _DENIED.search(text, max(start - _BEFORE, 0), start) is not None


def on_scale(read: Reading, low: float, high: float) -> Reading:
    """The reading of a number, refused outside [low, high]."""
    if read.value is None or low <= read.value <= high:
        return read
    said = f"has a rating of {read.value:g}, outside {low:g} to {high:g}"
    return Reading(cause=OFF_SCALE, message=said)
