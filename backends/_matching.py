"""Greedy matching of tokens: BERTScore's precision and recall, for all texts of an item at once.

Source: Zhang, Kishore, Wu, Weinberger and Artzi, "BERTScore" (arXiv 1904.09675), eqs. 3-5.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def best_matches(similarities: NDArray[np.float32], starts: Ints) -> NDArray[np.float32]:
    """The largest similarity of each token to a token of each text.

    Args:
        similarities: Shape (rows, T), of some tokens to the T tokens of all texts in a row.
        starts: Shape (N,), where each text begins; none is empty.

    Returns:
        Shape (rows, N).
    """
    result: NDArray[np.float32] = np.maximum.reduceat(similarities, starts, axis=1)
    return result


def precision_of(best: NDArray[np.float32], weights: Floats, starts: Ints) -> Floats:
    """BERTScore precision of every ordered pair of N texts.

    Args:
        best: Shape (T, N), the best match of each token in each text.
        weights: Shape (T,), of the tokens: 1, or idf; 0 for those that mark begin and end.
        starts: Shape (N,), where each text begins.

    Returns:
        Shape (N, N): in row h, column r the weighted mean over the tokens of text h of their best
        match in text r. Recall is its transpose. nan where a text's weights are all 0.
    """
    sums = np.add.reduceat(best * weights[:, None], starts, axis=0)
    total = np.add.reduceat(weights, starts)[:, None]
    result: Floats = np.full(sums.shape, math.nan)
    np.divide(sums, total, out=result, where=total > 0)
    return result
