"""Drawing tokens for many rows at once, and reading log-probabilities off the same logits.

A row's draw depends on its own logits, settings, seed and step only. The random number comes from
a counter (no generator is kept), so it is the same whoever shares the batch. Log-probabilities are
those of the unmodified softmax: temperature, top-k and top-p never enter them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_CACHED_NUMBERS = 1 << 19
_MASK_64 = (1 << 64) - 1
Alternatives = tuple[list[int], list[float]]


@dataclass(frozen=True, slots=True)
class Draw:
    """Settings for drawing one row.

    Attributes:
        temperature: 0 is greedy; ties go to the lowest id.
        top_k: 0 is off.
        top_p: 1 is off.
        key: 64 bits that decide the row's random numbers.
        n_top: How many alternatives to read; 0 for none.
        ids: Ids to read instead of the most likely ones; None for those.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    key: int = 0
    n_top: int = 0
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """Outcome for a batch of rows.

    Attributes:
        ids: Drawn tokens.
        logprobs: Their raw natural-log probabilities; nan where the logits hold nan.
        alternatives: By row: ids and raw log-probabilities, most likely first; only of rows that
            asked for them.
    """

    ids: list[int]
    logprobs: list[float]
    alternatives: dict[int, Alternatives]


def row_key(seed: int, choice: int) -> int:
    """The key of the n-th choice of a request; the first one's is the seed itself."""
    return (seed + choice * int(_GOLDEN)) & _MASK_64


def uniforms(keys: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Random numbers in [0, 1), float64, that depend on key and step only (both uint64)."""
    return (_mix(_mix(keys + _GOLDEN) + steps * _GOLDEN + _GOLDEN) >> np.uint64(11)) * 2.0**-53


def _mix(state: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195)."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    mixed: np.ndarray = state ^ (state >> np.uint64(31))
    return mixed


class Sampler:
    """Draws for a fixed set of rows; build a new one when rows join or leave."""

    def __init__(self, draws: Sequence[Draw], device: torch.device) -> None:
        self._device = device
        self._warm = [row for row, draw in enumerate(draws) if draw.temperature > 0]
        warm = [draws[row] for row in self._warm]
        self._all_warm = len(warm) == len(draws)
        self._keys = np.array([draw.key for draw in warm], dtype=np.uint64)
        heat = torch.tensor([draw.temperature for draw in warm], dtype=torch.float32)
        self._temperature = heat[:, None].to(device)
        self._heats = bool((heat != 1).any())
        self._cut = [row for row, draw in enumerate(warm) if draw.top_k > 0 or draw.top_p < 1]
        cut = [warm[row] for row in self._cut]
        unlimited = np.iinfo(np.int64).max
        self._top_k = torch.tensor([draw.top_k or unlimited for draw in cut], device=device)
        self._top_p = torch.tensor([draw.top_p for draw in cut], dtype=torch.float64).to(device)
        self._rows = torch.tensor(self._warm, dtype=torch.long, device=device)
        self._top = [row for row, draw in enumerate(draws) if draw.n_top and draw.ids is None]
        self._n_top = [draws[row].n_top for row in self._top]
        self._given = {row: draw.ids for row, draw in enumerate(draws) if draw.ids is not None}

    def draw(self, logits: Tensor, steps: Sequence[int]) -> Drawn:
        """Draw one token a row.

        Args:
            logits: float32, shape `(rows, vocabulary)`.
            steps: How many tokens each row has drawn before.
        """
        if self._all_warm and self._warm:
            chosen = self._tokens(logits, steps)
        else:
            chosen = logits.argmax(-1)
            if self._warm:
                chosen[self._rows] = self._tokens(logits[self._rows], steps)
        total = torch.cat([torch.logsumexp(logits[rows], -1) for rows in self._pieces(logits)])
        logprobs = logits.gather(-1, chosen[:, None])[:, 0] - total
        read = self._read(logits, total) if self._top or self._given else {}
        return Drawn(chosen.tolist(), logprobs.tolist(), read)

    def _pieces(self, logits: Tensor) -> list[slice]:
        """Rows to compute together: what they need fits into a processor's cache."""
        n_rows, vocabulary = logits.shape
        step = n_rows if self._device.type != "cpu" else max(1, _CACHED_NUMBERS // vocabulary)
        return [slice(first, first + step) for first in range(0, n_rows, max(1, step))]

    def _tokens(self, warm: Tensor, steps: Sequence[int]) -> Tensor:
        """Draw a token for each row that is not greedy."""
        counts = np.array(steps, dtype=np.uint64)[self._warm]
        numbers = torch.from_numpy(uniforms(self._keys, counts)).to(self._device)
        pieces = self._pieces(warm)
        return torch.cat([self._drawn(warm[rows], rows, numbers[rows]) for rows in pieces])

    def _drawn(self, warm: Tensor, rows: slice, numbers: Tensor) -> Tensor:
        """Tokens of some of the rows that are not greedy."""
        heated = warm / self._temperature[rows] if self._heats else warm
        weights = heated.softmax(-1, dtype=torch.float64)
        cut = [place for place, row in enumerate(self._cut) if rows.start <= row < rows.stop]
        if cut:
            inside = [self._cut[place] - rows.start for place in cut]
            weights[inside] *= _kept(weights[inside], self._top_k[cut], self._top_p[cut])
        reached = weights.cumsum(-1)
        drawn = torch.searchsorted(reached, numbers[:, None] * reached[:, -1:], right=True)
        return drawn[:, 0].clamp_(max=warm.shape[-1] - 1)

    def _read(self, logits: Tensor, total: Tensor) -> dict[int, Alternatives]:
        read: dict[int, Alternatives] = {}
        if self._top:
            most = min(max(self._n_top), logits.shape[-1])
            values, ids = logits[self._top].topk(most, -1)
            listed = (values - total[self._top, None]).tolist()
            for row, count, names, numbers in zip(
                self._top, self._n_top, ids.tolist(), listed, strict=True
            ):
                read[row] = (names[:count], numbers[:count])
        for row, given in self._given.items():
            asked = list(given)
            read[row] = (asked, (logits[row, asked] - total[row]).tolist())
        return read


def _kept(weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Return the tokens that top-k, then top-p leave, bool like `weights`; the first stays.

    Ties are ranked by id. Top-p counts in the distribution that top-k left.
    """
    ranked, order = weights.sort(dim=-1, descending=True, stable=True)
    place = torch.arange(weights.shape[-1], device=weights.device)
    ranked = ranked * (place < top_k[:, None])
    before = ranked.cumsum(-1) - ranked
    stays = (before < top_p[:, None] * ranked.sum(-1, keepdim=True)) & (place < top_k[:, None])
    stays[:, 0] = True
    return torch.zeros_like(stays).scatter_(-1, order, stays)
