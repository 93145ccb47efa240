"""What a reader must know of the compared answers: cut, perhaps not whole, empty, thinking.

Such answers are judged as they are; only the reader can say if a comparison of them is meant.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from orchestrator.contracts.context import answer_slices
from orchestrator.probing.checks import CLOSING, OPENING, REMEDY
from orchestrator.records import GIVEN

_ROWS_AT_ONCE: Final = 4096
_WANTED: Final = ("model", "text", "finish_reason")
_START: Final = 32
_TEXT: Final = pl.col("text").str
# The same as `mark_in`, of a column.
_THINKS: Final = _TEXT.contains_any([*CLOSING]) | pl.any_horizontal(
    _TEXT.head(_START).str.strip_chars_start().str.starts_with(mark) for mark in OPENING
)
_IS_EMPTY: Final = _TEXT.strip_chars() == ""
_CUT: Final = "length"
_WHOLE: Final = ("stop", GIVEN)
_SHOWN: Final = 3


def answer_notes(frames: Mapping[str, pl.DataFrame]) -> list[str]:
    """Return a line for each kind: cut, of unknown ends, of no text, and with thinking.

    Args:
        frames: Of the run; answers that failed are no answers.
    """
    answered: Counter[str] = Counter()
    thinking: Counter[str] = Counter()
    empty: Counter[str] = Counter()
    ended: dict[str, Counter[str]] = {}
    for rows in answer_slices(frames, _WANTED, _ROWS_AT_ONCE):
        counted = (
            rows.filter(pl.col("text").is_not_null())
            .group_by("model", "finish_reason", maintain_order=True)
            .agg(pl.len(), _THINKS.sum().alias("thinking"), _IS_EMPTY.sum().alias("empty"))
        )
        for model, reason, n, n_thinking, n_empty in counted.iter_rows():
            answered[model] += n
            thinking[model] += n_thinking
            empty[model] += n_empty
            if reason is not None and reason not in _WHOLE:
                ended.setdefault(reason, Counter())[model] += n
    return list(_said(answered, thinking, empty, ended))


def _said(
    answered: Counter[str],
    thinking: Counter[str],
    empty: Counter[str],
    ended: Mapping[str, Counter[str]],
) -> Iterator[str]:
    if cut := _shares(ended.get(_CUT, Counter()), answered):
        yield f"answers cut by max_tokens, and judged as far as they go: {cut}"
    others = [reason for reason in ended if reason != _CUT]
    for reason in others[:_SHOWN]:
        shares = _shares(ended[reason], answered)
        yield f"answers that ended by {reason!r}, which may not be whole: {shares}"
    if shown := _shares(empty, answered):
        yield f"answers without a text, and judged as such: {shown}"
    if shown := _shares(thinking, answered):
        yield f"answers that hold the model's thinking, which judges read: {shown}; {REMEDY}"


def _shares(found: Counter[str], answered: Counter[str]) -> str:
    return ", ".join(f"{model} {n:,} of {answered[model]:,}" for model, n in found.items() if n)
