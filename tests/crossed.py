"""Tables of cases: the fast tests take each two values together once, the long ones all of them."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, Final

import pytest

LONG: Final = (pytest.mark.slow, pytest.mark.long)


def crossed(*factors: Iterable[Any]) -> list[Any]:
    """Return every combination of values of some factors, of which most are long.

    The fast ones are a Latin square: of three factors they hold each value of one with each value
    of another, of two each value.
    """
    lists = [list(factor) for factor in factors]
    n = min(map(len, lists))
    return [
        pytest.param(
            *(value for _, value in case), marks=LONG if sum(at for at, _ in case) % n else ()
        )
        for case in product(*map(enumerate, lists))
    ]


def squared(one: Sequence[str], other: Sequence[str]) -> list[tuple[str, str]]:
    """Pair each value with one of the other's, so that each of both is there."""
    n = max(len(one), len(other))
    return [(one[at % len(one)], other[at % len(other)]) for at in range(n)]
