"""What a reply says twice must be the same: drawn tokens, their numbers, lists and text."""

import math
from collections.abc import Collection
from typing import Final

import numpy as np

from orchestrator.records import UNKNOWN_ID, Failure, FloatArray, IntArray
from orchestrator.wire.parsing import ROUNDING

# ln p of what is not listed, or is listed without a number.
_NO_MASS: Final = np.float32(-1e30)
MOST_MASS: Final = 1.02
"""Probabilities of distinct tokens sum to 1 at most; more than half-precision numbers round."""


def of_lists(
    logprobs: FloatArray, ids: IntArray, drawn: FloatArray, drawn_ids: IntArray | None
) -> Failure | None:
    """Return how the alternatives of an answer contradict each other or what was drawn.

    Args:
        logprobs: Of alternatives as they are listed, shape (T, k); nan for none.
        ids: Of the same; below 0 where no id is known.
        drawn: ln p of each drawn token, shape (T,).
        drawn_ids: Its id, where known.
    """
    if (fault := overfull(logprobs)) is not None:
        return fault
    known = np.fmax(logprobs, _NO_MASS)
    ordered = np.sort(ids, axis=1)
    equal = ordered[:, 1:] == ordered[:, :-1]
    # Two tokens may have one text, and then one number below 0.
    if equal.any() and (equal & (ordered[:, 1:] >= 0)).any():
        return _fault("the reply lists a token twice among the alternatives of one place")
    agrees = np.abs(known - drawn[:, None]) <= ROUNDING
    # Likelier than a token that is listed, and itself not listed with its number.
    least = np.where(known > _NO_MASS, known, 0).min(axis=1, initial=0)
    lost = ~agrees.any(axis=1) & (drawn > least + ROUNDING)
    if drawn_ids is not None:
        same = (ids == drawn_ids[:, None]) & (ids != UNKNOWN_ID)
        lost |= same.any(axis=1) & ~(same & agrees).any(axis=1)
    if not lost.any():
        return None
    at = int(np.flatnonzero(lost)[0])
    said = f"token {at + 1} was drawn with ln p {drawn[at]:.4g}, and its list says another"
    return _fault(said)


def overfull(logprobs: FloatArray) -> Failure | None:
    """Return the failure of lists, shape (T, k), one of which sums above 1; nan is for none."""
    masses = np.exp(np.fmax(logprobs, _NO_MASS)).sum(axis=1)
    return _too_much(float(masses.max())) if masses.size else None


def overfull_list(logprobs: Collection[float]) -> Failure | None:
    """Return the failure of one list of ln p that sums above 1."""
    return _too_much(math.fsum(map(math.exp, logprobs)))


def _too_much(mass: float) -> Failure | None:
    if not mass > MOST_MASS:
        return None
    return _fault(f"the probabilities of the alternatives of one token sum to {mass:.3g}")


def misspelled(tokens: list[bytes], text: str) -> Failure:
    """Return the failure of a text that its tokens do not spell; tokens are not shown.

    They may hold parts of the key, which nothing can find in them.
    """
    seen, same = b"".join(tokens).decode("utf-8", "replace"), 0
    while same < min(len(seen), len(text)) and seen[same] == text[same]:
        same += 1
    said = f"the tokens of the reply do not spell its text of {len(text)} characters"
    return _fault(f"{said} from character {same + 1} on")


def _fault(said: str) -> Failure:
    return Failure("unparseable", said, permanent=True)
