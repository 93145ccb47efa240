"""Thinking of a reasoning model that stands in a text: marks by which models set it apart.

Where neither the server nor the recipe (`thinking`) takes it out, a judge reads it as part of the
answer.
"""

from typing import Final

_TAGS: Final = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")
OPENING: Final = (
    *(f"<{tag}>" for tag in _TAGS), "[THINK]", "◁think▷", "<|START_THINKING|>",
    "<|begin_of_thought|>", "<|channel|>", "<unused94>thought",
)  # fmt: skip
"""Marks that begin a text of which the first part is thinking."""
CLOSING: Final = (
    *(f"</{tag}>" for tag in _TAGS), "[/THINK]", "◁/think▷", "<|END_THINKING|>",
    "<|end_of_thought|>", "<|channel|>", "assistantfinal",
)  # fmt: skip
"""Marks that end it, wherever they stand: the prompt may have opened it."""
REMEDY: Final = (
    'set `thinking` of the model (such as `thinking: {end: "</think>"}`), or start its server with '
    "a reasoning parser"
)
"""What keeps the thinking from judges."""


def mark_in(text: str) -> str:
    """A mark of thinking in a text; empty where there is none."""
    start = text.lstrip()
    opened = (mark for mark in OPENING if start.startswith(mark))
    return next(opened, next((mark for mark in CLOSING if mark in text), ""))
