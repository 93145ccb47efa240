"""Requests as the engine sees them: a sequence to compute, readings, and texts to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from launch.embedded.readers import AttentionReader, Reader
from launch.embedded.sampling import Alternatives, Draw
from launch.embedded.tokens import Tokens


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
