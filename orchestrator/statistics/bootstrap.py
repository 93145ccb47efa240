"""Resampling of prompts, each with all its judgments, on sums per prompt and pair."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK_BYTES: Final = 4 * 2**20


def prompt_weights(
    n_prompts: int,
    n_resamples: int,
    rng: np.random.Generator,
    *,
    row_bytes: int = 0,
) -> Iterator[Floats]:
    """Chunks of multinomial weights, shape (b, n_prompts), that add up to `n_resamples` rows.

    Args:
        n_prompts: Prompts to draw from, with replacement, as many as there are.
        n_resamples: Rows in all.
        rng: Source of the draws; the rows do not depend on the chunking.
        row_bytes: What else the caller holds for each row; bounds the chunk.

    Raises:
        StatisticsError: If there is no prompt.
    """
    rows = max(1, _CHUNK_BYTES // (16 * max(n_prompts, 1) + row_bytes))
    for drawn in _drawn(n_prompts, n_resamples, rows, rng):
        yield drawn.astype(np.float64)


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
