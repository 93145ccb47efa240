"""BERTScore of one pair of texts from the matrix of their token similarities."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


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


def f_beta(precision: float, recall: float, beta: float) -> float:
    """(1 + beta^2) P R / (beta^2 P + R); nan where the denominator is 0, as in LLM-self-eval."""
    denominator = beta * beta * precision + recall
    return (1.0 + beta * beta) * precision * recall / denominator if denominator else math.nan


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
    """
    matrix = np.asarray(similarity, np.float64)
    rows = np.asarray(hypothesis_weights, np.float64)
    columns = np.asarray(reference_weights, np.float64)
    assert matrix.shape == (rows.size, columns.size)
    if not rows.sum() > 0 or not columns.sum() > 0:
        return BertScore(0.0, 0.0, 0.0)
    precision = float(rows @ matrix.max(axis=1) / rows.sum())
    recall = float(columns @ matrix.max(axis=0) / columns.sum())
    f1 = f_beta(precision, recall, 1.0)
    return BertScore(precision, recall, 0.0 if math.isnan(f1) else f1)
