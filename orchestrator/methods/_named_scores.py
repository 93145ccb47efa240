"""Several verdicts in one reply, a line each: the name of a criterion, a colon and the label."""

import re
from collections.abc import Sequence
from functools import lru_cache

from orchestrator.methods._verdicts import Slot, after_thinking, cut
from orchestrator.plugin import Generation, Label


def slots_by_name(
    trace: Generation, names: Sequence[str], labels: Sequence[tuple[Label, ...]]
) -> list[Slot | None]:
    """Return the slots of the last verdict on each criterion; None if there are none.

    Names count at the beginning of a line, also numbered, quoted or emphasised, in any case. A
    label at the end of a reply that was cut off is none: more of it might have come.

    Args:
        trace: The reply.
        names: Of the criteria.
        labels: Of each criterion.
    """
    begin = after_thinking(trace.text)
    if begin is None:
        return [None] * len(names)
    return [_slot(trace, begin, name, of_name) for name, of_name in zip(names, labels, strict=True)]


def _slot(trace: Generation, begin: int, name: str, labels: tuple[Label, ...]) -> Slot | None:
    owner = {form.strip(): at for at, label in enumerate(labels) for form in label.spellings}
    found = list(_line(name, tuple(owner)).finditer(trace.text, begin))
    if not found:
        return None
    last = found[-1]
    if trace.finish_reason == "length" and last.end(1) == len(trace.text):
        return None
    return Slot(*cut(trace, last.start(1)), owner[last.group(1)])


@lru_cache(maxsize=256)
def _line(name: str, forms: tuple[str, ...]) -> re.Pattern[str]:
    either = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(
        rf"^[^\w\n]{{0,8}}(?:\d{{1,3}}[.)][ ])?[^\w\n]{{0,8}}(?i:{re.escape(name)})"
        rf"[ *_\"'`]{{0,4}}[:=][ *_\"'`]{{0,4}}({either})(?!\w|[.,/]\d)",
        re.MULTILINE,
    )
