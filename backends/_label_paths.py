"""Labels as token paths in their context, cut by a server's own tokenizer."""

from collections.abc import Sequence
from typing import Final

import msgspec

from backends._tokens import Cache, Contexts, Failed, Ids
from orchestrator.records import Failure, Label
from orchestrator.wire import trie
from orchestrator.wire.trie import Path, Trie

# Sets of labels in their contexts that are remembered; most judges have one.
_MOST_REMEMBERED: Final = 256


class Cut(msgspec.Struct, frozen=True):
    """Labels as tokens.

    Attributes:
        paths: By label and spelling, none of which begins another.
        tree: Of all of them.
    """

    paths: tuple[tuple[Path, ...], ...]
    tree: Trie


class LabelPaths:
    """Cuts labels; those that were cut in the same context before are known.

    Args:
        contexts: Tokenises.
    """

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts
        self._cut: Cache[tuple[Ids, tuple[Label, ...]], Cut] = Cache(_MOST_REMEMBERED)

    async def of(self, whole: Ids, n_begun: int, labels: Sequence[Label]) -> Cut:
        """Labels after the prompt and the begun answer, of which the last `n_begun` are the answer.

        Raises:
            Failed: If the labels can't be told apart, or the server does not say.
        """
        tail = await self._contexts.deciding_tail(whole, n_begun)
        if tail is None:
            return await self._of(whole, n_begun, labels)
        return await self._cut.learn(
            (tail, tuple(labels)), lambda: self._of(whole, n_begun, labels), lambda _: 1
        )

    async def _of(self, whole: Ids, n_begun: int, labels: Sequence[Label]) -> Cut:
        contexts = self._contexts
        found = [
            [(await contexts.continuation(whole, text, n_begun)).ids for text in label.spellings]
            for label in labels
        ]
        try:
            flat = [path for group in found for path in group]
            if trie.nested(flat):
                flat = trie.close(flat, await contexts.end_of_turn())
            closed = iter(flat)
            paths = tuple(tuple(next(closed) for _ in group) for group in found)
            _check_distinct(paths, labels)
            return Cut(paths, Trie.of(flat))
        except trie.PathsError as error:
            raise Failed(Failure("bad_request", str(error), permanent=True)) from None


def _check_distinct(paths: Sequence[Sequence[Path]], labels: Sequence[Label]) -> None:
    owner: dict[Path, Label] = {}
    for group, label in zip(paths, labels, strict=True):
        for path in group:
            other = owner.setdefault(path, label)
            if other is not label:
                said = f"the labels {other.name!r} and {label.name!r} share a spelling"
                raise trie.PathsError(said)
