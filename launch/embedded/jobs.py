"""Requests as the engine sees them: a sequence to compute, readings, and texts to draw.

Tokens are drawn for many rows at once, and log-probabilities read off the same logits. A row's draw
depends on its own logits, settings, seed and step only. The random number comes from a counter (no
generator is kept), so it is the same whoever shares the batch. Log-probabilities are those of the
unmodified softmax: temperature, top-k and top-p never enter them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from launch.embedded.tokens import Tokens

# Readers of the logits of given tokens, and the hook for other readings.
#
# A reader names the places of a sequence whose logits it wants and is fed them in order, possibly
# in pieces. An `Observer` sees the same rows (`features` has those of the whole vocabulary).


class Reader(Protocol):
    """Reads logits at `places` (ascending indices into the sequence)."""

    places: list[int]

    def read(self, first: int, logits: Tensor) -> None:
        """Take the logits of `places[first:first + n]`, float32 of shape `(n, vocabulary)`."""
        ...


Observer = Callable[[Tensor, Tensor], Tensor]
"""A further reading of a teacher-forced pass, such as the entropy of each position: one number a
row of raw logits and of their log-softmax, shape `(n, vocabulary)`."""


See = Callable[[int, Tensor], None]
"""Takes a layer's number and its attention weights, shape `(1, heads, tokens, keys)`, which must
not be kept."""


@dataclass(slots=True)
class Forced:
    """Log-probabilities of given tokens, each at its place, with alternatives.

    Attributes:
        places: Where the logits are that predict `targets`.
        targets: The tokens.
        n_top: How many alternatives to read; 0 for none.
        observers: Further readings by name; what they give goes to `observations` by it.
        logprobs: Raw natural-log probabilities of the targets.
        top: By position: ids and log-probabilities, most likely first.
    """

    places: list[int]
    targets: list[int]
    n_top: int = 0
    observers: Mapping[str, Observer] = field(default_factory=dict)
    logprobs: list[float] = field(default_factory=list)
    top: list[tuple[list[int], list[float]]] = field(default_factory=list)
    observations: dict[str, list[float]] = field(default_factory=dict)

    def read(self, first: int, logits: Tensor) -> None:
        """Take the logits of some places."""
        n_rows = logits.shape[0]
        targets = torch.tensor(self.targets[first : first + n_rows], device=logits.device)
        total = torch.logsumexp(logits, -1)
        chosen = logits.gather(-1, targets[:, None])
        self.logprobs += (chosen[:, 0] - total).tolist()
        if self.n_top:
            values, ids = logits.topk(min(self.n_top, logits.shape[-1]), -1)
            listed = (values - total[:, None]).tolist()
            self.top += zip(ids.tolist(), listed, strict=True)
        if self.observers:
            logprobs = logits - total[:, None]
            for name, observe in self.observers.items():
                self.observations.setdefault(name, []).extend(observe(logits, logprobs).tolist())


@dataclass(slots=True)
class Outputs:
    """The raw outputs of a head at given places.

    Attributes:
        places: Where they are read.
        values: By place, as many as the head has outputs.
    """

    places: list[int]
    values: list[list[float]] = field(default_factory=list)

    def read(self, first: int, logits: Tensor) -> None:  # noqa: ARG002 (a reader's arguments)
        """Take the outputs at some places."""
        self.values += logits.tolist()


@dataclass(slots=True)
class Branches:
    """Log-probabilities of the tokens that may follow at each node of a label trie.

    Attributes:
        places: Where each node lies in the sequence.
        tokens: By node: the tokens that follow it.
        logprobs: By node: their log-probabilities over the whole vocabulary, float64 sums.
    """

    places: list[int]
    tokens: list[list[int]]
    logprobs: list[dict[int, float]] = field(default_factory=list)

    def read(self, first: int, logits: Tensor) -> None:
        """Take the logits of some nodes."""
        wide = logits.double()
        total = torch.logsumexp(wide, -1)
        for row, tokens in enumerate(self.tokens[first : first + logits.shape[0]]):
            values = (wide[row, tokens] - total[row]).tolist()
            self.logprobs.append(dict(zip(tokens, values, strict=True)))


@dataclass(frozen=True, slots=True)
class Stop:
    """Conditions that end an answer.

    Attributes:
        max_tokens: Stop token included.
        tokens: Ids that end it (they are drawn and counted).
        eos: Those of `tokens` that are not reported as a reason.
        strings: Strings that end it, however the tokens cut them.
    """

    max_tokens: int
    tokens: frozenset[int] = frozenset()
    eos: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()


@dataclass(slots=True)
class Answer:
    """One text being drawn, or drawn.

    Attributes:
        draw: How its tokens are drawn.
        stop: When it ends.
        ids: Tokens so far, the stop token included.
        logprobs: Their raw natural-log probabilities.
        top: By token: the alternatives read; empty where none were asked for.
        finish_reason: "stop" or "length"; empty while it runs.
        stop_reason: The string or the extra id that ended it; None for the end of the turn.
    """

    draw: Draw
    stop: Stop
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[Alternatives] = field(default_factory=list)
    finish_reason: str = ""
    stop_reason: str | int | None = None
    _tail: bytes = b""

    def add(self, token: int, logprob: float, top: Alternatives | None, tokens: Tokens) -> bool:
        """Take the next token; True when the answer has ended."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        if top is not None:
            self.top.append(top)
        if token in self.stop.tokens:
            self.finish_reason = "stop"
            self.stop_reason = None if token in self.stop.eos else token
        elif self.stop.strings and self._meets_string(token, tokens):
            self.finish_reason = "stop"
        elif len(self.ids) >= self.stop.max_tokens:
            self.finish_reason = "length"
        return self.finish_reason != ""

    def _meets_string(self, token: int, tokens: Tokens) -> bool:
        """Look for stop strings in the bytes that this token completes, then in the text."""
        strings = self.stop.strings
        longest = max(len(string.encode()) for string in strings)
        added = tokens.visible(token)
        seen = self._tail + added
        self._tail = seen[-longest:]
        if tokens.spelled and not any(string.encode() in seen for string in strings):
            return False
        text = tokens.decode(self.ids)
        found = [(text.find(string), string) for string in strings if string in text]
        if not found:
            return False
        _, self.stop_reason = min(found)
        return True


