"""Entropy of next-token distributions: exact from the whole vocabulary, bounded from its top k.

Natural logarithms throughout. A server that lists the k most likely tokens leaves open how the rest
of the mass lies, so it gives an interval, never a value: neither the sum over the listed tokens nor
the entropy of the renormalised list bounds the true entropy.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orchestrator.errors import StatisticsError

FloatArray = NDArray[np.float64]
_EXCESS: Final = 1e-2
"""Mass above one that rounding on a server explains; more than that is no probability."""


class EntropyBounds(NamedTuple):
    """Between what the entropy at each of T positions must lie, in nats.

    Attributes:
        lower: Shape (T,); nan where the listed numbers are no distribution.
        upper: Likewise; None where the size of the vocabulary is not known.
    """

    lower: FloatArray
    upper: FloatArray | None


def entropy(logprobs: ArrayLike) -> FloatArray:
    """-sum_v p_v ln p_v over the last axis; a probability of 0 adds nothing.

    Args:
        logprobs: Shape (..., V): ln p over the whole vocabulary.
    """
    found: FloatArray = _terms(np.asarray(logprobs, dtype=np.float64)).sum(axis=-1)
    return found


def entropy_bounds(top_logprobs: ArrayLike, vocabulary: int | None) -> EntropyBounds:
    """Bounds of the entropy where only the k most likely of V tokens are listed.

    With r the mass that is not listed, H >= H_k - r ln r (all of it on one token) and
    H <= H_k - r ln(r / (V - k)) (spread evenly), H_k being the sum of -p ln p over the listed ones.

    Args:
        top_logprobs: Shape (T, k): ln p of the listed tokens over the whole vocabulary, raw.
        vocabulary: V; None where it is not known, then nothing bounds the entropy from above.

    Raises:
        StatisticsError: If there are not two axes, or more tokens listed than there are.
    """
    listed = np.asarray(top_logprobs, dtype=np.float64)
    if listed.ndim != 2:
        raise StatisticsError(f"log-probabilities of shape (T, k) expected, got {listed.shape}")
    k = listed.shape[1]
    if vocabulary is not None and k > vocabulary:
        raise StatisticsError(f"{k} tokens are listed of a vocabulary of {vocabulary}")
    rest = 1 - np.exp(listed).sum(axis=-1)
    rest = np.where(rest < -_EXCESS, np.nan, np.clip(rest, 0, 1))
    if k == vocabulary:
        # Nothing is left out, so what is missing to one is rounding.
        rest = np.where(np.isnan(rest), rest, 0.0)
    known = _terms(listed).sum(axis=-1)
    lower = known - rest * np.log(np.where(rest == 0, 1.0, rest))
    if vocabulary is None:
        return EntropyBounds(lower, None)
    spread = np.log(max(vocabulary - k, 1))
    return EntropyBounds(lower, lower + rest * spread)


def _terms(logprobs: FloatArray) -> FloatArray:
    return -np.exp(logprobs) * np.where(np.isneginf(logprobs), 0.0, logprobs)
