"""Load figures in Prometheus text."""

import re
from typing import Final, NamedTuple

_SERIES: Final = re.compile(
    rb"^(?:orchestrator|vllm):num_requests_(running|waiting)(?:\{([^}\n]*)\})?[ \t]+"
    rb"([0-9.eE+-]+)",
    re.MULTILINE,
)
_MODEL: Final = re.compile(rb'(?:^|,)\s*model_name="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


class QueueLengths(NamedTuple):
    """Requests that a model runs and that wait for it; None where not published."""

    running: int | None
    waiting: int | None


def queue_lengths(text: bytes, model: str) -> QueueLengths | None:
    """Figures of `model`, or of the whole server where it does not tell models apart.

    Several engines of one model are added up. None where there is no such figure.
    """
    mine: dict[bytes, int] = {}
    unnamed: dict[bytes, int] = {}
    for name, found, number in _SERIES.findall(text):
        value = _count(number)
        if value is None:
            continue
        labelled = _MODEL.search(found)
        if labelled is None:
            unnamed[name] = unnamed.get(name, 0) + value
        elif _ESCAPED.sub(rb"\1", labelled[1]) == model.encode():
            mine[name] = mine.get(name, 0) + value
    figures = mine or unnamed
    if not figures:
        return None
    return QueueLengths(figures.get(b"running"), figures.get(b"waiting"))


def _count(number: bytes) -> int | None:
    try:
        return max(0, int(float(number)))
    except (ValueError, OverflowError):
        return None
