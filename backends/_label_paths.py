"""Labels as token paths in their context, cut by a server's own tokenizer."""

from collections.abc import Sequence

from backends._tokens import Contexts, Failed, Ids
from orchestrator.records import Failure, Label
from orchestrator.wire import trie
from orchestrator.wire.trie import Path, Trie


async def label_paths(
    contexts: Contexts, whole: Ids, n_begun: int, labels: Sequence[Label]
) -> tuple[list[list[Path]], Trie]:
    """Token paths by label and spelling, none of which begins another, and their trie.

    Args:
        contexts: Tokenises.
        whole: The prompt and the begun answer.
        n_begun: Tokens of the begun answer.
        labels: The labels.

    Raises:
        Failed: If the labels can't be told apart, or the server does not say.
    """
    found = [
        [(await contexts.continuation(whole, text, n_begun)).ids for text in label.spellings]
        for label in labels
    ]
    try:
        flat = [path for group in found for path in group]
        if trie.nested(flat):
            flat = trie.close(flat, await contexts.end_of_turn())
        closed = iter(flat)
        paths = [[next(closed) for _ in group] for group in found]
        _check_distinct(paths, labels)
        tree = Trie.of(flat)
    except trie.PathsError as error:
        raise Failed(Failure("bad_request", str(error), permanent=True)) from None
    return paths, tree


def _check_distinct(paths: Sequence[Sequence[Path]], labels: Sequence[Label]) -> None:
    owner: dict[Path, Label] = {}
    for group, label in zip(paths, labels, strict=True):
        for path in group:
            other = owner.setdefault(path, label)
            if other is not label:
                said = f"the labels {other.name!r} and {label.name!r} share a spelling"
                raise trie.PathsError(said)
