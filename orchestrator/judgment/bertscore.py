"""BERTScore from a matrix of token similarities: greedy matching, weights, F-beta.

Source: Zhang et al. 2020, "BERTScore" (arXiv 1904.09675), and `bert_score` (commit 19e7f551).
The embeddings are made elsewhere; here is only what is computed from their products.
"""

import math
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.errors import StatisticsError

Token = TypeVar("Token", bound=Hashable)


class BertScore(NamedTuple):
    """Similarity of a hypothesis and a reference; all 0 if either has no weight.

    Attributes:
        precision: How much of the hypothesis is found in the reference.
        recall: How much of the reference is found in the hypothesis.
        f1: Their harmonic mean; 0 where both are 0.
    """

    precision: float
    recall: float
    f1: float


def bertscore_from_similarity(
    similarity: ArrayLike, hypothesis_weights: ArrayLike, reference_weights: ArrayLike
) -> BertScore:
    """Greedy matching: each token is matched with the most similar one of the other text.

    Args:
        similarity: Shape (H, R): cosine similarities of the hypothesis' H and the reference's R
            tokens, special tokens included.
        hypothesis_weights: Shape (H,): 1 (or idf) a token, 0 for special tokens. Those count in no
            mean but may be the best match of another token, as in `bert_score`.
        reference_weights: Shape (R,), likewise.

    Raises:
        StatisticsError: If the shapes do not fit.
    """
    matrix = np.asarray(similarity, np.float64)
    rows = np.asarray(hypothesis_weights, np.float64)
    columns = np.asarray(reference_weights, np.float64)
    if matrix.ndim != 2 or (rows.size, columns.size) != matrix.shape:
        raise StatisticsError(
            f"similarities need a weight for each row and column, got {matrix.shape}, {rows.size} "
            f"and {columns.size}"
        )
    if not rows.sum() > 0 or not columns.sum() > 0:
        return BertScore(0.0, 0.0, 0.0)
    precision = float(rows @ matrix.max(axis=1) / rows.sum())
    recall = float(columns @ matrix.max(axis=0) / columns.sum())
    f1 = f_beta(precision, recall, 1.0)
    return BertScore(precision, recall, 0.0 if math.isnan(f1) else f1)


def f_beta(precision: float, recall: float, beta: float) -> float:
    """(1 + beta^2) P R / (beta^2 P + R); nan where the denominator is 0, as in LLM-self-eval.

    `beta` 0 is the precision itself, but still nan where the recall is 0.
    """
    denominator = beta * beta * precision + recall
    return (1.0 + beta * beta) * precision * recall / denominator if denominator else math.nan


def idf_weights(document_frequency: Mapping[Token, int], n_references: int) -> dict[Token, float]:
    """ln((N + 1) / (df + 1)) of each token over N references."""
    return {
        token: math.log((n_references + 1) / (df + 1)) for token, df in document_frequency.items()
    }


def unseen_idf(n_references: int) -> float:
    """The weight of a token that is in no reference: ln(N + 1)."""
    return math.log(n_references + 1)
