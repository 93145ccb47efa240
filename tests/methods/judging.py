"""Judges made of functions, for tests of judging methods."""

import math

import numpy as np

from orchestrator.records import Choice, Generation, Item, Message

ITEM = Item(key="k", messages=(Message("user", "q"),), reference="r", category="c")


def choice(weights, coverage=1.0):
    """Probabilities in the ratio of `weights`, with a mass of `coverage` on all of them."""
    total = sum(weights)
    values = tuple(math.log(coverage * w / total) if w else -math.inf for w in weights)
    return Choice(values, values, "made")


def trace(*tokens, reason="stop"):
    starts = np.cumsum([0, *map(len, tokens)])[:-1].astype(np.int32)
    ids = np.arange(len(tokens), dtype=np.int32)
    return Generation("".join(tokens), reason, token_ids=ids, offsets=starts)
