"""Places of a judge's verdicts in its text, one or several, and the labels as they stand there.

A verdict is the last label of a text, after any thinking block. Labels of letters or digits only
("7", "A") are words that occur in any explanation, so they count where they end a finished text and
refer to nothing ("step 2", "as shown in [1]"), or follow a word such as "Rating:"; bracketed ones
("[[>]]") count wherever they stand. A text that holds different labels has a verdict only where the
last of them ends it, and a label that is denied ("not [[A]]") is none.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from orchestrator.judgment.distribution import LabelDistribution, from_logprobs
from orchestrator.judgment.verdicts import denied
from orchestrator.plugin import Ask, Choice, ChooseAsk, Generation, Label, Prefix
from orchestrator.records import NO_PREFIX

THINKING_ENDS: Final = "</think>"
_THINKING_BEGINS: Final = "<think>"
# What may follow a verdict at the end of a text: full stops, brackets and quotes, emphasis.
TAIL: Final = " \t\r\n.*_`\"')]}"
_NEAR: Final = 64
# What comes right before a number or letter that refers to something: "step 2", "as shown in [1]".
_REFERS = re.compile(
    r"(?:\b(?:steps?|sections?|figures?|fig|tables?|examples?|lines?|pages?|chapters?|items?|points?|"
    r"paragraphs?|parts?|questions?|reasons?|equations?|eq|turns?|sources?|references?|refs?|"
    r"footnotes?|see)\b\.?|\bno\.|[#\u00a7])[ ]?[\[(]?\Z"
    r"|(?<!rating)(?<!score)(?<!verdict)(?<=\w)[ ]?[\[(]\Z",
    re.IGNORECASE,
)


Slot = tuple[Prefix, str]
"""The place of a verdict in a trace: what the judge wrote before the token in which it begins, and
the characters of that token before it, which labels must begin with here."""


def slot_of(trace: Generation, labels: tuple[Label, ...]) -> Slot | None:
    """The slot of the last verdict; None where there is none.

    Found by the tokens' places in the text, so that the judge goes on from its own tokens; where
    these are not known, from its text, cut before any white space.
    """
    begin = after_thinking(trace.text)
    if begin is None:
        return None
    found = last_verdict(trace.text, labels, begin, ended=trace.finish_reason != "length")
    return None if found is None else cut(trace, found[1])


def after_thinking(text: str) -> int | None:
    """Return the index at which the answer begins; None if its thinking block does not end."""
    at = text.rfind(THINKING_ENDS)
    if at >= 0:
        return at + len(THINKING_ENDS)
    return None if _THINKING_BEGINS in text else 0


def last_verdict(
    text: str, labels: tuple[Label, ...], begin: int = 0, *, ended: bool = True
) -> tuple[int, int] | None:
    """Return the index of the last label in a text from `begin` on, and the place of the label.

    `ended` says that the text was not cut off.
    """
    owner = {form.strip(): at for at, label in enumerate(labels) for form in label.spellings}
    names, stop = tuple(owner), len(text[begin:].rstrip(TAIL)) + begin
    found = None
    if not all(name.isalnum() for name in names):
        # The brackets of a label may be among what is stripped from the end.
        found = _settled(text, list(_with("(EITHER)", names).finditer(text, begin)), stop, ended)
    elif ended:
        found = _with(_LAST, names).search(text, max(begin, stop - 64), stop)
        at = -1 if found is None else found.start()
        if at < 0 or _REFERS.search(text, max(begin, at - _NEAR), at) or denied(text, at):
            announced = _with(_ANNOUNCED, names).finditer(text, begin)
            found = _settled(text, list(announced), stop, ended)
    return None if found is None else (owner[found.group(1)], found.start(1))


def _settled(
    text: str,
    found: Sequence[re.Match[str]],
    stop: int,
    ended: bool,  # noqa: FBT001 (passed on)
) -> re.Match[str] | None:
    """The last match; None where others differ and it does not end the text, or it is denied."""
    if not found:
        return None
    last = found[-1]
    several = len({match.group(1) for match in found}) > 1
    if (several and not (ended and last.end(1) >= stop)) or denied(text, last.start()):
        return None
    return last


def cut(trace: Generation, begin: int) -> Slot:
    """Return the text before the token that holds an index, and the rest up to that index."""
    offsets, ids = trace.offsets, trace.token_ids
    if offsets is not None and ids is not None and len(offsets) == len(ids) > 0:
        at = max(int(np.searchsorted(offsets, begin, side="right")) - 1, 0)
        start = int(offsets[at])
        return (_prefix(trace.text[:start], tuple(ids[:at].tolist())), trace.text[start:begin])
    text = trace.text[:begin].rstrip()
    return _prefix(text, ()), trace.text[len(text) : begin]


def spelled(labels: Sequence[Label], lead: str) -> tuple[Label, ...]:
    """The labels as they go on from a token that began with `lead`.

    White space before a label is part of its spelling, so all spellings with and without it count.
    """
    if not lead:
        return tuple(labels)
    found = []
    for label in labels:
        forms = [lead + spelling.lstrip() for spelling in label.spellings]
        if lead.isspace():
            forms += label.spellings
        found.append(Label(label.name, tuple(dict.fromkeys(forms))))
    return tuple(found)


def _prefix(text: str, ids: tuple[int, ...]) -> Prefix:
    return Prefix(text, ids) if text or ids else NO_PREFIX


@lru_cache(maxsize=256)
def _with(pattern: str, names: tuple[str, ...], line: str = "") -> re.Pattern[str]:
    """Return a pattern in which EITHER stands for the names, and LINE for a text."""
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    of = {"EITHER": either, "LINE": re.escape(line)}
    return re.compile(re.sub("EITHER|LINE", lambda found: of[found[0]], pattern), re.MULTILINE)


# A label as the last word, also as "7/9" or "7 out of 9".
_LAST: Final = r"(?<![\w.,/-])(?<!out of )(EITHER)(?:[ ]?/[ ]?\d{1,6}|[ ]out[ ]of[ ]\d{1,6})?\Z"
_ANNOUNCED: Final = r"(?i:rating|score|verdict)(?i:[ ]is)?[\s:*_=]{1,4}(EITHER)(?!\w|[.,/]\d)"
_TWO: Final = r"(?<![\w.,/-])(EITHER)[ ,]{1,2}(?:EITHER)\Z"
_LINE: Final = (
    r"^[^\w\n]{0,8}(?:\d{1,3}[.)][ ])?[^\w\n]{0,8}(?i:LINE)"
    r"[ *_\"'`]{0,4}[:=][ *_\"'`]{0,4}(EITHER)(?!\w|[.,/]\d)"
)


BETWEEN: Final = " "
"""Between the two scores of a reply."""


def slot_of_two(trace: Generation, scores: tuple[Label, ...]) -> Slot | None:
    """The slot of the first of two scores that end a trace; None where there are none."""
    begin = after_thinking(trace.text)
    if begin is None or trace.finish_reason == "length":
        return None
    owner = tuple({form.strip(): None for label in scores for form in label.spellings})
    # A label may itself end in what else may follow it, such as a bracket.
    tail = TAIL.translate({ord(form[-1]): None for form in owner})
    stop = begin + len(trace.text[begin:].rstrip(tail))
    longest = max(_NEAR, 2 * max(map(len, owner)) + 2)
    found = _with(_TWO, owner).search(trace.text, max(begin, stop - longest), stop)
    return None if found is None else cut(trace, found.start(1))


def slots_by_name(
    trace: Generation, names: Sequence[str], labels: Sequence[tuple[Label, ...]]
) -> list[Slot | None]:
    """Return the slots of the last verdict on each criterion; None if there are none.

    Names count at the beginning of a line, also numbered, quoted or emphasised, in any case. A
    label at the end of a reply that was cut off is none: more of it might have come.
    """
    begin = after_thinking(trace.text)
    if begin is None:
        return [None] * len(names)
    slots: list[Slot | None] = []
    for name, of_name in zip(names, labels, strict=True):
        forms = tuple({form.strip(): None for label in of_name for form in label.spellings})
        found = list(_with(_LINE, forms, name).finditer(trace.text, begin))
        is_cut = trace.finish_reason == "length" and found and found[-1].end(1) == len(trace.text)
        slots.append(None if is_cut or not found else cut(trace, found[-1].start(1)))
    return slots


async def distributions(ask: Ask, asks: Iterable[ChooseAsk]) -> list[LabelDistribution]:
    """Read the distribution over the labels of each ask.

    Raises:
        AskFailed: If one of them fails.
    """
    found: list[Choice] = await ask.all(*asks)
    return [from_logprobs(one.logprobs, one.upper) for one in found]
