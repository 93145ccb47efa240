"""Similarity of texts: shared words, BERTScore, and which of two others an answer is more like."""

import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats

# Scripts that are written without blanks: each character is a word.
_CJK: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")


def words(text: str) -> list[str]:
    """Words without case and punctuation; single characters of Chinese and Japanese."""
    return _WORD.findall(text.lower())


def token_f1(first: str, second: str) -> float | None:
    """Harmonic mean of the shares of each text's words that are in the other, in [0, 1].

    Words count as often as they occur. 0 where one text has no words; None where neither has any
    and the texts differ: there is nothing to compare.

    Source: Rajpurkar et al. 2016 (SQuAD, arXiv 1606.05250), without its removal of articles.
    """
    one, two = Counter(words(first)), Counter(words(second))
    total = one.total() + two.total()
    if total == 0:
        return 1.0 if first == second else None
    return 2.0 * (one & two).total() / total


# BERTScore from a matrix of token similarities: greedy matching, weights, F-beta.
#
# Source: Zhang et al. 2020, "BERTScore" (arXiv 1904.09675), and `bert_score` (commit 19e7f551). The
# embeddings are made elsewhere; here is only what is computed from their products.


Token = TypeVar("Token", bound=Hashable)


def idf_weights(document_frequency: Mapping[Token, int], n_references: int) -> dict[Token, float]:
    """ln((N + 1) / (df + 1)) of each token over N references."""
    return {
        token: math.log((n_references + 1) / (df + 1)) for token, df in document_frequency.items()
    }


# Votes of peers: each model's answer says which of two others it is more like.
#
# Source: LLM-self-eval. For answers o_i, o_j and a third, o_k: i wins if s(o_i, o_k) > s(o_j, o_k),
# where s is the F-beta of BERTScore with o_k as the hypothesis; beta 0 is its precision.


def f_beta_scores(precision: ArrayLike, recall: ArrayLike, beta: float) -> Floats:
    """(1 + beta^2) P R / (beta^2 P + R), elementwise; P itself for beta 0.

    0 where both are 0 (a text without tokens), nan where either is nan. LLM-self-eval's code has
    0/0 there, and the vote vanishes.
    """
    p, r = np.asarray(precision, np.float64), np.asarray(recall, np.float64)
    if beta == 0.0:
        return p.copy()
    weight = beta * beta
    below = weight * p + r
    result = np.zeros(p.shape)
    np.divide((1.0 + weight) * p * r, below, out=result, where=below != 0.0)
    return np.where(np.isnan(p) | np.isnan(r), np.nan, result)


def peer_votes(
    scores: Floats, can_judge: Sequence[bool], ties_within: float
) -> list[tuple[int, int, tuple[int, ...], tuple[float, ...]]]:
    """All votes on all pairs of N answers.

    Of each pair: the indices of one answer, of the other, above it, and of its judges, all others
    ascending; and one vote a judge: 1 for the first, 0 for the second, 0.5 a tie, nan undefined.

    Args:
        scores: Shape (N, N): in row k, column i how much answer i is like answer k.
        can_judge: N flags; the votes of others are undefined (an empty answer is like none).
        ties_within: Scores that differ by no more are a tie: what float32 can't tell apart is no
            preference.

    Raises:
        StatisticsError: If the shapes do not fit.
    """
    n = len(can_judge)
    if scores.shape != (n, n):
        raise StatisticsError(f"scores of {n} answers need shape ({n}, {n}), got {scores.shape}")
    able = np.where(np.asarray(can_judge, np.bool_), 0.0, np.nan)
    found = []
    for first, second in combinations(range(n), 2):
        ahead = scores[:, first] - scores[:, second] + able
        votes = np.where(np.abs(ahead) <= ties_within, 0.5, 0.5 + 0.5 * np.sign(ahead))
        judges = tuple(k for k in range(n) if k not in {first, second})
        found.append((first, second, judges, tuple(float(votes[k]) for k in judges)))
    return found
