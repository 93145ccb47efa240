"""Groups of what cannot be told apart: two share one exactly where no test separates them."""

from collections.abc import Collection, Sequence
from typing import Final

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
