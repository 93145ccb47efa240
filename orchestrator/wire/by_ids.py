"""Servers that are asked by token ids: labels as paths of tokens, and what such servers share.

That is how numbers of given ids and distributions are written down, and vLLM's tokenizer routes
(`/tokenize` and `/detokenize`, vLLM 0.32), which others have too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.records import Choice, FloatArray, Messages, TopLogprobs, unparseable
from orchestrator.wire._located import check_lists
from orchestrator.wire.failures import Failed
from orchestrator.wire.parsing import TokenId, field
from orchestrator.wire.requests import encode, messages_of

# Labels as token paths, and the places at which a chain rule over them has to look.
#
# A label's probability is the product of its tokens' along its path. Paths share beginnings, so
# what has to be read is one distribution for each inner node of their trie.


Path = tuple[int, ...]
Children = Mapping[Path, tuple[int, ...]]
"""The inner nodes of a trie of paths: the tokens that may follow, by the tokens that lead there.

The root, `()`, comes first, parents before children.
"""
Cut = tuple[tuple[tuple[Path, ...], ...], Children]
"""Labels as tokens: their paths by label and spelling, none of which begins another; their tree."""


class PathsError(ValueError):
    """Labels whose tokens can't be told apart; the text is meant for the user."""


def nested(paths: Iterable[Path]) -> frozenset[Path]:
    """Paths that begin another one, and those that begin with another."""
    distinct = sorted(set(paths))
    found: set[Path] = set()
    for path in distinct:
        longer = [other for other in distinct if other != path and other[: len(path)] == path]
        if longer:
            found.update(longer, (path,))
    return frozenset(found)


def cut(groups: Sequence[Sequence[Path]], names: Sequence[str], end_of_turn: int | None) -> Cut:
    """Return labels whose paths are ended by the end-of-turn token where need be, and their tree.

    Args:
        groups: Paths by label and spelling.
        names: Of the labels.
        end_of_turn: The token; None if there is none, or no path needs it.

    Raises:
        PathsError: If labels can't be told apart.
    """
    flat = [path for group in groups for path in group]
    if not all(flat):
        raise PathsError("a label has no tokens")
    ended: dict[Path, Path] = {}
    if end_of_turn is not None:
        ended = {path: (*path, end_of_turn) for path in nested(flat)}
    paths = tuple(tuple(ended.get(path, path) for path in group) for group in groups)
    flat = [path for group in paths for path in group]
    if nested(flat):
        behind = " followed by the end of the turn" if ended else ""
        raise PathsError(f"a label begins with another label{behind}")
    owner: dict[Path, int] = {}
    for label, group in enumerate(paths):
        for path in group:
            if (other := owner.setdefault(path, label)) != label:
                said = f"the labels {names[other]!r} and {names[label]!r} share a spelling"
                raise PathsError(said)
    children: dict[Path, dict[int, None]] = {}
    for depth in range(max(map(len, flat), default=0)):
        for path in flat:
            if len(path) > depth:
                children.setdefault(path[:depth], {})[path[depth]] = None
    return paths, {node: tuple(tokens) for node, tokens in children.items()}


class Reading(msgspec.Struct, frozen=True):
    """Known part of the distribution at a node.

    Attributes:
        logprobs: ln p of tokens, over the whole vocabulary.
        bound: Upper bound of ln p of every token that is not among them.
    """

    logprobs: Mapping[int, float]
    bound: float = 0.0


UNREAD = Reading({})
"""Of a node that nobody looked at."""


class Walk:
    """Distributions read at the nodes of a trie, and which are still to be read.

    Args:
        labels: Their paths and tree, by `cut`.
        negligible: ln of the share of the most probable path below which another one is only
            bounded; -inf for never.

    Attributes:
        read: The distributions, by node.
        children: The tree.
    """

    def __init__(self, labels: Cut, negligible: float) -> None:
        self._groups, self.children = labels
        self._negligible = negligible
        self.read: dict[Path, Reading] = {}

    def add(self, nodes: Iterable[Path], readings: Iterable[Reading]) -> None:
        """Take what was read at nodes; what was known of them stays known."""
        for node, reading in zip(nodes, readings, strict=True):
            before = self.read.get(node)
            if before is not None:
                reading = Reading({**before.logprobs, **reading.logprobs}, before.bound)
            self.read[node] = reading

    def unread(self) -> list[Path]:
        """Nodes nobody has looked at and that can't be neglected, parents before children."""
        nodes = [node for node in self.children if node not in self.read]
        if not nodes:
            return []
        least = self._least()
        return [node for node in nodes if value(node, self.read)[1] >= least]

    def missing(self) -> dict[Path, list[int]]:
        """Tokens that were not listed where they might have been and that can't be neglected."""
        unlisted = [
            (node, token)
            for node, reading in self.read.items()
            for token in self.children[node]
            if token not in reading.logprobs
        ]
        found: dict[Path, list[int]] = {}
        least = self._least() if unlisted else 0.0
        for node, token in unlisted:
            if value((*node, token), self.read)[1] >= least:
                found.setdefault(node, []).append(token)
        return found

    def choice(self, method: str, n_prompt: int, n_cached: int, n_requests: int) -> Choice:
        """Return the choice that the readings make."""
        return Choice(*totals(self._groups, self.read), method, n_prompt, n_cached, n_requests)

    def _least(self) -> float:
        """The ln p that a path must be able to have."""
        paths = (path for group in self._groups for path in group)
        best = max((value(path, self.read)[1] for path in paths), default=0.0)
        return best + self._negligible if best > -math.inf else -math.inf


