"""Several tests at once: adjusted p-values, levels of intervals, and groups that none separates.

Source: Holm 1979, "A simple sequentially rejective multiple test procedure"; Shaffer 1986,
doi:10.1080/01621459.1986.10478341, for all pairs of models: if two of three differences are there,
the third cannot be the only one that is not, so that fewer can be missing than are left.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.records import Bools, Floats, Ints

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Tests that are decided together; arrays of the shape of the p-values.

    Attributes:
        p_values: Adjusted; nan where there is no test.
        is_resolved: Whether they are at most the error that is allowed.
        errors: The error at which the interval of each leaves out the value that is tested exactly
            where it is resolved: the share that it has at its step, or for those that are not
            resolved, at the step that ended the procedure.
    """

    p_values: Floats
    is_resolved: Bools
    errors: Floats


def adjusted(p_values: Floats, error: float, *, all_pairs_of: int = 0) -> Adjusted:
    """Decide tests together, so that any wrong one has at most the chance `error`.

    P-values have any shape; nan are not part of the family. `all_pairs_of` is the number of models,
    if the tests are of equal means of their pairs (some may be missing); 0 where nothing follows
    from one test for the others.
    """
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    left = np.arange(len(order), 0, -1)
    if all_pairs_of:
        left = np.minimum(left, _most_equal(all_pairs_of)[: len(left)])
    together = np.full(p_values.shape, np.nan)
    together[order] = np.minimum(np.maximum.accumulate(p_values[order] * left), 1.0)
    is_resolved = together <= error
    errors = np.full(p_values.shape, np.nan)
    n_resolved = int(is_resolved.sum())
    steps = np.minimum(np.arange(len(order)), n_resolved)
    errors[order] = error / left[steps] if len(order) > n_resolved else error / left
    return Adjusted(together, is_resolved, errors)


def holm(p_values: Floats) -> Floats:
    """Holm's (1979) adjusted p-values, same shape; nan are not part of the family and stay nan."""
    return adjusted(p_values, 0.0).p_values


def _most_equal(n_models: int) -> Ints:
    """Pairs that can be equal if so many others are not: 0, 1 and so on of all pairs.

    Equal models form groups, so that the number of equal pairs is a sum of k (k - 1) / 2.
    """
    # Bit q of `possible[m]`: m models can have q equal pairs.
    possible = [1]
    for m in range(1, n_models + 1):
        found = 0
        for size in range(1, m + 1):
            found |= possible[m - size] << (size * (size - 1) // 2)
        possible.append(found)
    n_pairs = n_models * (n_models - 1) // 2
    return np.array(
        [
            (possible[n_models] & ((1 << (n_pairs - n + 1)) - 1)).bit_length() - 1
            for n in range(n_pairs)
        ],
        np.int64,
    )


_MOST: Final = 99


def shared_groups(
    models: Sequence[str], apart: Collection[tuple[str, str]]
) -> dict[str, tuple[int, ...]]:
    """Number the groups of each model, from 1 on in the order of their first models.

    A model may be in several: of three in a row only the ends of which can be told apart, the
    middle one shares a group with each. The groups are the largest ones of which no two members can
    be told apart, by insertion and absorption (Piepho 2004, doi:10.1198/1061860043515). Models are
    numbered in their order; `apart` are the pairs that can be told apart. Empty where there are
    more groups than anybody can read.
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
    Codes count from 0 on, shape (n,) each.
    """
    found: Places = np.arange(len(partitions[0]), dtype=np.int64)
    while True:
        before = found
        for codes in partitions:
            least = np.full(int(codes.max(initial=-1)) + 1, len(found), np.int64)
            np.minimum.at(least, codes, found)
            found = least[codes]
        # A member of a member is one, too: long chains take few rounds.
        found = found[found]
        if np.array_equal(found, before):
            return found
