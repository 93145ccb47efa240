"""Texts of tokens by id, from a server that decodes ids into one text."""

from collections.abc import Mapping, Sequence
from typing import Final

from backends._tokens import Failed, Ids, Tokenizer
from orchestrator.records import Failure

_SEPARATOR: Final = "7|7"
_NOT_APART: Final = Failure(
    "unsupported", "the server's tokenizer does not decode tokens one by one", permanent=True
)


class Separated:
    """Asks a tokenizer for the texts of many tokens at once, put between separators.

    Each could be asked for by itself, but a run meets tens of thousands of tokens. Bytes that are
    no whole character come back as U+FFFD.

    Args:
        server: The tokenizer.
    """

    def __init__(self, server: Tokenizer) -> None:
        self._server = server
        self._ids: Ids = ()
        self._first = self._between = ""

    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """Return the texts of tokens; a token that can't be told apart is left out.

        Raises:
            Failed: If the server does not say.
        """
        if not self._ids:
            await self._learn()
        found: dict[int, bytes] = {}
        parts = [list(ids)]
        while parts:
            part = parts.pop()
            pieces = await self._pieces(part)
            if len(pieces) == len(part):
                texts = (piece.encode("utf-8", "replace") for piece in pieces)
                found |= dict(zip(part, texts, strict=True))
            elif len(part) > 1:
                # The separator is in the text of a token, or merges with it.
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
        return found

    async def _pieces(self, ids: Sequence[int]) -> list[str]:
        asked = [*self._ids]
        for token in ids:
            asked += (token, *self._ids)
        text = await self._server.text(tuple(asked))
        if not text.startswith(self._first):
            return []
        return text[len(self._first) :].split(self._between)[:-1]

    async def _learn(self) -> None:
        """Find the text of the separator at the beginning, and between others.

        They differ where the tokenizer puts a space before each word but the first.
        """
        ids = await self._server.plain(_SEPARATOR, special=False)
        self._first = await self._server.text(ids)
        twice = await self._server.text((*ids, *ids, *ids))
        rest = twice.removeprefix(self._first)
        self._between = rest[: len(rest) // 2]
        if not self._between or rest != 2 * self._between or rest == twice:
            raise Failed(_NOT_APART)
        self._ids = ids