def value(path: Path, read: Mapping[Path, Reading]) -> tuple[float, float]:
    """A path's ln p and its upper bound; the first is nan where a step of it is not known."""
    known, upper = [], []
    for depth, token in enumerate(path):
        seen = read.get(path[:depth], UNREAD)
        found = seen.logprobs.get(token)
        known.append(math.nan if found is None else found)
        upper.append(seen.bound if found is None else found)
        if upper[-1] == -math.inf:
            return -math.inf, -math.inf
    bound = min(math.fsum(upper), 0.0)
    return (math.nan if any(map(math.isnan, known)) else bound), bound


def total(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The sum of several probabilities as ln, with its upper bound; nan where none is known."""
    known = [one for one, _ in values if not math.isnan(one)]
    upper = ln_sum([bound for _, bound in values])
    return (ln_sum(known) if known else math.nan), upper


def totals(
    groups: Sequence[Sequence[Path]], read: Mapping[Path, Reading]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return ln p of labels, each with the paths of its spellings, and their upper bounds."""
    values = [total([value(path, read) for path in dict.fromkeys(group)]) for group in groups]
    logprobs, upper = zip(*values, strict=True)
    return logprobs, upper


def ln_sum(logprobs: Sequence[float]) -> float:
    """Natural log of the sum of probabilities, at most 0, in float64; -inf for none."""
    highest = max(logprobs, default=-math.inf)
    if len(logprobs) == 1 or highest == -math.inf:
        return min(highest, 0.0)
    total = math.fsum(math.exp(value - highest) for value in logprobs)
    return min(highest + math.log(total), 0.0)


class Forced(msgspec.Struct, frozen=True):
    """Teacher-forced log-probabilities: arrays of shape (T,) and, where asked for, (T, k)."""

    logprobs: FloatArray
    top: TopLogprobs | None
    n_cached: int


def check_prompt(n_sent: int, n_read: int) -> None:
    """See that no other prompt was read, as with a second BOS, or cut short; else `Failed`."""
    if n_read != n_sent:
        said = f"{n_sent} prompt tokens were sent and {n_read} were read by the server"
        raise Failed(unparseable(said))


Looked = tuple[tuple[Reading, ...], int]
"""Distributions at several nodes, in the order they were asked; and cached tokens of prompts."""


def top_of(rows: Sequence[Sequence[tuple[int, float]]], k: int) -> TopLogprobs:
    """The first k tokens at each place; nan and -1 where fewer are listed.

    Raises `Failed` for lists that sum above 1.

    Args:
        rows: At each place id and ln p of tokens, most likely first.
        k: Width of the result.
    """
    ids = np.full((len(rows), k), -1, dtype=np.int32)
    values = np.full((len(rows), k), np.nan, dtype=np.float32)
    for place, row in enumerate(rows):
        for column, (token, value) in enumerate(row[:k]):
            ids[place, column], values[place, column] = token, value
    check_lists(values)
    return TopLogprobs(ids, values)


token_ids: Final = field("tokens", tuple[TokenId, ...])
"""The ids in a reply of `/tokenize`."""
token_texts: Final = field("token_strs", tuple[str, ...])
"""The tokens' texts in a reply of `/tokenize`, as the vocabulary spells them."""
text: Final = field("prompt", str)
"""The text in a reply of `/detokenize`."""


def tokenize_chat(
    model: str, messages: Messages, template: Mapping[str, object], *, opens: bool, goes_on: bool
) -> bytes:
    """Body of `/tokenize` for a chat.

    Args:
        model: The server's name for it.
        messages: The chat.
        template: Fields that the chat template depends on.
        opens: Whether the assistant's turn is opened.
        goes_on: Whether the last message is left open.
    """
    return encode({
        "model": model,
        "messages": messages_of(messages),
        "add_generation_prompt": opens,
        "continue_final_message": goes_on,
        **template,
    })  # fmt: skip


def tokenize(model: str, text: str, *, special: bool = False, strings: bool = False) -> bytes:
    """Body of `/tokenize` for a text; `special` adds what the tokenizer puts around one (BOS)."""
    body: dict[str, Any] = {"model": model, "prompt": text, "add_special_tokens": special}
    if strings:
        body["return_token_strs"] = True
    return encode(body)


def detokenize(model: str, ids: Path) -> bytes:
    """Body of `/detokenize`."""
    return encode({"model": model, "tokens": ids})
