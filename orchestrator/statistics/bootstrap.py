"""Resampling of prompts, each with all its judgments, on sums per prompt and pair."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.statistics.bradley_terry import fit_bradley_terry
from orchestrator.statistics.prompt_sums import PromptSums

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK_BYTES: Final = 4 * 2**20
_TOGETHER: Final = 16
"""Resamples that are summed and fitted together where they take no more than `_MOST_BYTES`."""
_MOST_BYTES: Final = 64 * 2**20
_DENSE_SHARE: Final = 0.25
"""Share of filled cells from which a dense product of matrices is the faster one."""
_SPARSE_ROWS: Final = 64
_SPARSE_PROMPTS: Final = 2048


def prompt_weights(
    n_prompts: int,
    n_resamples: int,
    rng: np.random.Generator,
    *,
    row_bytes: int = 0,
    chunk_bytes: int = _CHUNK_BYTES,
) -> Iterator[Floats]:
    """Chunks of multinomial weights, shape (b, n_prompts), that add up to `n_resamples` rows.

    Args:
        n_prompts: Prompts to draw from, with replacement, as many as there are.
        n_resamples: Rows in all.
        rng: Source of the draws; the rows do not depend on the chunking.
        row_bytes: What else the caller holds for each row; bounds the chunk.
        chunk_bytes: What a chunk takes, with what the caller holds for it.

    Raises:
        StatisticsError: If there is no prompt.
    """
    rows = max(1, chunk_bytes // (16 * max(n_prompts, 1) + row_bytes))
    for drawn in _drawn(n_prompts, n_resamples, rows, rng):
        yield drawn.astype(np.float64)


def resampled_strengths(
    sums: PromptSums, strengths: Floats, n_resamples: int, rng: np.random.Generator
) -> Floats:
    """Bradley-Terry strengths of resamples of the prompts, shape (n_resamples, M).

    Args:
        sums: Judgments per prompt and pair.
        strengths: Shape (M,), the fit of all prompts: where the iteration starts, and the gauge.
        n_resamples: At least 1,000 for a tail of 2.5 %.
        rng: Source of the draws.

    +inf and -inf are models that in this resample won or lost all; nan are models that it cannot
    place.
    """
    n_cells = sums.n_prompts * sums.n_pairs
    summed = _dense_sums if len(sums.pair) >= _DENSE_SHARE * n_cells else _sparse_sums
    parts = [
        fit_bradley_terry(sums.matrices(wins, counts), start=strengths).strengths
        for wins, counts in summed(sums, n_resamples, rng)
    ]
    return np.concatenate(parts) if parts else np.empty((0, sums.n_models))


def _drawn(
    n_prompts: int, n_resamples: int, rows: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int32]]:
    """Yield counts of the draws of each prompt, `rows` resamples at a time: (b, n_prompts)."""
    if n_prompts < 1:
        raise StatisticsError("resampling needs at least one prompt")
    for done in range(0, n_resamples, rows):
        counts = np.empty((min(rows, n_resamples - done), n_prompts), dtype=np.int32)
        for row in counts:
            row[:] = np.bincount(rng.integers(n_prompts, size=n_prompts), minlength=n_prompts)
        yield counts


def _dense_sums(
    sums: PromptSums, n_resamples: int, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats]]:
    """Wins and counts of chunks of resamples by pair: two of shape (b, P)."""
    wins, counts = sums.dense()
    row_bytes = 8 * (8 * sums.n_models**2 + 2 * sums.n_pairs)
    # The table of all prompts is read once a chunk.
    together = min(_TOGETHER * (16 * sums.n_prompts + row_bytes), _MOST_BYTES)
    for weights in prompt_weights(
        sums.n_prompts,
        n_resamples,
        rng,
        row_bytes=row_bytes,
        chunk_bytes=max(_CHUNK_BYTES, together),
    ):
        yield weights @ wins, weights @ counts


def _sparse_sums(
    sums: PromptSums, n_resamples: int, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats]]:
    """The same where most prompts have few of the pairs.

    Blocks of prompts keep what is added up in the processor's cache; within a block the resamples
    are neighbours in memory, so that each cell is one multiplication of a vector.
    """
    n_pairs = sums.n_pairs
    ends = np.searchsorted(sums.prompt, np.arange(sums.n_prompts + 1))
    columns = np.stack([sums.pair, sums.pair + n_pairs], axis=1).reshape(-1)
    values = np.stack([sums.wins, sums.counts], axis=1).reshape(-1)
    table = scipy.sparse.csr_array((values, columns, 2 * ends), shape=(sums.n_prompts, 2 * n_pairs))
    begins = range(0, sums.n_prompts, _SPARSE_PROMPTS)
    blocks = [table[begin : begin + _SPARSE_PROMPTS].T for begin in begins]
    for drawn in _drawn(sums.n_prompts, n_resamples, _SPARSE_ROWS, rng):
        added = np.zeros((2 * n_pairs, len(drawn)))
        for begin, block in zip(begins, blocks, strict=True):
            weights = drawn[:, begin : begin + _SPARSE_PROMPTS].T
            added += block @ weights.astype(np.float64, order="C")
        yield added[:n_pairs].T, added[n_pairs:].T
