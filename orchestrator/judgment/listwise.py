"""Lists from best to worst: the choices they are made of, and preferences between two of them.

A judge names the best of n answers, then the best of those left, and so on. At each place of the
list the whole distribution over the answers left is known, given the list so far. The *mode* is the
list itself. The *mean* is, for every two answers, the probability that one is named before the
other.

That probability needs the distributions behind every list that the judge could have begun, and
those behind one are known. The approximation: the chances of a and b at place t, as long as neither
is named, are those behind the list that was written. Behind the place t* where it names one of
them, what is left is divided as at t*:

    P(a before b) = sum over t <= t* of s_t q_t(a)  +  s_{t*+1} q_t*(a) / (q_t*(a) + q_t*(b)),
    s_0 = 1,  s_{t+1} = s_t (1 - q_t(a) - q_t(b))

It is exact for two answers, and where choices follow the model of Plackett and Luce.

The formula is ours: Wang, Zhang and Choi 2025 (arXiv 2503.03064) judge lists, but their formula was
not at hand (2026-11-27; `docs/methods/listwise.md`).
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from orchestrator.errors import StatisticsError

_EXCESS: Final = 1e-6
"""Distance of a sum of probabilities from 1 that rounding explains."""


class ListJudgment(NamedTuple):
    """One list of n answers, and what the choices in it say.

    Attributes:
        order: Answers as they are listed, best first; all n if the list is complete.
        before: P(a is named before b) at [a][b], shape (n, n): nan where neither is listed, and on
            the diagonal.
        settled: The place, from 0, at which the list names one of a and b, at [a][b]; -1 where it
            names neither.
    """

    order: tuple[int, ...]
    before: tuple[tuple[float, ...], ...]
    settled: tuple[tuple[int, ...], ...]

    def ranks(self) -> tuple[float, ...]:
        """Return the expected rank of each answer, from 1 for the best; nan where undefined."""
        n = len(self.before)
        return tuple(
            1.0 + sum(self.before[other][one] for other in range(n) if other != one)
            for one in range(n)
        )

    def places(self) -> tuple[float, ...]:
        """Return the place of each answer in the list, from 1; nan where it is not listed."""
        found = [math.nan] * len(self.before)
        for place, answer in enumerate(self.order, 1):
            found[answer] = float(place)
        return tuple(found)


def likeliest(probabilities: Sequence[float], left: Sequence[int]) -> int:
    """Return the most probable of the answers left; of equal ones the one shown first.

    Those left are ascending, and the probabilities in their order.
    """
    return left[max(range(len(left)), key=lambda at: (probabilities[at], -at))]


def judge_list(choices: Sequence[Sequence[float]]) -> ListJudgment:
    """Judge a list by the distributions at its places.

    For each place that was read, `choices` has the probabilities of all n answers, shape (n,): 0
    for those already listed, the others sum to 1. The list goes on with the most probable one; n -
    1 places make it complete.

    Raises:
        StatisticsError: If a place is no such distribution, or there are too many places.
    """
    n = len(choices[0]) if choices else 0
    if n < 2 or len(choices) >= n:
        raise StatisticsError(
            f"a list of n answers has distributions over n >= 2 of them at 1 to n - 1 places, got "
            f"{len(choices)} over {n}"
        )
    order: list[int] = []
    for place, choice in enumerate(choices):
        listed = sum(choice[one] for one in order)
        if len(choice) != n or listed > 0 or not abs(sum(choice) - 1.0) <= _EXCESS:
            raise StatisticsError(f"place {place + 1} is no distribution over the answers left")
        left = [one for one in range(n) if one not in order]
        order.append(likeliest([choice[one] for one in left], left))
    settled = [[-1] * n for _ in range(n)]
    for place, chosen in reversed(list(enumerate(order))):
        for other in range(n):
            if other != chosen:
                settled[chosen][other] = settled[other][chosen] = place
    before = [[math.nan] * n for _ in range(n)]
    for a in range(n):
        for b in range(a):
            if settled[a][b] >= 0:
                before[a][b] = _before(choices[: settled[a][b] + 1], a, b)
                before[b][a] = 1.0 - before[a][b]
    if len(order) == n - 1:
        order += set(range(n)).difference(order)
    return ListJudgment(tuple(order), tuple(map(tuple, before)), tuple(map(tuple, settled)))


def _before(choices: Sequence[Sequence[float]], a: int, b: int) -> float:
    waiting, named = 1.0, 0.0
    for choice in choices:
        named += waiting * choice[a]
        waiting = max(0.0, waiting * (1.0 - choice[a] - choice[b]))
    last = choices[-1]
    return min(1.0, named + waiting * last[a] / (last[a] + last[b]))


def presentations(base: Sequence[int], n_orders: int) -> list[tuple[int, ...]]:
    """Return orders in which to show n answers: rotations of one, each with its reverse.

    Every two answers stand each way round in half of the orders. With 2n orders every answer stands
    at every place twice, so there are no more. `base` is a permutation of 0 to n - 1, `n_orders` an
    even number.
    """
    n = len(base)
    n_rotations = min(n_orders // 2, n)
    found: list[tuple[int, ...]] = []
    for at in range(n_rotations):
        start = at * n // n_rotations
        rotated = (*base[start:], *base[:start])
        found += [rotated, rotated[::-1]]
    return found
