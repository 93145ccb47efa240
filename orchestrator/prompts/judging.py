"""A judge's prompt in its two forms."""

from typing import NamedTuple


class JudgePrompt(NamedTuple):
    """A user message that asks for a verdict at once, and one that asks for reasons first."""

    direct: str
    chain_of_thought: str

    def form(self, *, chain_of_thought: bool) -> str:
        """The template of one of the two."""
        return self.chain_of_thought if chain_of_thought else self.direct
