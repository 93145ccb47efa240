"""Places of models declared by an adaptive test, and what is not settled about them."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from orchestrator.statistics.adaptive import AdaptiveTest, Place
from orchestrator.tables import Cell, Column, Table, counted_words, make_table

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

    Args:
        method: Name of the method.
        judge: Who judged.
        models: That were compared.
        test: As the rows left it.
        error: Chance of any wrong order.
        n_items: Prompts there are.
        n_clusters: Clusters that the prompts are in, and that the test takes for independent; None
            where each stands alone.
        block: Prompts of a block, at least.
        top: Who is among the best so many was asked for; None for every order.
        baseline: Name of the model that the others were compared with; empty for all.
        is_finished: Whether nothing is left to be asked.
        warning: Why the judge is not to be trusted; empty where it is.
    """
    places = sorted(test.places(), key=lambda one: (-_or_least(one.win_rate), one.model))
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


def _or_least(value: float) -> float:
    return -1.0 if math.isnan(value) else value


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
