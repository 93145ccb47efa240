"""Orders and places of models declared by sequential tests, and what is not settled."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from orchestrator.statistics.adaptive import AdaptiveTest, Place
from orchestrator.statistics.sequential import PairOrder
from orchestrator.tables import (
    Cell,
    Column,
    Measured,
    Table,
    counted_words,
    make_table,
    table_columns,
)

_COLUMNS: Final = table_columns(
    "better | worse | order | prompts: count | settled after: count",
    "mean difference: signed 3 | adjusted p: p",
)
SETTLED: Final = "settled"
UNSETTLED: Final = "not resolvable"
OPEN: Final = "not settled yet"
IDLE: Final = "cannot matter"


def orders_table(  # noqa: PLR0913 (what a test rests on, by keyword)
    method: str,
    judge: str,
    models: Sequence[str],
    pairs: Sequence[PairOrder],
    *,
    error: float,
    n_items: int,
    n_clusters: int | None,
    block: int,
    of_dataset: bool,
    top: int | None,
    is_finished: bool,
) -> Table:
    """The pairs of one ranking, settled ones first.

    `error` is the chance of any wrong order. `n_clusters` are taken for independent; None where
    each prompt stands alone. `top` is the number of best models asked for; None for every order.
    """
    order = sorted(pairs, key=lambda pair: (not pair.better, not pair.matters, pair.settled_at))
    n_settled = sum(1 for pair in pairs if pair.better)
    about = _about(block, of_dataset=of_dataset, by_cluster=n_clusters is not None)
    notes = [
        f"settled: the probability that any order in this table is wrong is at most "
        f"{100 * error:g} %, for this judge, with a look after every {about}",
        "mean difference: -1 to 1 a prompt, over the prompts asked of this pair, with a "
        "confidence sequence valid for all pairs and looks at once (an order may be settled "
        "although its interval includes 0: Holm's procedure for orders needs less evidence)",
    ]
    if any(pair.n_missing for pair in pairs):
        n_missing = sum(pair.n_missing for pair in pairs)
        notes.append(
            f"{n_missing:,} comparisons failed and are excluded: an order is about the prompts "
            f"that have one"
        )
    if top is not None:
        who = f"the best {top} models (those with fewer than {top} better ones)"
        if top == 1:
            who = "the best model"
        notes.append(f"asked for: {who}; a pair cannot matter once this is known of both models")
    return make_table(
        f"{method}.orders",
        "Orders by sequential test" + (f", judged by {judge}" if judge else ""),
        _COLUMNS,
        [_line_of_pair(pair, models, is_finished=is_finished) for pair in order],
        basis=f"{n_settled} of {len(pairs)} pairs settled · {counted_words(n_items, n_clusters)}",
        notes=notes,
    )


def _about(block: int, *, of_dataset: bool, by_cluster: bool) -> str:
    """Describe the prompts between two looks, and the population that the orders are about."""
    if by_cluster:
        return (
            f"{block} prompts in whole clusters; about clusters of prompts like these, none larger "
            "than the largest of these"
        )
    return (
        f"{block} prompts; about {'exactly these prompts' if of_dataset else 'prompts like these'}"
    )


def _line_of_pair(pair: PairOrder, models: Sequence[str], *, is_finished: bool) -> list[Cell]:
    names = models[pair.first], models[pair.second]
    # A pair that is not settled shows who is ahead, and says that it means nothing.
    sign = pair.better or (-1 if pair.difference < 0 else 1)
    better, worse = names if sign > 0 else names[::-1]
    if pair.better:
        said = SETTLED
    elif not pair.matters:
        said = IDLE
    else:
        said = UNSETTLED if is_finished else OPEN
    low, high = (pair.low, pair.high) if sign > 0 else (-pair.high, -pair.low)
    mean = Measured(None, why="no comparison")
    if not math.isnan(pair.difference):
        mean = Measured(sign * pair.difference, low, high)
    asked = pair.n + pair.n_missing
    return [better, worse, said, asked, pair.settled_at or None, mean, pair.p]


_MOST_NAMED: Final = 3
_VERDICTS: Final = {1: "yes", -1: "no"}


def places_table(  # noqa: PLR0913 (what a test rests on, by keyword)
    method: str,
    judge: str,
    models: Sequence[str],
    test: AdaptiveTest,
    *,
    error: float,
    n_items: int,
    n_clusters: int | None,
    block: int,
    top: int | None,
    baseline: str,
    is_finished: bool,
    warning: str,
) -> Table:
    """Tabulate the models of one ranking, by win rate.

    Arguments as of `orders_table`. `baseline` is the model that the others were compared with,
    empty for all; `warning` says why the judge is not to be trusted.
    """
    # The greater of -1 and a rate that is not known, NaN, is -1.
    places = sorted(test.places(), key=lambda one: (-max(-1.0, one.win_rate), one.model))
    if baseline:
        places = [one for one in places if models[one.model] != baseline]
    asked = "better" if baseline else f"among the top {top}" if top is not None else ""
    n_known = sum(
        one.verdict != 0 if asked else one.highest_rank == one.lowest_rank for one in places
    )
    n_all = len(test.pairs) * n_items
    columns = [Column("model"), Column(_RATE[bool(baseline)], "percent")]
    columns.append(Column(asked) if asked else Column("place"))
    columns.extend((Column("not settled against"), Column("comparisons", "count")))
    open_word = "not resolvable" if is_finished else "not settled yet"
    table = make_table(
        f"{method}.places",
        "Places by adaptive test" + (f", judged by {judge}" if judge else ""),
        columns,
        [_line_of_place(one, models, open_word if asked else "") for one in places],
        basis=f"{n_known} of {len(places)} models settled, {int(test.better.sum())} of "
        f"{len(places) if baseline else len(test.pairs)} pairs · {test.n_asked:,} of {n_all:,} "
        f"comparisons ({100 * test.n_asked / n_all:.1f} %) · {counted_words(n_items, n_clusters)}",
        notes=_notes(test, error, block, baseline, by_cluster=n_clusters is not None),
    )
    return msgspec.structs.replace(table, warning=warning)


_RATE: Final = {False: "mean win rate", True: "win rate against it"}


def _line_of_place(place: Place, models: Sequence[str], open_word: str) -> list[Cell]:
    """A row; a range of places where the order of all is asked for, which has no open word."""
    if open_word:
        said = _VERDICTS.get(place.verdict, open_word)
    else:
        low, high = place.highest_rank, place.lowest_rank
        said = str(low) if low == high else f"{low} to {high}"
    names = [models[other] for other in place.unsettled]
    listed = ", ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        listed += f" and {len(names) - _MOST_NAMED} more"
    rate = place.win_rate if place.n_prompts else None
    return [models[place.model], rate, said, listed, place.n_comparisons]


def _notes(
    test: AdaptiveTest, error: float, block: int, baseline: str, *, by_cluster: bool
) -> list[str]:
    order = f"the win rate against {baseline}" if baseline else "the mean win rate over all others"
    prompts = "clusters of prompts" if by_cluster else "prompts"
    notes = [
        f"the probability that any declared order is wrong is at most {100 * error:g} %, for this "
        f"judge, with a look after every {block} prompts; an order is that of {order}, on "
        f"{prompts} like these, and assumes no model of the judge's preferences",
        "win rates are estimates without an interval, over the prompts on which a model was still "
        "of interest",
    ]
    if test.n_missing:
        notes.append(
            f"{test.n_missing:,} comparisons failed: they count as neither won nor lost in these "
            "win rates"
        )
    return notes
