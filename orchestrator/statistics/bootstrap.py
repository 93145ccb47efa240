"""Resampling of prompts, each with all its judgments, on sums per prompt and pair."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StatisticsError
from orchestrator.statistics.bradley_terry import fit_bradley_terry
from orchestrator.statistics.prompt_sums import PromptSums

Floats = NDArray[np.float64]

_CHUNK_BYTES: Final = 16 * 2**20


def prompt_weights(
    n_prompts: int, n_resamples: int, rng: np.random.Generator, *, row_bytes: int = 0
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
    if n_prompts < 1:
        raise StatisticsError("resampling needs at least one prompt")
    rows = max(1, _CHUNK_BYTES // (16 * n_prompts + row_bytes))
    for done in range(0, n_resamples, rows):
        size = min(rows, n_resamples - done)
        drawn = rng.integers(n_prompts, size=(size, n_prompts))
        drawn += np.arange(size)[:, None] * n_prompts
        counts = np.bincount(drawn.reshape(-1), minlength=size * n_prompts)
        yield counts.reshape(size, n_prompts).astype(np.float64)


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
    row_bytes = 8 * (8 * sums.n_models**2 + 2 * sums.wins.shape[1])
    parts = [
        fit_bradley_terry(
            sums.matrices(weights @ sums.wins, weights @ sums.counts), start=strengths
        ).strengths
        for weights in prompt_weights(sums.n_prompts, n_resamples, rng, row_bytes=row_bytes)
    ]
    return np.concatenate(parts) if parts else np.empty((0, sums.n_models))
