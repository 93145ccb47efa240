"""Rows of pairs of models, made of the lists of one turn."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations as pairs_of
from statistics import fmean
from typing import NamedTuple

from orchestrator.contracts.rows import failed_row
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods._conversation import Turn
from orchestrator.methods._listing import ReadList, Started
from orchestrator.plugin import Failure, Row


class Order(NamedTuple):
    """The lists of answers that were shown in one order, one a trace.

    Attributes:
        number: Of the turn, from 1.
        models: Authors of the answers, as they were shown.
        started: The beginnings of the lists.
        lists: As they were read.
    """

    number: int
    models: tuple[str, ...]
    started: Started
    lists: list[ReadList]


class _Pair(NamedTuple):
    """The verdict of one list on A and B.

    Attributes:
        before: P(A is named before B).
        shown: The places at which A and B were shown, from 1.
        places: Their places in the list; nan for one that it does not name.
        ranks: Their expected ranks; nan where the list ended early.
        coverage: The least at the places that `before` rests on.
        exact: True if all letters' probabilities were known there.
    """

    before: float
    shown: tuple[float, float]
    places: tuple[float, float]
    ranks: tuple[float, float]
    coverage: float
    exact: bool

    @property
    def is_a_first(self) -> bool:
        """True if the list names A first; what it does not name stands behind what it does."""
        a, b = self.places
        return math.isnan(b) or a < b


def turn_rows(
    number: int,
    models: Sequence[str],
    turn: dict[str, Turn],
    orders: Sequence[Order],
) -> list[Row]:
    """Return the rows of one turn, one a pair of models.

    Args:
        number: Of the turn.
        models: All candidates.
        turn: The answers that there are.
        orders: The lists of this turn.
    """
    rows: list[Row] = []
    lists = [one for order in orders for one in order.lists]
    for pair in pairs_of(models, 2):
        missing = [model for model in pair if model not in turn]
        if missing:
            said = f"no answer of {' and '.join(missing)}"
            rows += failed_pairs(number, [pair], Failure("no_answer", said, permanent=True))
            continue
        read = [[_pair(order.models, one, *pair) for one in order.lists] for order in orders]
        said_of = [[one for one in order if one is not None] for order in read]
        n_ended = len(lists) - sum(map(len, said_of))
        if n_ended:
            why = next(one.undefined for one in lists if one.undefined)
            said = f"{n_ended} of {len(lists)} lists end before either: {why}"
            rows += failed_pairs(number, [pair], Failure("no_logprobs", said, permanent=True))
            continue
        a, b = (turn[model].answer.text for model in pair)
        rows.append(
            {
                "turn": number,
                "model_a": pair[0],
                "model_b": pair[1],
                "same_text": a == b,
                "n_listed": len(turn),
                "n_traces": sum(order.started.n_traces for order in orders),
                "n_silent": sum(order.started.n_silent for order in orders),
                **_averaged(said_of),
            }
        )
    return rows


def _pair(shown: Sequence[str], one: ReadList, a: str, b: str) -> _Pair | None:
    """Return the verdict of a list on two models; None if it names neither."""
    judgment = one.judgment
    i, j = shown.index(a), shown.index(b)
    if judgment is None or judgment.settled[i][j] < 0:
        return None
    places, ranks = judgment.places(), judgment.ranks()
    until = judgment.settled[i][j] + 1
    return _Pair(
        judgment.before[i][j],
        (i + 1.0, j + 1.0),
        (places[i], places[j]),
        (ranks[i], ranks[j]),
        min(one.coverages[:until]),
        all(one.exact[:until]),
    )


def _averaged(orders: Sequence[Sequence[_Pair]]) -> Row:
    """Return the columns of a pair, averaged over the lists of each order, then over orders."""
    read = [one for order in orders for one in order]
    ab = [order for order in orders if order[0].shown[0] < order[0].shown[1]]
    ba = [order for order in orders if order[0].shown[0] > order[0].shown[1]]
    first, second = (_mean(side, lambda one: one.before) for side in (ab, ba))
    # Three levels: a list has no ties.
    p_ab, p_ba = (first, 0.0, 1.0 - first), (second, 0.0, 1.0 - second)
    found = judge_pair(p_ab, p_ba[::-1])
    return {
        "p_ab": list(p_ab),
        "p_ba": list(p_ba),
        "prefer_a": found.prefer,
        "prefer_a_ab": found.prefer_ab,
        "prefer_a_ba": found.prefer_ba,
        "mean_pre": found.mean_pre,
        "mean_post": found.mean_post,
        "mode_post": _mean(orders, lambda one: 1.0 if one.is_a_first else -1.0),
        "coverage_ab": _mean(ab, lambda one: one.coverage),
        "coverage_ba": _mean(ba, lambda one: one.coverage),
        "exact": all(one.exact for one in read),
        "preferences": [one.before for one in read],
        **{
            f"{name}_{side}": [_known(getattr(one, name)[at]) for one in read]
            for name in ("shown", "places", "ranks")
            for at, side in enumerate("ab")
        },
    }


def _mean(orders: Sequence[Sequence[_Pair]], of: Callable[[_Pair], float]) -> float:
    """Return the mean over orders, in which lists behind several traces count as one."""
    return fmean(fmean(of(one) for one in order) for order in orders)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def failed_pairs(number: int, pairs: Iterable[tuple[str, str]], failure: Failure) -> list[Row]:
    """Return a failed row for each pair of models.

    Args:
        number: Of the turn, from 1.
        pairs: Names of two models each.
        failure: Their cause.
    """
    return [{"turn": number, "model_a": a, "model_b": b, **failed_row(failure)} for a, b in pairs]
