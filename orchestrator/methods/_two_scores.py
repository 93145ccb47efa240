"""Two scores in one reply: how the second follows the first, and where they end a trace."""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

import msgspec

from orchestrator.methods._verdicts import TAIL, Slot, after_thinking, cut
from orchestrator.plugin import Choice, Generation, Label, labels

BETWEEN: Final = " "
"""Between the two scores of a reply."""

# Characters at the end of a trace in which two scores are looked for; longer labels take more.
_NEAR: Final = 64


def as_second(label: Label) -> Label:
    """Return a score as it is written behind the first one."""
    forms = dict.fromkeys(f"{BETWEEN}{form.lstrip()}" for form in label.spellings)
    return Label(f"{BETWEEN}{label.name.lstrip()}", tuple(forms))


def apart(scores: Sequence[Label]) -> tuple[Label, ...]:
    """Return the spellings of all scores as labels of their own, in their order."""
    return labels(*(form for score in scores for form in score.spellings))


def _spans(scores: Sequence[Label]) -> list[slice]:
    """Return the places of each score's spellings among those of all."""
    ends = list(accumulate(len(score.spellings) for score in scores))
    return [slice(end - len(score.spellings), end) for score, end in zip(scores, ends, strict=True)]


def together(choice: Choice, scores: Sequence[Label]) -> Choice:
    """Return the probability of each score, given that of each of its spellings.

    As servers sum spellings: those whose probability is unknown count for the upper bound alone.
    """
    spans = _spans(scores)
    known = [[x for x in choice.logprobs[span] if x == x] for span in spans]
    return msgspec.structs.replace(
        choice,
        logprobs=tuple(_ln_sum(values) if values else math.nan for values in known),
        upper=tuple(_ln_sum(choice.upper[span]) for span in spans),
    )


def _ln_sum(values: Sequence[float]) -> float:
    """Return ln of a sum of probabilities, given ln of each; nan if one is."""
    peak = max(values)
    if peak == -math.inf or any(value != value for value in values):
        return sum(values)
    # Shifted by the largest, so that scores far below the top of the vocabulary do not underflow.
    return peak + math.log(sum(math.exp(value - peak) for value in values))


def written(at: int, choice: Choice, scores: Sequence[Label]) -> str:
    """Return a first score as the judge would write it.

    Without a begun reply it is the bare score, the first spelling of a label of one's own. Behind
    one that does not end in white space the likelier spelling counts, with or without a space.

    Args:
        at: Which of the scores.
        choice: What was read: a value for each score, or for each spelling of all.
        scores: All scores.
    """
    score = scores[at]
    if len(choice.logprobs) == len(scores):
        return score.spellings[0]
    known = [-math.inf if x != x else x for x in choice.logprobs[_spans(scores)[at]]]
    return score.spellings[known.index(max(known))]


def slot_of_two(trace: Generation, scores: Sequence[Label]) -> Slot | None:
    """The slot of the first of two scores that end a trace; None where there are none."""
    begin = after_thinking(trace.text)
    if begin is None or trace.finish_reason == "length":
        return None
    owner = {form.strip(): at for at, label in enumerate(scores) for form in label.spellings}
    # A label may itself end in what else may follow it, such as a bracket.
    tail = TAIL.translate({ord(form[-1]): None for form in owner})
    stop = begin + len(trace.text[begin:].rstrip(tail))
    longest = max(_NEAR, 2 * max(map(len, owner)) + 2)
    found = _two_scores(tuple(owner)).search(trace.text, max(begin, stop - longest), stop)
    if found is None:
        return None
    return Slot(*cut(trace, found.start(1)), owner[found.group(1)])


@lru_cache(maxsize=64)
def _two_scores(scores: tuple[str, ...]) -> re.Pattern[str]:
    either = "|".join(map(re.escape, sorted(scores, key=len, reverse=True)))
    return re.compile(rf"(?<![\w.,/-])({either})[ ,]{{1,2}}(?:{either})\Z")
