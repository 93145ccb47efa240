"""Requests as the engine sees them: a sequence to compute, readings, and texts to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from launch.embedded.sampling import Alternatives, Draw
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


class Observer(Protocol):
    """A further reading of a teacher-forced pass, such as the entropy of each position."""

    name: str

    def observe(self, logits: Tensor, logprobs: Tensor) -> list[float]:
        """One number a row of raw logits and of their log-softmax, shape `(n, vocabulary)`."""
        ...


class AttentionReader(Protocol):
    """Sees attention weights, one layer at a time."""

    def see(self, layer: int, weights: Tensor) -> None:
        """Take weights of shape `(1, heads, tokens, keys)`; they must not be kept."""
        ...


@dataclass(slots=True)
class Forced:
    """Log-probabilities of given tokens, each at its place, with ranks and alternatives.

    Attributes:
        places: Where the logits are that predict `targets`.
        targets: The tokens.
        n_top: How many alternatives to read; 0 for none.
        observers: Further readings; what they give goes to `observations` by their name.
        logprobs: Raw natural-log probabilities of the targets.
        ranks: 1 is the most likely token; equal ones rank the same. Empty unless `ranked`, as
            counting takes as long as the rest of the reading.
        top: By position: ids and log-probabilities, most likely first.
        ranked: Whether to count ranks.
    """

    places: list[int]
    targets: list[int]
    n_top: int = 0
    observers: Sequence[Observer] = ()
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    top: list[tuple[list[int], list[float]]] = field(default_factory=list)
    observations: dict[str, list[float]] = field(default_factory=dict)
    ranked: bool = False

    def read(self, first: int, logits: Tensor) -> None:
        """Take the logits of some places."""
        n_rows = logits.shape[0]
        targets = torch.tensor(self.targets[first : first + n_rows], device=logits.device)
        total = torch.logsumexp(logits, -1)
        chosen = logits.gather(-1, targets[:, None])
        self.logprobs += (chosen[:, 0] - total).tolist()
        if self.ranked:
            # Ones and zeros as float32, whose sums are exact and several times as fast.
            above = torch.gt(logits, chosen, out=torch.empty_like(logits))
            self.ranks += (above.sum(-1).long() + 1).tolist()
        if self.n_top:
            values, ids = logits.topk(min(self.n_top, logits.shape[-1]), -1)
            listed = (values - total[:, None]).tolist()
            self.top += zip(ids.tolist(), listed, strict=True)
        if self.observers:
            logprobs = logits - total[:, None]
            for observer in self.observers:
                seen = observer.observe(logits, logprobs)
                self.observations.setdefault(observer.name, []).extend(seen)


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
        cut: Length in characters of the text up to its stop string, -1 without one.
    """

    draw: Draw
    stop: Stop
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[Alternatives] = field(default_factory=list)
    finish_reason: str = ""
    stop_reason: str | int | None = None
    cut: int = -1
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
        self.cut, self.stop_reason = min(found)
        return True


@dataclass(slots=True, eq=False)
class Job:
    """A sequence to compute, with what to read off it and what to draw after it.

    Attributes:
        ids: Tokens to compute: the prompt, and what is read behind it.
        n_prompt: Length of the prompt.
        positions: Places of the tokens; None for 0, 1, 2, ….
        tree: Which of the last tokens see each other (`trie.Trie.sees`); None for plain text.
        reader: What to read off given places.
        answers: Texts to draw after the last prompt token.
        attention: What sees the attention weights of the tokens behind the prompt.
        reuse: How many leading tokens may come from the prefix cache.
        on_done: Called once, on the engine's thread, with None or what went wrong.
        on_token: Called after each token, on the engine's thread, with the answer's index.
        n_cached: Tokens that came from the prefix cache.
        cancelled: Set by `Engine.cancel`.
    """

    ids: Sequence[int]
    n_prompt: int
    on_done: Callable[[Exception | None], None]
    positions: Sequence[int] | None = None
    tree: Tensor | None = None
    reader: Reader | None = None
    attention: AttentionReader | None = None
    answers: list[Answer] = field(default_factory=list)
    reuse: int = 0
    on_token: Callable[[int], None] | None = None
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
    n_open: int = 0
    reported: bool = False

    @property
    def n_rows(self) -> int:
        """Places it needs among the rows that decode."""
        return sum(answer.stop.max_tokens > 1 for answer in self.answers)

    @property
    def n_left(self) -> int:
        """Tokens still to be computed before anything is drawn."""
        return len(self.ids) - self.n_done
