"""Groups of models that no test tells apart, and of elements that are connected."""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

_MOST: Final = 99


def shared_groups(
    models: Sequence[str], apart: Collection[tuple[str, str]]
) -> dict[str, tuple[int, ...]]:
    """Number the groups of each model, from 1 on in the order of their first models.

    A model may be in several: of three in a row only the ends of which can be told apart, the
    middle one shares a group with each. The groups are the largest ones of which no two members can
    be told apart, by insertion and absorption (Piepho 2004, doi:10.1198/1061860043515).

    Args:
        models: Names, in the order in which the groups are numbered.
        apart: Pairs that can be told apart.

    Returns:
        Numbers by model; empty where there are more groups than anybody can read.
    """
    bits = {model: 1 << place for place, model in enumerate(models)}
    groups = [(1 << len(models)) - 1] if models else []
    for first, second in apart:
        pair = bits[first] | bits[second]
        kept = [group for group in groups if group & pair != pair]
        split = [
            group & ~bits[one]
            for group in groups
            if group & pair == pair
            for one in (first, second)
        ]
        for part in split:
            if not any(part & group == part for group in kept):
                kept.append(part)
        groups = kept
        if len(groups) > _MOST:
            return {}
    # From the bit of the best model up, those of a group read backwards are a number in that order.
    groups.sort(key=lambda group: f"{group:0{len(models)}b}"[::-1], reverse=True)
    return {
        model: tuple(number for number, group in enumerate(groups, 1) if group & bits[model])
        for model in models
    }


def connected(*partitions: NDArray[np.int32] | Places) -> Places:
    """Return the first member of each of n elements' component: shape (n,).

    Elements with the same code in any of the partitions are connected, directly or through others.

    Args:
        partitions: Codes from 0 on, shape (n,) each.
    """
    found: Places = np.arange(len(partitions[0]), dtype=np.int64)
    while True:
        before = found
        for codes in partitions:
            least = np.full(int(codes.max(initial=-1)) + 1, len(found), np.int64)
            np.minimum.at(least, codes, found)
            found = least[codes]
        if np.array_equal(found, before):
            return found
