"""Orders of models declared by sequential tests, and what is not settled."""

import math
from collections.abc import Sequence
from typing import Final

from orchestrator.statistics.sequential import PairOrder
from orchestrator.tables import Cell, Measured, Table, counted_words, make_table, table_columns

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
        [_line(pair, models, is_finished=is_finished) for pair in order],
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


def _line(pair: PairOrder, models: Sequence[str], *, is_finished: bool) -> list[Cell]:
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