@dataclass(slots=True, eq=False)
class Job:
    """A sequence to compute, with what to read off it and what to draw after it.

    Attributes:
        ids: Tokens to compute: the prompt, and what is read behind it.
        n_prompt: Length of the prompt.
        positions: Places of the tokens; None for 0, 1, 2, ….
        tree: Which of the last tokens see each other (`routes.visible`); None for plain text.
        reader: What to read off given places.
        answer: Text to draw after the last prompt token; None for none.
        attention: What sees the attention weights of the tokens behind the prompt.
        reuse: How many leading tokens may come from the prefix cache.
        on_done: Called once, on the engine's thread, with None or what went wrong.
        n_cached: Tokens that came from the prefix cache.
        cancelled: Set by `Engine.cancel`.
    """

    ids: Sequence[int]
    n_prompt: int
    on_done: Callable[[Exception | None], None] = lambda _: None
    positions: Sequence[int] | None = None
    tree: Tensor | None = None
    reader: Reader | None = None
    attention: See | None = None
    answer: Answer | None = None
    reuse: int = 0
    n_cached: int = 0
    cancelled: bool = False
    # Below: the engine's own notes.
    arrival: int = 0
    held: bool = False
    claim: bytes = b""
    n_done: int = 0
    n_read: int = 0
    known: list[Tensor] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    reported: bool = False

    @property
    def n_rows(self) -> int:
        """Places it needs among the rows that decode: 0 or 1."""
        return int(self.answer is not None and self.answer.stop.max_tokens > 1)

    @property
    def n_left(self) -> int:
        """Tokens still to be computed before anything is drawn."""
        return len(self.ids) - self.n_done


Work = tuple[Job, Callable[[], dict[str, Any]]]
"""A request under way: what the engine computes, and what gives the reply's fields once it has."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_CACHED_NUMBERS = 1 << 19
Alternatives = tuple[list[int], list[float]]
Drawn = tuple[int, float, Alternatives | None]
"""A token, its raw natural-log probability (nan where the logits hold nan), and alternatives."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Settings for drawing one row.

    Attributes:
        temperature: 0 is greedy; ties go to the lowest id.
        top_k: 0 is off.
        top_p: 1 is off.
        key: 64 bits that decide the row's random numbers, such as a seed.
        n_top: How many alternatives to read; 0 for none.
        ids: Ids to read instead of the most likely ones; None for those.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    key: int = 0
    n_top: int = 0
    ids: tuple[int, ...] | None = None


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

    def draw(self, logits: Tensor, steps: Sequence[int]) -> list[Drawn]:
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
        found = zip(chosen.tolist(), logprobs.tolist(), strict=True)
        return [(token, logprob, read.get(row)) for row, (token, logprob) in enumerate(found)]

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
            found = zip(self._top, self._n_top, ids.tolist(), listed, strict=True)
            read = {row: (names[:n], numbers[:n]) for row, n, names, numbers in found}
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
