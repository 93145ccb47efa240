"""BERTScore from a matrix of token similarities: greedy matching, weights, F-beta.

Source: Zhang et al. 2020, "BERTScore" (arXiv 1904.09675), and `bert_score` (commit 19e7f551).
The embeddings are made elsewhere; here is only what is computed from their products.
"""

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

Token = TypeVar("Token", bound=Hashable)


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
