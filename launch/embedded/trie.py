"""Labels as token paths, and the trie of all paths that one forward pass walks.

The prompt is computed once. The trie's inner nodes are appended to it as further tokens, each
seeing the prompt and its own ancestors only, so one pass gives the distribution at every branch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from launch.embedded.errors import bad_request
from launch.embedded.readers import Branches

Path = tuple[int, ...]


def close_paths(paths: Sequence[Path], end_of_turn: int | None) -> list[Path]:
    """End each path that is a prefix of another, and that other, by the end-of-turn token.

    Raises:
        ApiError: 400 where a path is empty or paths can't be told apart.
    """
    if any(not path for path in paths):
        raise bad_request("a label has no tokens", "labels")
    distinct = sorted(set(paths))
    nested: set[Path] = set()
    for path in distinct:
        longer = [other for other in distinct if other != path and other[: len(path)] == path]
        if longer:
            nested.update(longer, (path,))
    if not nested:
        return list(paths)
    if end_of_turn is None:
        text = "a label begins with another, and the tokenizer has no end-of-turn token"
        raise bad_request(text, "labels")
    closed = [(*path, end_of_turn) if path in nested else path for path in paths]
    for path in closed:
        if any(other != path and other[: len(path)] == path for other in closed):
            raise bad_request("a label begins with another one and the end of the turn", "labels")
    return closed


@dataclass(frozen=True, slots=True)
class Trie:
    """The inner nodes of the trie below the last prompt token.

    Attributes:
        paths: The distinct paths.
        tokens: Token of each node but the root, parents before children.
        depths: 1 for the root's children, and so on.
        sees: Which nodes each node sees (its ancestors and itself), bool of shape `(n, n)`.
        children: Tokens that may follow: of the root first, then of each node.
        nodes: By proper prefix of a path: its index into `children`.
    """

    paths: list[Path]
    tokens: list[int]
    depths: list[int]
    sees: Tensor
    children: list[list[int]]
    nodes: dict[Path, int]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Trie:
        """Build the trie of paths none of which is a prefix of another."""
        distinct = list(dict.fromkeys(paths))
        prefixes = {path[:end] for path in distinct for end in range(len(path))}
        ordered = sorted(prefixes, key=lambda prefix: (len(prefix), prefix))
        nodes = {prefix: place for place, prefix in enumerate(ordered)}
        children: list[dict[int, None]] = [{} for _ in ordered]
        for path in distinct:
            for end, token in enumerate(path):
                children[nodes[path[:end]]][token] = None
        inner = ordered[1:]
        sees = torch.zeros((len(inner), len(inner)), dtype=torch.bool)
        for place, prefix in enumerate(inner):
            for end in range(1, len(prefix) + 1):
                sees[place, nodes[prefix[:end]] - 1] = True
        return cls(
            paths=distinct,
            tokens=[prefix[-1] for prefix in inner],
            depths=[len(prefix) for prefix in inner],
            sees=sees,
            children=[list(tokens) for tokens in children],
            nodes=nodes,
        )

    def reader(self, n_prompt: int) -> Branches:
        """Reads the root at the last prompt token and the nodes behind it."""
        places = [n_prompt - 1, *range(n_prompt, n_prompt + len(self.tokens))]
        return Branches(places, self.children)

    def logprob(self, path: Path, read: Branches) -> float:
        """Natural log of a path's probability by the chain rule."""
        return math.fsum(
            read.logprobs[self.nodes[path[:end]]][token] for end, token in enumerate(path)
        )


def log_sum_exp(values: Sequence[float]) -> float:
    """Natural log of the sum of exponentials, in float64; -inf for none."""
    highest = max(values, default=-math.inf)
    if highest == -math.inf:
        return highest
    return highest + math.log(math.fsum(math.exp(value - highest) for value in values))
